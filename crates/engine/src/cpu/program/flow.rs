//! Basic blocks of a program, in the order in which lanes that wait at them run.

use super::lowering::{ColumnId, Operations};
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
        let end_of = |first: usize| (first + 1..len).find(|&i| is_leader[i]).unwrap_or(len);

        // Depth first, higher instructions first: the code behind a loop gets a higher number than its body.
        let mut state = vec![VisitState::New; len];
        let mut postorder = Vec::new();
        let mut has_cycles = false;
        let mut open = Vec::new();
        if len > 0 {
            open.push((0, end_of(0), false));
        }
        while let Some((first, end, is_done)) = open.pop() {
            if is_done {
                state[first] = VisitState::Done;
                postorder.push((first, end));
                continue;
            }
            if state[first] != VisitState::New {
                continue;
            }
            state[first] = VisitState::Open;
            open.push((first, end, true));
            let mut next = successors(program, end - 1);
            next.sort_unstable();
            // The last that is pushed is visited first.
            for next in next.into_iter().flatten().filter(|&n| n < len) {
                match state[next] {
                    VisitState::New => open.push((next, end_of(next), false)),
                    VisitState::Open => has_cycles = true,
                    VisitState::Done => {}
                }
            }
        }
        postorder.reverse();
        let mut starts = vec![ENDED; len + 1];
        for (number, &(first, _)) in postorder.iter().enumerate() {
            starts[first] = number as u32;
        }
        let has_calls = program
            .instructions
            .iter()
            .any(|i| matches!(i, Instruction::Call { .. }));
        Self {
            ranges: postorder,
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    New,
    Open,
    Done,
}
