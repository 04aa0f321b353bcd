//! Where a list of commands is cut into command buffers.
//!
//! The system stops a command buffer that keeps the GPU for seconds: its watchdog protects the display.
//! A long list therefore becomes several command buffers, each far shorter than that. Nobody knows
//! beforehand how long a kernel runs, so work is measured in the bytes its bindings cover and in
//! its threads, or by what the caller says it costs, and the budget leaves room for kernels that compute a
//! hundred times longer than they load. What cannot be cut here is a single launch: a kernel that alone runs past
//! the watchdog ends with a timeout. Callers launch such a kernel in bands of its grid.

use crate::commands::traffic;
use crate::driver::Command;

/// Commands after which a command buffer ends at the next barrier. A launch costs the GPU a few
/// microseconds at least and a command buffer tens of them, so the cut itself costs a few per cent at
/// worst; and the GPU starts on the first part while the rest is still being encoded.
const COMMANDS: u32 = 512;

/// Work after which a command buffer ends at the next barrier: 16 GiB moved, which takes 0.3 s at the
/// 50 GB/s of the slowest GPU this driver accepts.
const WORK: u64 = 1 << 34;

/// Bytes of work that one thread counts for, on top of the bytes it is bound to. The grid of a launch
/// says more about a kernel that computes much on little data than its buffers do.
const THREAD: u64 = 64;

/// Operations of a product that count as a byte: what the slowest GPU does in the time of one.
const FLOPS: u64 = 25;

/// How far past the budget a command buffer may grow while no barrier comes: commands between
/// barriers may run at the same time, and a cut there would take that from them.
const OVERDRAFT: u32 = 2;

/// What a command means for the place of the next cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something to do, and how much.
    Work(u64),
    /// A place where a cut costs nothing.
    Barrier,
    /// Nothing the GPU has to do.
    Free,
}

impl Step {
    pub(super) fn of(command: &Command) -> Self {
        let (read, written) = traffic(command);
        let bytes = read.saturating_add(written);
        match command {
            Command::Barrier => Self::Barrier,
            Command::PushGroup(_) | Command::PopGroup => Self::Free,
            Command::Dispatch(dispatch) => {
                let threads = dispatch.grid.total().map_or(u64::MAX, |t| t as u64);
                let guess = bytes.saturating_add(threads.saturating_mul(THREAD));
                Self::Work(guess.max(dispatch.work))
            }
            Command::Product(product) => {
                let sums = product.result.rows as u64 * product.result.columns as u64;
                let flops = sums.saturating_mul(2 * product.depth() as u64);
                Self::Work(bytes.saturating_add(flops / FLOPS))
            }
            _ => Self::Work(bytes),
        }
    }
}

/// Measures what has gone into the current command buffer.
#[derive(Debug, Default)]
pub(super) struct Meter {
    commands: u32,
    work: u64,
}

impl Meter {
    /// Counts a command; true if a new command buffer must begin before it.
    pub(super) fn split_before(&mut self, step: Step) -> bool {
        let split = match step {
            Step::Free => false,
            Step::Barrier => self.commands >= COMMANDS || self.work >= WORK,
            Step::Work(more) => {
                self.commands >= COMMANDS * OVERDRAFT
                    || (self.commands > 0
                        && self.work.saturating_add(more) > WORK * u64::from(OVERDRAFT))
            }
        };
        if split {
            *self = Self::default();
        }
        if let Step::Work(more) = step {
            self.commands += 1;
            self.work = self.work.saturating_add(more);
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::driver::{Binding, DispatchCommand, Region, Resource};
    use crate::{CompileOptions, Family, Size, StorageMode, noop};
    use std::sync::Arc;

    fn cuts(steps: impl IntoIterator<Item = Step>) -> Vec<usize> {
        let mut meter = Meter::default();
        let cut = |(i, step)| meter.split_before(step).then_some(i);
        steps.into_iter().enumerate().filter_map(cut).collect()
    }

    #[test]
    fn short_work_stays_in_one_command_buffer() {
        let steps = [Step::Work(1000), Step::Barrier, Step::Free].repeat(150);
        assert_eq!(cuts(steps), [0_usize; 0]);
    }

    #[test]
    fn many_commands_are_cut_at_the_first_barrier_past_the_budget() {
        let mut steps = vec![Step::Work(1); COMMANDS as usize];
        steps.extend([Step::Work(1), Step::Free, Step::Barrier, Step::Work(1)]);
        assert_eq!(cuts(steps), [COMMANDS as usize + 2]);
    }

    #[test]
    fn without_barriers_the_cut_comes_at_twice_the_budget() {
        let most = (COMMANDS * OVERDRAFT) as usize;
        assert_eq!(cuts(vec![Step::Work(1); 2 * most + 1]), [most, 2 * most]);
    }

    #[test]
    fn heavy_commands_are_cut_by_their_work() {
        let heavy = Step::Work(WORK / 2);
        let steps = [heavy, Step::Barrier].repeat(5);
        // Two of them fill the budget; the barrier after the second is the place.
        assert_eq!(cuts(steps), [3, 7]);
        assert_eq!(cuts(vec![heavy; 9]), [4, 8]);
    }

    #[test]
    fn a_launch_of_any_size_gets_a_command_buffer_of_its_own() {
        let steps = [Step::Work(u64::MAX), Step::Work(u64::MAX), Step::Work(1)];
        assert_eq!(cuts(steps), [1, 2]);
    }

    #[test]
    fn work_is_the_bytes_bound_and_the_threads_launched_or_what_the_caller_says()
    -> crate::Result<()> {
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
        assert_eq!(Step::of(&launch(0)), Step::Work(2 * 1000 + 10 * THREAD));
        assert_eq!(Step::of(&launch(9)), Step::Work(2 * 1000 + 10 * THREAD));
        assert_eq!(Step::of(&launch(10_000)), Step::Work(10_000));
        let fill = Command::Fill {
            target: region,
            value: 0,
        };
        assert_eq!(Step::of(&fill), Step::Work(1000));
        assert_eq!(Step::of(&Command::Barrier), Step::Barrier);
        assert_eq!(Step::of(&Command::PopGroup), Step::Free);
        Ok(())
    }
}
