//! Storage modes of buffers.

use std::fmt;

/// Metal's storage modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StorageMode {
    /// One memory for host and device: the host reads and writes the bytes that kernels see.
    #[default]
    Shared,
    /// Device memory only; accessed by [`crate::Dispatch`] and [`crate::Commands::copy`].
    Private,
    /// A host copy and a device copy. The host announces its writes with
    /// [`crate::Buffer::did_modify_range`] and fetches the device's with [`crate::Commands::synchronize`].
    Managed,
}

impl fmt::Display for StorageMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Private => "private",
            Self::Managed => "managed",
        })
    }
}
