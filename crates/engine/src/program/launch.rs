//! How a program is launched.

use std::collections::BTreeMap;

use super::error::{ProgramError, Result};
use super::operand::Register;

/// Size of a launch in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridDim {
    /// Blocks along x.
    pub x: u32,
    /// Blocks along y.
    pub y: u32,
    /// Blocks along z.
    pub z: u32,
}

/// Size of a block in lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockDim {
    /// Lanes along x.
    pub x: u32,
    /// Lanes along y.
    pub y: u32,
    /// Lanes along z.
    pub z: u32,
}

/// Memory that the lanes of a block share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedMemory {
    /// Size in bytes.
    pub size_bytes: usize,
}

/// Grid, block and shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Number of blocks.
    pub grid: GridDim,
    /// Lanes of a block.
    pub block: BlockDim,
    /// Memory of a block.
    pub shared_memory: SharedMemory,
}

/// Maximum number of lanes of a block.
const MAX_BLOCK_LANES: u64 = 1024;

/// Maximum size of shared memory in bytes.
const MAX_SHARED_BYTES: usize = 32 << 10;

impl LaunchConfig {
    /// A one-dimensional launch of `total` lanes or more, in blocks of `block` lanes.
    pub const fn linear(total: u32, block: u32) -> Self {
        let blocks = if block == 0 { 0 } else { total.div_ceil(block) };
        Self {
            grid: GridDim {
                x: blocks,
                y: 1,
                z: 1,
            },
            block: BlockDim {
                x: block,
                y: 1,
                z: 1,
            },
            shared_memory: SharedMemory { size_bytes: 0 },
        }
    }

    /// The launch with shared memory of a size.
    #[must_use]
    pub const fn with_shared_memory(mut self, size_bytes: usize) -> Self {
        self.shared_memory = SharedMemory { size_bytes };
        self
    }

    /// Number of lanes of a block.
    pub fn block_lanes(&self) -> u64 {
        u64::from(self.block.x)
            .saturating_mul(u64::from(self.block.y))
            .saturating_mul(u64::from(self.block.z))
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        u64::from(self.grid.x)
            .saturating_mul(u64::from(self.grid.y))
            .saturating_mul(u64::from(self.grid.z))
    }

    /// Checks the limits that every executor has.
    ///
    /// # Errors
    /// [`ProgramError::InvalidLaunch`].
    pub fn validate(&self) -> Result<()> {
        let lanes = self.block_lanes();
        if lanes == 0 || lanes > MAX_BLOCK_LANES {
            return Err(ProgramError::InvalidLaunch(format!(
                "a block has {lanes} lanes; it must have 1 to {MAX_BLOCK_LANES}"
            )));
        }
        if self
            .blocks()
            .checked_mul(lanes)
            .is_none_or(|n| n > u64::from(u32::MAX) << 8)
        {
            return Err(ProgramError::InvalidLaunch(format!(
                "{} blocks of {lanes} lanes are too many",
                self.blocks()
            )));
        }
        let bytes = self.shared_memory.size_bytes;
        if bytes > MAX_SHARED_BYTES {
            return Err(ProgramError::InvalidLaunch(format!(
                "{bytes} bytes of shared memory exceed the {MAX_SHARED_BYTES} available"
            )));
        }
        Ok(())
    }
}

/// What a launch needs besides the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionParams {
    /// Grid, block and shared memory.
    pub launch_config: LaunchConfig,
    /// Values that registers have at the start, as `u64`: handles of buffers, numbers of elements.
    pub initial_registers: BTreeMap<Register, u64>,
}

impl ExecutionParams {
    /// A launch without initial registers.
    pub const fn new(launch_config: LaunchConfig) -> Self {
        Self {
            launch_config,
            initial_registers: BTreeMap::new(),
        }
    }

    /// Sets a register.
    #[must_use]
    pub fn with_register(mut self, register: Register, value: u64) -> Self {
        self.initial_registers.insert(register, value);
        self
    }
}
