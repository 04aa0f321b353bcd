//! Basic blocks of a program, in the order in which lanes that wait at them run.

use super::lowering::{ColumnId, Operations};
use crate::program::flow::reverse_postorder;
use crate::program::{Instruction, Program, host};

/// A lane that has ended, in place of the number of a block.
pub(super) const ENDED: u32 = u32::MAX;

/// Instructions that lanes run one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct BasicBlock {
    /// The first instruction.
    pub(super) first: usize,
    /// The first instruction behind the block; what controls the flow is the last of the block.
    pub(super) end: usize,
    pub(super) exit: BlockExit,
}

/// What lanes do at the end of a block. Blocks are numbered in the order in which they run; [`ENDED`] ends lanes.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockExit {
    Jump(u32),
    Branch {
        predicate: ColumnId,
        then: u32,
        otherwise: u32,
    },
    Loop {
        counter: ColumnId,
        body: u32,
        after: u32,
    },
    Call {
        target: u32,
        back: u32,
    },
    Return,
    /// Waits, at the last instruction of the block, for the other lanes of the block or of the launch.
    Wait,
}

/// The basic blocks of a program: each forward edge leads to a higher number, so that lanes at a lower number go on until
/// they reach the others, or pass them in a loop.
#[derive(Debug)]
pub(super) struct BlockOrder {
    /// Ranges of instructions, in order.
    ranges: Vec<(usize, usize)>,
    /// Number of the block that starts at an instruction; [`ENDED`] where none does, and behind the last instruction.
    pub(super) starts: Vec<u32>,
    /// Lanes may run an instruction more than once.
    pub(super) has_cycles: bool,
}

/// The instruction that a label stands for.
fn target(program: &Program, instruction: &Instruction) -> usize {
    let label = instruction.label();
    label
        .and_then(|label| program.resolve_label(label))
        .unwrap_or(program.len())
}

/// Instructions that may follow an instruction; for a call, also the one that the call returns to.
fn successors(program: &Program, index: usize) -> [Option<usize>; 2] {
    let instruction = &program.instructions[index];
    let next = index + 1;
    match instruction {
        Instruction::Exit {} | Instruction::Ret {} => [None, None],
        Instruction::Bra { pred: None, .. } => [Some(target(program, instruction)), None],
        Instruction::Bra { .. } | Instruction::Call { .. } | Instruction::Loop { .. } => {
            [Some(target(program, instruction)), Some(next)]
        }
        _ => [Some(next), None],
    }
}

/// Returns `true` for the last instruction of a block.
fn ends_block(instruction: &Instruction) -> bool {
    matches!(
        instruction,
        Instruction::Exit {} | Instruction::Ret {} | Instruction::BarSync { .. }
    ) || instruction.label().is_some()
        || host::runs_once(instruction)
}

impl BlockOrder {
    pub(super) fn of(program: &Program) -> Self {
        let len = program.len();
        let mut is_leader = vec![false; len + 1];
        is_leader[0] = true;
        for (index, instruction) in program.instructions.iter().enumerate() {
            if ends_block(instruction) {
                is_leader[index + 1] = true;
                for next in successors(program, index).into_iter().flatten() {
                    is_leader[next] = true;
                }
            }
        }
        // The blocks as they follow each other, and the number there of each block by its first instruction.
        let leaders: Vec<_> = (0..len).filter(|&i| is_leader[i]).collect();
        let ends = leaders.iter().copied().skip(1).chain([len]);
        let ranges: Vec<_> = leaders.iter().copied().zip(ends).collect();
        let successors = ranges.iter().map(|&(_, end)| {
            let next = successors(program, end - 1).into_iter().flatten();
            let mut next: Vec<_> = next
                .filter_map(|first| leaders.binary_search(&first).ok())
                .collect();
            // The code behind a loop comes after its body.
            next.sort_unstable();
            next
        });
        let successors: Vec<_> = successors.collect();
        let order = reverse_postorder(&successors, 0);
        let mut starts = vec![ENDED; len + 1];
        let mut ranks = vec![0; ranges.len()];
        for (number, &block) in order.iter().enumerate() {
            starts[ranges[block].0] = number as u32;
            ranks[block] = number;
        }
        let is_backward = |block: &usize| {
            let next = &successors[*block];
            next.iter().any(|&to| ranks[to] <= ranks[*block])
        };
        let has_cycles = order.iter().any(is_backward);
        let has_calls = program
            .instructions
            .iter()
            .any(|i| matches!(i, Instruction::Call { .. }));
        Self {
            ranges: order.iter().map(|&block| ranges[block]).collect(),
            starts,
            has_cycles: has_cycles || has_calls,
        }
    }

    /// The instructions that can be reached.
    pub(super) fn reachable(&self, len: usize) -> Vec<bool> {
        let mut reachable = vec![false; len];
        for &(first, end) in &self.ranges {
            reachable[first..end].fill(true);
        }
        reachable
    }

    /// The blocks, with what follows them.
    pub(super) fn blocks(&self, program: &Program, operations: &Operations) -> Vec<BasicBlock> {
        let exit = |end: usize| {
            let instruction = &program.instructions[end - 1];
            let to = self.starts[target(program, instruction)];
            let next = self.starts[end];
            match instruction {
                Instruction::Exit {} => BlockExit::Jump(ENDED),
                Instruction::Ret {} => BlockExit::Return,
                Instruction::Bra { pred: None, .. } => BlockExit::Jump(to),
                Instruction::Bra {
                    pred: Some(pred), ..
                } => BlockExit::Branch {
                    predicate: operations.predicate_column(*pred).unwrap_or_default(),
                    then: to,
                    otherwise: next,
                },
                Instruction::Call { .. } => BlockExit::Call {
                    target: to,
                    back: next,
                },
                Instruction::Loop { count, .. } => BlockExit::Loop {
                    counter: operations.counter_column(*count).unwrap_or_default(),
                    body: to,
                    after: next,
                },
                Instruction::BarSync { .. } => BlockExit::Wait,
                other if host::runs_once(other) => BlockExit::Wait,
                _ => BlockExit::Jump(next),
            }
        };
        let ranges = self.ranges.iter();
        ranges
            .map(|&(first, end)| BasicBlock {
                first,
                end,
                exit: exit(end),
            })
            .collect()
    }
}
