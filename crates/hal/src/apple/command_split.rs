//! Splitting a list of commands into command buffers.
//!
//! The system's watchdog, which protects the display, stops a command buffer that occupies the GPU for seconds.
//! A long list is therefore split into several command buffers, each far shorter than that. The run time of a kernel is
//! not known in advance, so it is estimated from the bytes of its bindings and its threads, or given by the caller, and
//! the budget has a margin for kernels that compute a hundred times longer than they load. A single launch cannot be
//! split here: a kernel that alone exceeds the watchdog's limit ends with a timeout. Callers launch such a kernel in
//! bands of its grid.

use crate::commands::traffic;
use crate::driver::Command;

/// Number of commands after which a command buffer ends at the next barrier. A launch costs the GPU at least a few
/// microseconds and a command buffer tens of them, so splitting costs a few per cent at
/// worst; and the GPU starts on the first command buffer while the next is still being encoded.
const MAX_COMMANDS: u32 = 512;

/// Work in bytes after which a command buffer ends at the next barrier: 16 GiB take 0.3 s at the
/// 50 GB/s of the slowest supported GPU.
const MAX_WORK_BYTES: u64 = 1 << 34;

/// Work of one thread in bytes, in addition to the bytes of the bindings. For a compute-bound kernel, the grid is a
/// better estimate than the buffers.
const WORK_BYTES_PER_THREAD: u64 = 64;

/// Floating-point operations of a matrix product that count as one byte: what the slowest GPU computes in the time in
/// which it moves a byte.
const FLOPS_PER_WORK_BYTE: u64 = 25;

/// Factor by which a command buffer may exceed the budget while there is no barrier: commands between
/// barriers may run concurrently, and a split would prevent that.
const MAX_OVERRUN_FACTOR: u32 = 2;

/// Cost of a command, for splitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandCost {
    /// Work in bytes.
    Work(u64),
    /// A barrier, where a split costs nothing.
    Barrier,
    /// No work for the GPU.
    Free,
}

impl CommandCost {
    pub(super) fn of(command: &Command) -> Self {
        let (read, written) = traffic(command);
        let bytes = read.saturating_add(written);
        match command {
            Command::Barrier => Self::Barrier,
            Command::PushGroup(_) | Command::PopGroup => Self::Free,
            Command::Dispatch(dispatch) => {
                let threads = dispatch.grid.total().map_or(u64::MAX, |t| t as u64);
                let guess = bytes.saturating_add(threads.saturating_mul(WORK_BYTES_PER_THREAD));
                Self::Work(guess.max(dispatch.work))
            }
            Command::Product(product) => {
                let sums = product.result.rows as u64 * product.result.columns as u64;
                let flops = sums.saturating_mul(2 * product.depth() as u64);
                Self::Work(bytes.saturating_add(flops / FLOPS_PER_WORK_BYTE))
            }
            _ => Self::Work(bytes),
        }
    }
}

/// Measures the current command buffer.
#[derive(Debug, Default)]
pub(super) struct Meter {
    commands: u32,
    work: u64,
}

impl Meter {
    /// Counts a command; true if a new command buffer must begin before it.
    pub(super) fn split_before(&mut self, cost: CommandCost) -> bool {
        let split = match cost {
            CommandCost::Free => false,
            CommandCost::Barrier => self.commands >= MAX_COMMANDS || self.work >= MAX_WORK_BYTES,
            CommandCost::Work(more) => {
                self.commands >= MAX_COMMANDS * MAX_OVERRUN_FACTOR
                    || (self.commands > 0
                        && self.work.saturating_add(more)
                            > MAX_WORK_BYTES * u64::from(MAX_OVERRUN_FACTOR))
            }
        };
        if split {
            *self = Self::default();
        }
        if let CommandCost::Work(more) = cost {
            self.commands += 1;
            self.work = self.work.saturating_add(more);
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::Access;
    use crate::driver::{Binding, DispatchCommand, Region, Resource};
    use crate::{CompileOptions, Family, Size, StorageMode, noop};

    fn splits(costs: impl IntoIterator<Item = CommandCost>) -> Vec<usize> {
        let mut meter = Meter::default();
        let split = |(i, cost)| meter.split_before(cost).then_some(i);
        costs.into_iter().enumerate().filter_map(split).collect()
    }

    #[test]
    fn short_work_stays_in_one_command_buffer() {
        let costs = [
            CommandCost::Work(1000),
            CommandCost::Barrier,
            CommandCost::Free,
        ]
        .repeat(150);
        assert_eq!(splits(costs), [0_usize; 0]);
    }

    #[test]
    fn many_commands_are_split_at_the_first_barrier_past_the_budget() {
        let mut costs = vec![CommandCost::Work(1); MAX_COMMANDS as usize];
        costs.extend([
            CommandCost::Work(1),
            CommandCost::Free,
            CommandCost::Barrier,
            CommandCost::Work(1),
        ]);
        assert_eq!(splits(costs), [MAX_COMMANDS as usize + 2]);
    }

    #[test]
    fn without_barriers_lists_are_split_at_twice_the_budget() {
        let limit = (MAX_COMMANDS * MAX_OVERRUN_FACTOR) as usize;
        assert_eq!(
            splits(vec![CommandCost::Work(1); 2 * limit + 1]),
            [limit, 2 * limit]
        );
    }

    #[test]
    fn heavy_commands_are_split_by_their_work() {
        let heavy = CommandCost::Work(MAX_WORK_BYTES / 2);
        let costs = [heavy, CommandCost::Barrier].repeat(5);
        // Two of them fill the budget; the split is at the barrier after the second.
        assert_eq!(splits(costs), [3, 7]);
        assert_eq!(splits(vec![heavy; 9]), [4, 8]);
    }

    #[test]
    fn a_launch_that_exceeds_the_budget_gets_its_own_command_buffer() {
        let costs = [
            CommandCost::Work(u64::MAX),
            CommandCost::Work(u64::MAX),
            CommandCost::Work(1),
        ];
        assert_eq!(splits(costs), [1, 2]);
    }

    #[test]
    fn work_is_estimated_from_bytes_and_threads_or_given_by_the_caller() -> crate::Result<()> {
        let device = noop::device(Family::Apple7);
        let buffer = device.buffer(1000, StorageMode::Shared)?;
        let pipeline = device
            .library_contained("", &CompileOptions::default())?
            .pipeline("k")?;
        let region = Region {
            buffer: buffer.inner.raw.clone(),
            offset: 0,
            length: 1000,
        };
        let launch = |work| {
            Command::Dispatch(Arc::new(DispatchCommand {
                pipeline: pipeline.raw.clone(),
                bindings: vec![Binding {
                    index: 0,
                    resource: Resource::Buffer {
                        region: region.clone(),
                        access: Access::ReadWrite,
                    },
                }],
                threadgroup_memory: Vec::new(),
                grid: Size::x(10),
                threadgroup: Size::x(1),
                work,
                label: None,
            }))
        };
        assert_eq!(
            CommandCost::of(&launch(0)),
            CommandCost::Work(2 * 1000 + 10 * WORK_BYTES_PER_THREAD)
        );
        assert_eq!(
            CommandCost::of(&launch(9)),
            CommandCost::Work(2 * 1000 + 10 * WORK_BYTES_PER_THREAD)
        );
        assert_eq!(CommandCost::of(&launch(10_000)), CommandCost::Work(10_000));
        let fill = Command::Fill {
            target: region,
            value: 0,
        };
        assert_eq!(CommandCost::of(&fill), CommandCost::Work(1000));
        assert_eq!(CommandCost::of(&Command::Barrier), CommandCost::Barrier);
        assert_eq!(CommandCost::of(&Command::PopGroup), CommandCost::Free);
        Ok(())
    }
}
