//! The memory that every load and store accesses: handles become bindings of a kernel.

use std::collections::BTreeMap;

use super::device_memory::Space;
use super::error::{ProgramError, Result};
use super::flow::{Action, Flow};
use super::instruction::Instruction;
use super::known::{self, Known, Origin};
use super::operand::{Address, Register};
use super::value::Value;

/// Memory that a kernel accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBinding {
    pub(crate) space: Space,
    /// Where its handle comes from.
    pub(crate) handle: Origin,
    pub(crate) is_written: bool,
}

/// Handles that are equal in a launch: the origin that stands for each.
pub(crate) type Aliases = BTreeMap<Register, Origin>;

/// Finds the binding of every access, and returns all bindings.
///
/// # Errors
/// [`ProgramError::Unsupported`] for a handle that is not known before the launch starts.
pub(crate) fn bind(
    flow: &mut Flow,
    instructions: &[Instruction],
    start: &Known,
    aliases: &Aliases,
) -> Result<Vec<MemoryBinding>> {
    let states = known::solve(flow, instructions, start.clone());
    let mut bindings: Vec<MemoryBinding> = Vec::new();
    for block in flow.reverse_postorder() {
        let Some(mut known) = states[block].clone() else {
            continue;
        };
        for action in &mut flow.blocks[block].actions {
            let Action::Run { index, binding, .. } = action else {
                continue;
            };
            let instruction = &instructions[*index];
            if let Some(accessed) = accessed(instruction) {
                let handle = match accessed.handle {
                    Handle::Constant(value) => Origin::Constant(Value::u64(value)),
                    Handle::Register(register) => handle(*index, instruction, &known, register)?,
                };
                let handle = match handle {
                    Origin::Initial(register) => aliases.get(&register).copied().unwrap_or(handle),
                    _ => handle,
                };
                let found = bindings
                    .iter()
                    .position(|b| b.space == accessed.space && b.handle == handle);
                let at = found.unwrap_or_else(|| {
                    bindings.push(MemoryBinding {
                        space: accessed.space,
                        handle,
                        is_written: false,
                    });
                    bindings.len() - 1
                });
                bindings[at].is_written |= accessed.is_write;
                *binding = Some(at);
            }
            known::step(&mut known, *index, instruction);
        }
    }
    Ok(bindings)
}

/// The origin of a handle in a register.
pub(crate) fn handle(
    index: usize,
    instruction: &Instruction,
    known: &Known,
    register: Register,
) -> Result<Origin> {
    match known.get(&register) {
        Some(origin) if !matches!(origin, Origin::Position(_)) => Ok(*origin),
        _ => Err(ProgramError::Unsupported {
            index,
            mnemonic: instruction.mnemonic(),
            reason: format!(
                "the handle in {register} is computed, and a compiler must know it: use a constant or an initial register"
            ),
        }),
    }
}

struct Accessed {
    space: Space,
    handle: Handle,
    is_write: bool,
}

enum Handle {
    Constant(u64),
    Register(Register),
}

fn accessed(instruction: &Instruction) -> Option<Accessed> {
    let of_address = |address| match address {
        Address::BufferOffset { handle, .. } | Address::BufferRegister { handle, .. } => {
            Handle::Constant(handle)
        }
        Address::PhiCoordinate { .. } => Handle::Constant(0),
        Address::RegisterIndirect { base, .. } => Handle::Register(base),
        Address::RegisterIndirectComputed { handle_reg, .. } => Handle::Register(handle_reg),
    };
    let (space, handle, is_write) = match *instruction {
        Instruction::Ldg { address, .. } => (Space::Buffer, of_address(address), false),
        Instruction::Stg { address, .. } => (Space::Buffer, of_address(address), true),
        Instruction::PoolLoad { pool, .. } => (Space::Pool, Handle::Register(pool), false),
        Instruction::PoolStore { pool, .. } => (Space::Pool, Handle::Register(pool), true),
        _ => return None,
    };
    Some(Accessed {
        space,
        handle,
        is_write,
    })
}
