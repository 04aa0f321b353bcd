//! What a kernel does with a buffer.

use std::fmt;

/// How a binding is used; hazards follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The kernel only reads.
    Read,
    /// The kernel only writes.
    Write,
    /// The kernel reads and writes.
    ReadWrite,
}

impl Access {
    /// Whether anything may be read.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether anything may be written.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read-write",
        })
    }
}
