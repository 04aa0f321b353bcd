//! From a program to kernels with structured control flow, by all passes in order.

use std::collections::{BTreeMap, BTreeSet};

use super::access::{self, Aliases, MemoryBinding};
use super::error::{ProgramError, Result};
use super::flow::{Action, Flow, FlowBlock, Lanes};
use super::instruction::Instruction;
use super::known::{self, Known, Origin};
use super::operand::{Operand, Predicate, Register};
use super::stage::{self, OnceInstruction, Piece};
use super::structure::{self, Statement};
use super::verify::State;
use super::{Program, inline, irreducible, liveness, uniform};
use crate::DType;

/// A program as kernels and instructions that run once, in order.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub(crate) stages: Vec<Stage>,
    /// Registers that a launch must set, and the first instruction that reads each.
    pub(crate) initial_registers: Vec<(Register, usize)>,
}

/// A part of a program that runs as a whole.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Instructions of lanes.
    Kernel(Box<KernelBody>),
    /// An instruction that runs once.
    Once(OnceInstruction),
}

/// The instructions of lanes, with structured control flow.
#[derive(Clone, Debug)]
pub(crate) struct KernelBody {
    pub(crate) flow: Flow,
    pub(crate) statements: Vec<Statement>,
    pub(crate) bindings: Vec<MemoryBinding>,
    /// Registers that have a value at the start.
    pub(crate) start: Vec<(Register, Origin)>,
    /// Registers and the types that they are used with.
    pub(crate) variables: BTreeSet<(Register, DType)>,
    pub(crate) predicates: BTreeSet<Predicate>,
    /// Number of selectors.
    pub(crate) selectors: usize,
    /// Whether lanes that have ended must reach barriers.
    pub(crate) has_barriers: bool,
}

/// Maximum number of instructions of a kernel, with calls inlined: the compilers behind this one need minutes for more.
const MAX_KERNEL_INSTRUCTIONS: usize = 1 << 14;

/// Lowers a validated program. Initial registers that are aliases have equal values in the launch.
///
/// # Errors
/// Those of [`Program::verify`], and [`Unsupported`](super::ProgramError::Unsupported) for what cannot be compiled.
pub(crate) fn lower(program: &Program, aliases: &Aliases) -> Result<Lowered> {
    let instructions = &program.instructions[..];
    let flow = inline::flow(program)?;
    let initial_registers = initial_registers(&flow, instructions);
    let registers: Vec<_> = initial_registers.iter().map(|(r, _)| *r).collect();
    verify(&flow, instructions, &registers)?;
    let start = known::at_start(registers);
    let stages = stage::split(flow, instructions, start)?
        .into_iter()
        .map(|piece| match piece {
            Piece::Once(once) => Ok(Stage::Once(once)),
            Piece::Lanes { flow, start, live } => {
                let live: Known = live
                    .registers()
                    .filter_map(|r| Some((r, *start.get(&r)?)))
                    .collect();
                let body = kernel_body(flow, instructions, live, aliases)?;
                Ok(Stage::Kernel(Box::new(body)))
            }
        })
        .collect::<Result<_>>()?;
    Ok(Lowered {
        stages,
        initial_registers,
    })
}

/// Registers that are read as handles or numbers before they are written, and where.
fn initial_registers(flow: &Flow, instructions: &[Instruction]) -> Vec<(Register, usize)> {
    let live = liveness::live_at_entry(flow, instructions);
    let mut read = BTreeMap::new();
    for block in flow.reverse_postorder() {
        for index in flow.blocks[block].all_instructions() {
            liveness::for_each_read(&instructions[index], |register, dtype| {
                if dtype == DType::U64 {
                    read.entry(register).or_insert(index);
                }
            });
        }
    }
    let is_special = |r: Register| Register::SPECIAL.iter().any(|(s, ..)| *s == r);
    read.into_iter()
        .filter(|(r, _)| live.contains(*r) && !is_special(*r))
        .collect()
}

/// Checks the types of registers, with every call on its own.
fn verify(flow: &Flow, instructions: &[Instruction], initial: &[Register]) -> Result<()> {
    let states = flow.solve(
        State::at_start(initial),
        |block, state| {
            for index in flow.blocks[block].all_instructions() {
                // What is wrong is reported below, in order.
                let _ = state.step(index, &instructions[index]);
            }
        },
        State::join,
    );
    for block in flow.reverse_postorder() {
        if let Some(mut state) = states[block].clone() {
            for index in flow.blocks[block].all_instructions() {
                state.step(index, &instructions[index])?;
            }
        }
    }
    Ok(())
}

fn kernel_body(
    mut flow: Flow,
    instructions: &[Instruction],
    start: Known,
    aliases: &Aliases,
) -> Result<KernelBody> {
    let len: usize = flow.blocks.iter().map(|b| b.actions.len()).sum();
    if len > MAX_KERNEL_INSTRUCTIONS {
        let index = flow.blocks.iter().flat_map(FlowBlock::instructions).next();
        let index = index.unwrap_or(0);
        return Err(ProgramError::Unsupported {
            index,
            mnemonic: instructions[index].mnemonic(),
            reason: format!(
                "a kernel of {len} instructions, with calls inlined, exceeds the {MAX_KERNEL_INSTRUCTIONS} that are compiled; use loops"
            ),
        });
    }
    let bindings = access::bind(&mut flow, instructions, &start, aliases)?;
    let mut selectors = 0;
    irreducible::make_reducible(&mut flow, &mut selectors);
    let has_barriers = uniform::prepare_barriers(&mut flow, instructions, &bindings)?;
    irreducible::make_reducible(&mut flow, &mut selectors);
    flow.compact();
    count_iterations(&mut flow);
    let statements = structure::structure(&flow)?;
    let mut body = KernelBody {
        statements,
        bindings,
        start: start.into_iter().collect(),
        variables: BTreeSet::new(),
        predicates: BTreeSet::new(),
        selectors,
        has_barriers,
        flow,
    };
    body.find_variables(instructions);
    Ok(body)
}

/// Counts the iterations of every loop that does not count them yet.
fn count_iterations(flow: &mut Flow) {
    let dominators = flow.dominators();
    for &from in &dominators.order {
        for to in flow.successors(from) {
            let is_back_edge = dominators.rank[to] <= dominators.rank[from];
            let block = &mut flow.blocks[to];
            if is_back_edge && !matches!(block.actions.first(), Some(Action::Count { .. })) {
                let index = block.position();
                block.actions.insert(0, Action::Count { index });
            }
        }
    }
}

impl KernelBody {
    fn find_variables(&mut self, instructions: &[Instruction]) {
        for &(register, origin) in &self.start {
            self.variables.insert((register, origin.dtype()));
        }
        for block in self.flow.reverse_postorder() {
            for index in self.flow.blocks[block].all_instructions() {
                let instruction = &instructions[index];
                liveness::for_each_read(instruction, |register, dtype| {
                    self.variables.insert((register, dtype));
                });
                instruction.for_each_operand(|_, operand| match operand {
                    Operand::Write(register, dtype) => {
                        self.variables.insert((register, dtype));
                    }
                    Operand::Test(p) | Operand::Set(p) | Operand::Guard(Some(p)) => {
                        self.predicates.insert(p);
                    }
                    _ => {}
                });
            }
        }
    }

    /// Instructions that can be reached.
    pub(crate) fn instructions(&self) -> BTreeSet<usize> {
        let blocks = self.flow.reverse_postorder().into_iter();
        blocks
            .flat_map(|b| self.flow.blocks[b].all_instructions().collect::<Vec<_>>())
            .collect()
    }

    /// Returns `true` if a loop in which all lanes are together counts its iterations.
    pub(crate) fn has_uniform_loop(&self) -> bool {
        self.counts(|lanes| lanes == Lanes::Uniform)
    }

    /// Returns `true` if another loop counts its iterations.
    pub(crate) fn counts_steps(&self) -> bool {
        self.counts(|lanes| lanes != Lanes::Uniform)
    }

    fn counts(&self, condition: impl Fn(Lanes) -> bool) -> bool {
        let is_count = |a: &Action| matches!(a, Action::Count { .. });
        let mut blocks = self.flow.blocks.iter();
        blocks.any(|b| condition(b.lanes) && b.actions.iter().any(is_count))
    }
}

impl Origin {
    /// Type of the value.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::Constant(value) => value.dtype(),
            Self::Initial(_) | Self::Pool(_) => DType::U64,
            Self::Position(register) => {
                let special = Register::SPECIAL.iter().find(|(r, ..)| *r == register);
                special.map_or(DType::U32, |(_, _, dtype)| *dtype)
            }
        }
    }
}

#[cfg(test)]
mod tests;
