//! Failures of a launch.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::report::{Report, ReportKind};
use crate::soft::plan::Location;

/// A launch that did not finish. The device remains usable; writes the kernel has made so far persist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFault {
    /// Kind of failure.
    pub kind: FaultKind,
    /// The kernel's host name.
    pub kernel: String,
    /// The running threadgroup, if any.
    pub threadgroup: Option<[u32; 3]>,
    /// The running thread, in check mode.
    pub thread: Option<Box<ThreadLocation>>,
    /// Details, such as the buffer nearest to a wild address; may be empty.
    pub detail: String,
    /// The checker's findings before the failure.
    pub reports: Vec<Report>,
}

/// A thread that was running when a launch failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocation {
    /// Its position in the grid.
    pub position: [u32; 3],
    /// The location of its last memory access, or of its last loop if that did not end.
    pub near: Option<Location>,
}

/// Kind of a launch failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FaultKind {
    /// The kernel accessed memory that is not mapped or not writable. The address is missing if the processor does
    /// not report it.
    PageFault {
        /// The accessed address.
        address: Option<u64>,
    },
    /// The kernel's private memory overflowed the worker's stack.
    StackOverflow,
    /// Integer division by zero, or of the smallest integer by -1.
    DivisionByZero,
    /// An illegal instruction, which the compiler also emits for unreachable code.
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
    /// A thread exceeded the loop iterations allowed between synchronisations, in check mode.
    Endless {
        /// The limit of iterations.
        steps: u64,
    },
    /// The isolated process died from this signal.
    Died {
        /// The signal, or 0 if the process disappeared without one.
        signal: i32,
    },
    /// Memory for the launch could not be allocated.
    OutOfMemory,
    /// The launch is invalid; `detail` is the reason.
    Invalid,
}

impl LaunchFault {
    /// Creates a fault without location or detail.
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

    /// Converts the fault to a report of kind `crash` or `timeout`, located at the thread's last access: the defect is
    /// there or soon after.
    pub fn report(&self) -> Report {
        let kind = match self.kind {
            FaultKind::Timeout { .. } | FaultKind::Endless { .. } => ReportKind::Timeout,
            _ => ReportKind::Crash,
        };
        let near = self.thread.as_ref().and_then(|thread| thread.near.as_ref());
        Report {
            kind,
            message: self.description(),
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

    fn description(&self) -> String {
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
            Self::StackOverflow => f.write_str("private memory does not fit on the stack"),
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

impl fmt::Display for LaunchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`: {}", self.kernel, self.description())?;
        if let Some([x, y, z]) = self.threadgroup {
            write!(f, " (threadgroup [{x}, {y}, {z}])")?;
        }
        Ok(())
    }
}

impl std::error::Error for LaunchFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_kernel_threadgroup_and_detail() {
        let fault = LaunchFault {
            threadgroup: Some([1, 0, 0]),
            detail: "4 bytes past the end of buffer 2".into(),
            ..LaunchFault::new(
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
        let slow = LaunchFault::new(
            FaultKind::Timeout {
                limit: Duration::from_secs(2),
            },
            "spin",
        );
        assert_eq!(slow.report().kind, ReportKind::Timeout);
        assert_eq!(slow.to_string(), "kernel `spin`: not finished after 2s");
    }
}
