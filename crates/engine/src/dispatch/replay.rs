//! Replays of traced functions: chooses the backend that runs an executable.

use crate::compile::{BoundArgument, Executable, Obstacle};
use crate::cpu::replay::CpuReplay;
use crate::metal::replay::MetalReplay;
use crate::storage::Storage;
use crate::{Device, Result};

/// An executable, prepared for its device.
pub(crate) enum Replay {
    Cpu(CpuReplay),
    Metal(MetalReplay),
}

impl Replay {
    /// Prepares an executable, unless its ops need what a replay cannot do.
    pub(crate) fn new(executable: Executable) -> Result<Result<Self, Obstacle>> {
        match executable.device.metal_backend().cloned() {
            None => Ok(Ok(Self::Cpu(CpuReplay::new(executable)?))),
            Some(metal) => Ok(MetalReplay::new(metal, executable)?.map(Self::Metal)),
        }
    }

    pub(crate) fn executable(&self) -> &Executable {
        match self {
            Self::Cpu(replay) => replay.executable(),
            Self::Metal(replay) => replay.executable(),
        }
    }

    /// Runs the ops. Returns the memory of every allocation that belongs to the caller. Takes the donated arguments; after
    /// an error, those that were not overwritten are given back.
    pub(crate) fn run(&self, arguments: &mut [BoundArgument]) -> Result<Vec<Option<Storage>>> {
        match self {
            Self::Cpu(replay) => replay.run(arguments),
            Self::Metal(replay) => replay.run(arguments),
        }
    }

    /// Kernel launches of a call.
    pub(crate) fn launches(&self) -> usize {
        match self {
            Self::Cpu(replay) => replay.executable().ops.len(),
            Self::Metal(replay) => replay.launches(),
        }
    }

    /// Bytes of the memory for intermediate values.
    pub(crate) fn scratch_bytes(&self) -> usize {
        match self {
            Self::Cpu(replay) => replay.executable().scratch_bytes.iter().sum(),
            Self::Metal(replay) => replay.scratch_bytes(),
        }
    }
}

/// Returns `true` if a device may overwrite this memory.
pub(crate) fn is_donatable(device: &Device, storage: &mut Storage) -> bool {
    match device.metal_backend() {
        Some(metal) => storage.is_only_block_of(metal),
        None => storage.bytes_mut().is_some(),
    }
}
