//! Defect reports of a checking device.

mod baseline;
mod suppress;

pub use baseline::{Baseline, BaselineDiff, BaselineEntry, BaselineError};
#[cfg(target_os = "linux")]
pub(crate) use suppress::Sources;
pub use suppress::suppression_warnings;

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};

/// The kind of defect a [`Report`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReportKind {
    /// An access outside the bound range of a buffer, or outside a threadgroup or private variable.
    Bounds,
    /// A data race: two threads accessed the same bytes, at least one wrote, and no barrier ordered them.
    Race,
    /// Threadgroup or private memory was read before anything was written there.
    Uninitialised,
    /// An address that is not a multiple of the alignment of the accessed type.
    Misaligned,
    /// A shift by the width of the shifted integer or more.
    Shift,
    /// An integer division by zero, or of the smallest integer by -1.
    #[serde(rename = "division-by-zero")]
    Division,
    /// Threads of one threadgroup waited at different barriers.
    DivergentBarrier,
    /// A barrier was reached while other threads of the group had already returned.
    EarlyReturn,
    /// Lanes of one SIMD-group took part in different SIMD-group operations.
    DivergentSimd,
    /// A lane read from a lane that did not participate in the SIMD-group function.
    InactiveLane,
    /// More threadgroup memory than the device has, or an unbound threadgroup argument.
    ThreadgroupMemory,
    /// The kernel crashed: a wild pointer, a stack overflow.
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
            Self::Misaligned => "misaligned",
            Self::Shift => "shift",
            Self::Division => "division-by-zero",
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

/// A defect at one location of a kernel; repeated findings are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Kind of the defect.
    pub kind: ReportKind,
    /// Description in one sentence.
    pub message: String,
    /// The kernel's host name.
    pub kernel: String,
    /// Source file, as the compiler saw it; empty if the location is unknown.
    pub file: String,
    /// Line in `file`, from 1; 0 if the location is unknown.
    pub line: u32,
    /// Column in the line, from 1; 0 when unknown.
    pub column: u32,
    /// Buffer index, if a buffer is concerned.
    pub buffer: Option<u32>,
    /// Position in the grid of the first thread that showed it.
    pub thread: Option<[u32; 3]>,
    /// Position in the grid of that thread's threadgroup.
    pub threadgroup: Option<[u32; 3]>,
    /// Number of occurrences.
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
