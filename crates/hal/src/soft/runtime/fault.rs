//! How a launch can end badly.

use crate::report::{Report, ReportKind};
use crate::soft::plan::Location;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A launch that did not finish. The device is usable afterwards; what the kernel wrote until then stays written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The kernel's host name.
    pub kernel: String,
    /// The threadgroup that was running, if any was.
    pub threadgroup: Option<[u32; 3]>,
    /// The thread that was running, in check mode.
    pub thread: Option<Box<Whereabouts>>,
    /// More about it, for instance the buffer nearest to a wild address; may be empty.
    pub detail: String,
    /// What the checker had found until then.
    pub reports: Vec<Report>,
}

/// A thread that was running when a launch ended badly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// Its position in the grid.
    pub position: [u32; 3],
    /// Where its last memory access is in the source; where its last loop is, if it did not end.
    pub near: Option<Location>,
}

/// What ended a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FaultKind {
    /// The kernel touched memory that is not mapped or not writable. The address is missing where the
    /// processor does not tell it.
    PageFault {
        /// The address it touched.
        address: Option<u64>,
    },
    /// The kernel's private memory did not fit the worker's stack.
    StackOverflow,
    /// Integer division by zero, or of the smallest integer by -1.
    DivisionByZero,
    /// An instruction that does not exist here; also what the compiler puts where code must not be reached.
    IllegalInstruction,
    /// Another trap, by its signal number.
    Trap {
        /// The signal.
        signal: i32,
    },
    /// The launch ran past its time limit.
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// A thread went through loops more often than it may without a synchronisation, in check mode.
    Endless {
        /// Iterations that it may have.
        steps: u64,
    },
    /// The isolated process died from this signal.
    Died {
        /// The signal, or 0 when the process vanished without one.
        signal: i32,
    },
    /// Memory for the launch could not be allocated.
    OutOfMemory,
    /// The launch itself makes no sense; `detail` says why.
    Invalid,
}

impl Fault {
    /// A fault without place or detail.
    pub fn new(kind: FaultKind, kernel: &str) -> Self {
        Self {
            kind,
            kernel: kernel.to_owned(),
            threadgroup: None,
            thread: None,
            detail: String::new(),
            reports: Vec::new(),
        }
    }

    /// The fault as a report of kind `crash` or `timeout`. Its place is that of the thread's last access: the defect is
    /// there or soon after.
    pub fn report(&self) -> Report {
        let kind = match self.kind {
            FaultKind::Timeout { .. } | FaultKind::Endless { .. } => ReportKind::Timeout,
            _ => ReportKind::Crash,
        };
        let near = self.thread.as_ref().and_then(|thread| thread.near.as_ref());
        Report {
            kind,
            message: self.sentence(),
            kernel: self.kernel.clone(),
            file: near.map(|near| near.file.clone()).unwrap_or_default(),
            line: near.map_or(0, |near| near.line),
            column: near.map_or(0, |near| near.column),
            buffer: None,
            thread: self.thread.as_ref().map(|thread| thread.position),
            threadgroup: self.threadgroup,
            count: 1,
        }
    }

    fn sentence(&self) -> String {
        if self.detail.is_empty() {
            self.kind.to_string()
        } else {
            format!("{}, {}", self.kind, self.detail)
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageFault {
                address: Some(address),
            } => write!(f, "page fault at address {address:#x}"),
            Self::PageFault { address: None } => f.write_str("page fault at a wild address"),
            Self::StackOverflow => f.write_str("private memory does not fit the stack"),
            Self::DivisionByZero => f.write_str("integer division by zero"),
            Self::IllegalInstruction => f.write_str("unreachable code was reached"),
            Self::Trap { signal } => write!(f, "trap (signal {signal})"),
            Self::Timeout { limit } => write!(f, "not finished after {limit:?}"),
            Self::Endless { steps } => {
                write!(f, "a loop has not ended after {steps} iterations")
            }
            Self::Died { signal: 0 } => f.write_str("the isolated process vanished"),
            Self::Died { signal } => {
                write!(f, "the isolated process died from signal {signal}")
            }
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Invalid => f.write_str("invalid launch"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`: {}", self.kernel, self.sentence())?;
        if let Some([x, y, z]) = self.threadgroup {
            write!(f, " (threadgroup [{x}, {y}, {z}])")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_kernel_place_and_detail() {
        let fault = Fault {
            threadgroup: Some([1, 0, 0]),
            detail: "4 bytes past the end of buffer 2".into(),
            ..Fault::new(
                FaultKind::PageFault {
                    address: Some(0x1000),
                },
                "add",
            )
        };
        assert_eq!(
            fault.to_string(),
            "kernel `add`: page fault at address 0x1000, 4 bytes past the end of buffer 2 (threadgroup [1, 0, 0])"
        );
        assert_eq!(fault.report().kind, ReportKind::Crash);
        let slow = Fault::new(
            FaultKind::Timeout {
                limit: Duration::from_secs(2),
            },
            "spin",
        );
        assert_eq!(slow.report().kind, ReportKind::Timeout);
        assert_eq!(slow.to_string(), "kernel `spin`: not finished after 2s");
    }
}
