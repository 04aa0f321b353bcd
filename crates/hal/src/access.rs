//! How a kernel accesses a buffer.

use std::fmt;

/// Access of a kernel to a binding; hazards are derived from it.
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
    /// Returns whether the kernel may read.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Returns whether the kernel may write.
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
