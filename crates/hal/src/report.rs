//! What a checking device found in a kernel.

mod baseline;
mod suppress;

pub use baseline::{Baseline, BaselineEntry, BaselineError, Judged};
#[cfg(target_os = "linux")]
pub(crate) use suppress::Sources;
pub use suppress::suppression_warnings;

use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The kind of defect a [`Report`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReportKind {
    /// An access outside the bound range of a buffer or outside a threadgroup variable.
    Bounds,
    /// Two threads touched the same bytes, at least one wrote, and no barrier ordered them.
    Race,
    /// Threadgroup memory was read before anything was written there.
    Uninitialised,
    /// Threads of one threadgroup waited at different barriers.
    DivergentBarrier,
    /// A barrier was reached while other threads of the group had already returned.
    EarlyReturn,
    /// Lanes of one SIMD-group took part in different SIMD-group operations.
    DivergentSimd,
    /// A lane read from another lane that took no part in the SIMD-group function.
    InactiveLane,
    /// More threadgroup memory than the device has, or an unbound threadgroup argument.
    ThreadgroupMemory,
    /// The kernel crashed: a wild pointer, a division by zero, a stack overflow.
    Crash,
    /// The kernel ran past the time limit.
    Timeout,
}

impl ReportKind {
    /// The name used in reports and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::Race => "race",
            Self::Uninitialised => "uninitialised",
            Self::DivergentBarrier => "divergent-barrier",
            Self::EarlyReturn => "early-return",
            Self::DivergentSimd => "divergent-simd",
            Self::InactiveLane => "inactive-lane",
            Self::ThreadgroupMemory => "threadgroup-memory",
            Self::Crash => "crash",
            Self::Timeout => "timeout",
        }
    }
}

impl FromStr for ReportKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let name: StrDeserializer<'_, ValueError> = name.into_deserializer();
        Self::deserialize(name).map_err(|error| error.to_string())
    }
}

impl fmt::Display for ReportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One defect, found at one place of a kernel; repeated findings are counted, not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What kind of defect it is.
    pub kind: ReportKind,
    /// What happened, in one sentence.
    pub message: String,
    /// The kernel's host name.
    pub kernel: String,
    /// Source file, as the compiler saw it; empty when the place is unknown.
    pub file: String,
    /// Line in `file`, from 1; 0 when the place is unknown.
    pub line: u32,
    /// Column in the line, from 1; 0 when unknown.
    pub column: u32,
    /// Buffer index, where a buffer is concerned.
    pub buffer: Option<u32>,
    /// Position in the grid of the first thread that showed it.
    pub thread: Option<[u32; 3]>,
    /// Position in the grid of that thread's threadgroup.
    pub threadgroup: Option<[u32; 3]>,
    /// How often it was seen.
    pub count: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        }
        write!(
            f,
            "{}: {} (kernel `{}`",
            self.kind, self.message, self.kernel
        )?;
        if let Some([x, y, z]) = self.thread {
            write!(f, ", thread [{x}, {y}, {z}]")?;
        }
        if self.count > 1 {
            write!(f, ", {} times", self.count)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_back_from_their_names() {
        let error = "rase".parse::<ReportKind>().unwrap_err();
        let (_, names) = error.split_once("expected one of ").unwrap();
        let names: Vec<&str> = names
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .collect();
        assert!(names.contains(&"race") && names.contains(&"inactive-lane"));
        for name in names {
            assert_eq!(name.parse::<ReportKind>().unwrap().as_str(), name);
        }
    }
}
