//! The launch that the command line describes.

use anyhow::Result;
use bessemer::program::{BlockDim, ExecutionParams, GridDim, LaunchConfig, SharedMemory};
use bessemer_hal::Size;

use super::BlockArgs;
use crate::failure::Usage;

impl BlockArgs {
    /// The launch with this grid.
    pub(super) fn params(&self, grid: Size) -> Result<ExecutionParams> {
        let [x, y, z] = dims(grid, "grid")?;
        let grid = GridDim { x, y, z };
        let [x, y, z] = dims(self.block, "block")?;
        let block = BlockDim { x, y, z };
        let config = LaunchConfig {
            grid,
            block,
            shared_memory: SharedMemory {
                size_bytes: self.shared.0,
            },
        };
        config.validate().map_err(|e| Usage::error(e.to_string()))?;
        let mut params = ExecutionParams::new(config);
        for spec in &self.registers {
            params = params.with_register(spec.register, spec.value);
        }
        Ok(params)
    }
}

fn dims(size: Size, option: &str) -> Result<[u32; 3]> {
    let narrow = |n: usize| {
        u32::try_from(n).map_err(|_| Usage::error(format!("--{option}: {n} is too large")))
    };
    Ok([
        narrow(size.width)?,
        narrow(size.height)?,
        narrow(size.depth)?,
    ])
}
