//! A program that is ready to run on groups of lanes.

use super::flow::{BasicBlock, BlockOrder};
use super::lowering::{MemoryAccess, MemorySpace, Operation, Operations};
use crate::cache_line::CACHE_LINE_BYTES;
use crate::program::{Instruction, LaunchConfig, Program, Register, Result, host};

/// Bytes of all columns of a group, unless it has few lanes: they should stay in the L1 cache.
const MAX_GROUP_BYTES: usize = 24 << 10;

/// Minimum and maximum number of lanes of a group: below, the calls cost more than the loops.
const MIN_GROUP_LANES: usize = 256;
const MAX_GROUP_LANES: usize = 1024;

/// A verified program, lowered.
#[derive(Debug)]
pub(super) struct MaskedProgram {
    pub(super) operations: Operations,
    pub(super) blocks: Vec<BasicBlock>,
    /// See [`BlockOrder::starts`].
    pub(super) starts: Vec<u32>,
    /// All loads and stores of buffers and pools.
    pub(super) accesses: Vec<MemoryAccess>,
    /// A lane may run more instructions than the program has.
    pub(super) has_cycles: bool,
    /// Some instructions run once per launch.
    pub(super) runs_once: bool,
    pub(super) has_phases: bool,
    /// Lanes wait for those of their block.
    pub(super) has_barriers: bool,
    /// What lanes do depends on those of their block, or is collected for the block.
    pub(super) needs_blocks: bool,
}

impl MaskedProgram {
    /// Lowers a program.
    ///
    /// # Errors
    /// Those of [`Program::verify`].
    pub(super) fn new(program: &Program, initial_registers: &[Register]) -> Result<Self> {
        program.verify(initial_registers)?;
        let order = BlockOrder::of(program);
        let reachable = order.reachable(program.len());
        let operations = Operations::of(program, initial_registers, |index| reachable[index]);
        let blocks = order.blocks(program, &operations);
        let accesses = operations
            .all
            .iter()
            .filter_map(|operation| match operation {
                Operation::Access(access) => Some(*access),
                _ => None,
            });
        let accesses: Vec<_> = accesses.collect();
        let any = |test: fn(&Instruction) -> bool| program.instructions.iter().any(test);
        let runs_once = any(host::runs_once);
        let has_barriers = any(|i| matches!(i, Instruction::BarSync { .. }));
        let accumulates = any(|i| matches!(i, Instruction::ResAccum { .. }));
        let is_shared = |a: &MemoryAccess| a.space == MemorySpace::Shared;
        Ok(Self {
            needs_blocks: has_barriers
                || runs_once
                || accumulates
                || accesses.iter().any(is_shared),
            accesses,
            operations,
            blocks,
            starts: order.starts,
            has_cycles: order.has_cycles,
            runs_once,
            has_phases: any(|i| {
                matches!(
                    i,
                    Instruction::PhaseGet { .. } | Instruction::PhaseAdv { .. }
                )
            }),
            has_barriers,
        })
    }

    /// Bytes of the state of all blocks of a launch, about.
    pub(super) fn launch_bytes(&self, config: &LaunchConfig) -> u64 {
        let lanes = config.block_lanes();
        let sizes = self.operations.sizes.iter();
        let columns: u64 = sizes
            .map(|&size| lanes * u64::from(size) + 2 * CACHE_LINE_BYTES as u64)
            .sum();
        config.blocks().saturating_mul(columns + 16 * lanes)
    }

    /// Number of lanes of a group.
    pub(super) fn group_lanes(&self, config: &LaunchConfig) -> usize {
        let block = config.block_lanes() as usize;
        if self.has_barriers || self.runs_once {
            return block;
        }
        let per_lane: usize = self.operations.sizes.iter().map(|&s| usize::from(s)).sum();
        let lanes = MAX_GROUP_BYTES / per_lane.max(1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
        let lanes = lanes.clamp(MIN_GROUP_LANES, MAX_GROUP_LANES);
        if self.needs_blocks {
            lanes.min(block)
        } else {
            lanes
        }
    }
}
