//! Registers whose value a launch knows before it starts: constants, initial registers, handles of pools.

use std::collections::BTreeMap;

use super::flow::{Action, BlockId, Flow};
use super::instruction::Instruction;
use super::liveness::for_each_write;
use super::operand::Register;
use super::value::{self, Value};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A constant.
    Constant(Value),
    /// The value that the launch gives to a register.
    Initial(Register),
    /// The handle of the pool that an instruction allocates.
    Pool(usize),
    /// The position of the lane that a register holds at the start.
    Position(Register),
}

/// Origins of registers at a point of a program. Registers that are not listed have unknown values.
pub(crate) type Known = BTreeMap<Register, Origin>;

/// What is known at the start of a launch with these initial registers.
pub(crate) fn at_start(initial_registers: impl IntoIterator<Item = Register>) -> Known {
    let mut known: Known = initial_registers
        .into_iter()
        .map(|r| (r, Origin::Initial(r)))
        .collect();
    for (register, ..) in Register::SPECIAL {
        known.insert(register, Origin::Position(register));
    }
    known
}

/// What is known at the start of every block that can be reached.
pub(crate) fn solve(flow: &Flow, instructions: &[Instruction], start: Known) -> Vec<Option<Known>> {
    flow.solve(
        start,
        |block, known| {
            for index in flow.blocks[block].all_instructions() {
                step(known, index, &instructions[index]);
            }
        },
        |mine, theirs| {
            let before = mine.len();
            mine.retain(|register, origin| theirs.get(register) == Some(origin));
            mine.len() != before
        },
    )
}

/// What is known in front of an action of a block.
pub(crate) fn before(
    flow: &Flow,
    instructions: &[Instruction],
    states: &[Option<Known>],
    (block, action): (BlockId, usize),
) -> Known {
    let mut known = states[block].clone().unwrap_or_default();
    for action in &flow.blocks[block].actions[..action] {
        if let Action::Run { index, .. } = action {
            step(&mut known, *index, &instructions[*index]);
        }
    }
    known
}

/// Follows an instruction.
pub(crate) fn step(known: &mut Known, index: usize, instruction: &Instruction) {
    let constant = |known: &Known, register| match known.get(&register) {
        Some(Origin::Constant(value)) => Some(*value),
        _ => None,
    };
    let result = match *instruction {
        Instruction::MovImm { dtype, dst, value } => {
            Some((dst, Origin::Constant(Value::from_bits(dtype, value))))
        }
        Instruction::Mov { dst, src, .. } => known.get(&src).map(|origin| (dst, *origin)),
        Instruction::Cvt {
            dst_type, dst, src, ..
        } => constant(known, src)
            .map(|value| (dst, Origin::Constant(value::convert(value, dst_type)))),
        Instruction::PoolAlloc { dst, .. } => Some((dst, Origin::Pool(index))),
        _ => None,
    };
    for_each_write(instruction, |register, _| {
        known.remove(&register);
    });
    known.extend(result);
}
