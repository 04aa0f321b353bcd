//! Splits a program at the instructions that run once per launch: kernel, engine op, kernel.

use super::error::{ProgramError, Result};
use super::flow::{Action, BlockId, End, Flow, FlowBlock};
use super::host::runs_once;
use super::instruction::Instruction;
use super::known::{self, Known, Origin};
use super::liveness::{self, LiveSet};
use super::operand::Register;
use super::{access, tensor_op};

/// A part of a program.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// Instructions of lanes.
    Lanes {
        flow: Flow,
        /// What is known at its start.
        start: Known,
        /// What it reads that was written before it.
        live: LiveSet,
    },
    /// An instruction that runs once.
    Once(OnceInstruction),
}

/// An instruction that runs once per launch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OnceInstruction {
    /// Index of the instruction.
    pub(crate) index: usize,
    /// Handles that it reads, inputs first, then the output.
    pub(crate) handles: Vec<Origin>,
}

/// Registers with handles that an instruction reads when it runs once: inputs, then the output.
fn handle_registers(instruction: &Instruction) -> Vec<Register> {
    match (instruction, tensor_op::buffers(instruction)) {
        (_, Some(Ok(buffers))) => {
            let inputs = buffers.inputs.iter().map(|(register, _)| *register);
            inputs.chain([buffers.output.0]).collect()
        }
        (Instruction::PoolFree { handle }, _) => vec![*handle],
        _ => Vec::new(),
    }
}

/// Splits a program into pieces that run one after the other.
///
/// # Errors
/// [`ProgramError::Unsupported`] for an instruction that not every lane reaches exactly once, and for values that it
/// would have to keep for every lane.
pub(crate) fn split(
    mut flow: Flow,
    instructions: &[Instruction],
    mut start: Known,
) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while let Some((block, action, index)) = first_once(&flow, instructions) {
        let unsupported = |reason: &str| ProgramError::Unsupported {
            index,
            mnemonic: instructions[index].mnemonic(),
            reason: reason.to_owned(),
        };
        if flow.reachable(flow.successors(block), |_| false)[block] {
            return Err(unsupported(
                "it runs once per launch, and must not be in a loop",
            ));
        }
        let without = flow.reachable([0], |b| b == block);
        let ends = |b: BlockId| flow.blocks[b].end.successors().is_empty();
        if (0..flow.blocks.len()).any(|b| without[b] && ends(b)) {
            return Err(unsupported(
                "it runs once per launch, and every lane must reach it",
            ));
        }
        let states = known::solve(&flow, instructions, start.clone());
        let mut known = known::before(&flow, instructions, &states, (block, action));
        let handles = handle_registers(&instructions[index])
            .into_iter()
            .map(|register| access::handle(index, &instructions[index], &known, register))
            .collect::<Result<_>>()?;
        known::step(&mut known, index, &instructions[index]);

        let mut rest = flow.clone();
        let entered = rest.push(FlowBlock {
            actions: flow.blocks[block].actions[action + 1..].to_vec(),
            ..flow.blocks[block].clone()
        });
        rest.blocks[0] = FlowBlock::new(End::Jump(entered));
        rest.compact();
        flow.blocks[block].actions.truncate(action);
        flow.blocks[block].end = End::Exit;
        flow.compact();
        check_kept(&flow, &rest, instructions, &known, index)?;
        push_lanes(&mut pieces, flow, instructions, start);
        pieces.push(Piece::Once(OnceInstruction { index, handles }));
        (flow, start) = (rest, known);
    }
    push_lanes(&mut pieces, flow, instructions, start);
    Ok(pieces)
}

/// The first instruction that runs once: its block, its action and its index.
fn first_once(flow: &Flow, instructions: &[Instruction]) -> Option<(BlockId, usize, usize)> {
    flow.reverse_postorder().into_iter().find_map(|block| {
        let actions = flow.blocks[block].actions.iter().enumerate();
        actions.into_iter().find_map(|(at, action)| match action {
            Action::Run { index, .. } if runs_once(&instructions[*index]) => {
                Some((block, at, *index))
            }
            _ => None,
        })
    })
}

/// Adds the instructions of lanes, unless they have no effect.
fn push_lanes(pieces: &mut Vec<Piece>, flow: Flow, instructions: &[Instruction], start: Known) {
    let has_effect = flow.any(instructions, |instruction| {
        !matches!(
            instruction,
            Instruction::MovImm { .. } | Instruction::Mov { .. }
        )
    });
    let has_branch = flow
        .blocks
        .iter()
        .any(|b| !matches!(b.end, End::Jump(_) | End::Exit));
    if has_effect || has_branch {
        let live = liveness::live_at_entry(&flow, instructions);
        pieces.push(Piece::Lanes { flow, start, live });
    }
}

/// Checks that nothing which differs between lanes is kept across an instruction that runs once.
fn check_kept(
    before: &Flow,
    rest: &Flow,
    instructions: &[Instruction],
    known: &Known,
    index: usize,
) -> Result<()> {
    let kept = |what: String| ProgramError::Unsupported {
        index,
        mnemonic: instructions[index].mnemonic(),
        reason: format!(
            "{what} would have to be kept across it, which only constants and initial registers are"
        ),
    };
    let live = liveness::live_at_entry(rest, instructions);
    if let Some(register) = live.registers().find(|r| !known.contains_key(r)) {
        return Err(kept(register.to_string()));
    }
    if let Some(predicate) = live.predicates().next() {
        return Err(kept(predicate.to_string()));
    }
    let advances = |i: &Instruction| matches!(i, Instruction::PhaseAdv { .. });
    if live.has_phase && before.any(instructions, advances) {
        return Err(kept("the phase".to_owned()));
    }
    let stores = |i: &Instruction| matches!(i, Instruction::Sts { .. });
    let loads = |i: &Instruction| matches!(i, Instruction::Lds { .. });
    if before.any(instructions, stores) && rest.any(instructions, loads) {
        return Err(kept("shared memory".to_owned()));
    }
    Ok(())
}
