//! Counted costs of a token.

use super::{Decoder, OP};
use crate::metal::Launch;
use crate::{Error, Result};

/// Costs of a token on a device, counted from its launches and not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels launched.
    pub launches: usize,
    /// Barriers between them.
    pub barriers: usize,
    /// Command buffers.
    pub command_buffers: usize,
    /// Bytes that kernels read: weights, keys and values in use, and intermediate results. Bytes that several threads
    /// of a launch read count once.
    pub bytes_read: u64,
    /// Bytes that kernels write.
    pub bytes_written: u64,
}

/// Counts the launches of one command buffer, without costs that depend on the length of a sequence.
pub(super) fn count<'a>(
    decoder: &Decoder,
    launches: impl Iterator<Item = &'a Launch>,
) -> Result<Counts> {
    let mut commands = decoder.metal().device.commands();
    let mut counts = Counts {
        command_buffers: 1,
        ..Counts::default()
    };
    for launch in launches {
        let recorded = launch.record(&mut commands);
        recorded.map_err(|e| Error::device(OP, e))?;
        let [read, written] = launch.traffic();
        counts.bytes_read += read;
        counts.bytes_written += written;
    }
    counts.launches = commands.len();
    counts.barriers = commands.barriers();
    Ok(counts)
}
