//! Types of registers at every instruction, for compilers.
//!
//! A register has no type of its own: it holds what was last written. A forward analysis over the flow graph gives every
//! register one type at every instruction, or finds that it may hold several, or none.

use std::collections::VecDeque;

use super::Program;
use super::error::{ProgramError, Result};
use super::instruction::Instruction;
use super::operand::{Operand, Predicate, Register};
use crate::DType;

/// What is known about a register at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeState {
    /// Not written on any path.
    Unwritten,
    /// Written with this type on every path.
    Known(DType),
    /// Written with different types, or on some paths only.
    Conflict,
}

impl TypeState {
    fn meet(self, other: Self) -> Self {
        if self == other { self } else { Self::Conflict }
    }
}

/// Registers and predicates at an instruction.
#[derive(Clone, PartialEq)]
pub(super) struct State {
    registers: Box<[TypeState; 256]>,
    /// Predicates that were written on every path, as bits.
    predicates: u16,
}

impl State {
    pub(super) fn at_start(initial_registers: &[Register]) -> Self {
        let mut registers = Box::new([TypeState::Unwritten; 256]);
        for register in initial_registers {
            registers[usize::from(register.0)] = TypeState::Known(DType::U64);
        }
        for (register, _, dtype) in Register::SPECIAL {
            registers[usize::from(register.0)] = TypeState::Known(dtype);
        }
        Self {
            registers,
            predicates: 0,
        }
    }

    /// Joins a state of another path into this one; returns `true` if that changes it.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.registers.iter_mut().zip(&*other.registers) {
            *mine = mine.meet(*theirs);
        }
        self.predicates &= other.predicates;
        *self != before
    }

    fn read(&self, index: usize, register: Register, expected: DType) -> Result<()> {
        let actual = match self.registers[usize::from(register.0)] {
            TypeState::Known(dtype) if dtype == expected => return Ok(()),
            TypeState::Unwritten => {
                return Err(ProgramError::Uninitialized {
                    index,
                    name: register.to_string(),
                });
            }
            TypeState::Known(dtype) => dtype.to_string(),
            TypeState::Conflict => "different types, or nothing, on different paths".to_owned(),
        };
        Err(ProgramError::TypeMismatch {
            index,
            register,
            expected,
            actual,
        })
    }

    fn write(&mut self, register: Register, dtype: DType) {
        self.registers[usize::from(register.0)] = TypeState::Known(dtype);
    }

    fn test(&self, index: usize, predicate: Predicate) -> Result<()> {
        if self.predicates & (1 << predicate.0) == 0 {
            return Err(ProgramError::Uninitialized {
                index,
                name: predicate.to_string(),
            });
        }
        Ok(())
    }

    /// Checks what an instruction reads, then records what it writes.
    pub(super) fn step(&mut self, index: usize, instruction: &Instruction) -> Result<()> {
        let mut outcome = Ok(());
        instruction.for_each_operand(|_, operand| {
            let checked = match operand {
                Operand::Read(register, dtype) | Operand::Update(register, dtype) => {
                    self.read(index, register, dtype)
                }
                Operand::Span(span, dtype) => span
                    .registers()
                    .try_for_each(|register| self.read(index, register, dtype)),
                Operand::Address(address) => address
                    .registers()
                    .try_for_each(|register| self.read(index, register, DType::U64)),
                Operand::Test(predicate) | Operand::Guard(Some(predicate)) => {
                    self.test(index, predicate)
                }
                _ => Ok(()),
            };
            if outcome.is_ok() {
                outcome = checked;
            }
        });
        outcome?;
        instruction.for_each_operand(|_, operand| match operand {
            Operand::Write(register, dtype) => self.write(register, dtype),
            Operand::Set(predicate) => self.predicates |= 1 << predicate.0,
            _ => {}
        });
        Ok(())
    }
}

/// Types of all registers at every instruction that can be reached.
#[derive(Clone)]
pub struct RegisterTypes {
    states: Vec<Option<State>>,
}

impl RegisterTypes {
    /// Type that a register holds when an instruction starts. `None` if the instruction is unreachable, or the register has
    /// no single type there.
    pub fn dtype(&self, index: usize, register: Register) -> Option<DType> {
        let state = self.states.get(index)?.as_ref()?;
        match state.registers[usize::from(register.0)] {
            TypeState::Known(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// Returns `true` if an instruction can be reached.
    pub fn is_reachable(&self, index: usize) -> bool {
        self.states.get(index).is_some_and(Option::is_some)
    }
}

impl std::fmt::Debug for RegisterTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reachable = self.states.iter().flatten().count();
        write!(
            f,
            "RegisterTypes({reachable} of {} instructions)",
            self.states.len()
        )
    }
}

impl Program {
    /// Checks what a compiler needs besides [`Program::validate`]: every register has one type wherever it is read, the
    /// instruction's, and was written before, and so were predicates. `initial_registers` are those that a launch sets.
    ///
    /// A program that is refused may still run on the interpreter, which checks while it runs. The analysis does not tell
    /// calls of one label apart.
    ///
    /// # Errors
    /// [`ProgramError::TypeMismatch`], [`ProgramError::Uninitialized`], and those of [`Program::validate`].
    pub fn verify(&self, initial_registers: &[Register]) -> Result<RegisterTypes> {
        self.validate()?;
        let flow = Flow::of(self);
        let mut states: Vec<Option<State>> = vec![None; self.len()];
        let mut pending = VecDeque::new();
        if let Some(first) = states.first_mut() {
            *first = Some(State::at_start(initial_registers));
            pending.push_back(0);
        }
        while let Some(index) = pending.pop_front() {
            let Some(mut state) = states[index].clone() else {
                continue;
            };
            // What is wrong is reported below, in the order of instructions.
            let _ = state.step(index, &self.instructions[index]);
            for next in flow.successors(index) {
                let is_changed = match &mut states[next] {
                    Some(other) => other.join(&state),
                    empty => {
                        *empty = Some(state.clone());
                        true
                    }
                };
                if is_changed && !pending.contains(&next) {
                    pending.push_back(next);
                }
            }
        }
        for (index, state) in states.iter().enumerate() {
            if let Some(state) = state {
                state.clone().step(index, &self.instructions[index])?;
            }
        }
        Ok(RegisterTypes { states })
    }
}

/// Edges between instructions.
struct Flow<'p> {
    program: &'p Program,
    /// Instructions behind calls, where `ret` continues.
    returns: Vec<usize>,
}

impl<'p> Flow<'p> {
    fn of(program: &'p Program) -> Self {
        let calls = program.instructions.iter().enumerate();
        let returns = calls
            .filter(|(_, i)| matches!(i, Instruction::Call { .. }))
            .map(|(index, _)| index + 1)
            .collect();
        Self { program, returns }
    }

    /// Instructions that may run after an instruction of a validated program.
    fn successors(&self, index: usize) -> Vec<usize> {
        let instruction = &self.program.instructions[index];
        let target = instruction
            .label()
            .and_then(|l| self.program.resolve_label(l));
        let next = Some(index + 1);
        let mut all: Vec<usize> = match instruction {
            Instruction::Exit {} => Vec::new(),
            Instruction::Ret {} => self.returns.clone(),
            Instruction::Call { .. } | Instruction::Bra { pred: None, .. } => {
                target.into_iter().collect()
            }
            _ => target.into_iter().chain(next).collect(),
        };
        all.retain(|&i| i < self.program.len());
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(text: &str) -> Result<RegisterTypes> {
        let program: Program = text.parse().unwrap();
        program.verify(&[Register(1)])
    }

    #[test]
    fn a_register_has_the_type_it_was_last_written_with() {
        let types = verify(
            "mov_imm.f32 r0, 1.0
             mov_imm.u32 r0, 1
             mov.u32 r2, r0
             mov.u64 r3, r1",
        )
        .unwrap();
        assert_eq!(types.dtype(1, Register(0)), Some(DType::F32));
        assert_eq!(types.dtype(2, Register(0)), Some(DType::U32));
        assert_eq!(types.dtype(0, Register::GLOBAL_LANE_ID), Some(DType::U64));
        assert_eq!(types.dtype(0, Register(9)), None);
    }

    #[test]
    fn a_read_as_another_type_is_refused() {
        assert_eq!(
            verify("mov_imm.f32 r0, 1.0\nadd.i32 r0, r0, r0").unwrap_err(),
            ProgramError::TypeMismatch {
                index: 1,
                register: Register(0),
                expected: DType::I32,
                actual: "f32".to_owned()
            }
        );
    }

    #[test]
    fn a_register_that_only_one_path_writes_is_refused() {
        let text = "setcc.u32.eq p0, %lane, %block
                    bra.p0 @skip
                    mov_imm.f32 r0, 1.0
                    skip:
                    neg.f32 r2, r0";
        assert!(matches!(
            verify(text).unwrap_err(),
            ProgramError::TypeMismatch { index: 3, .. }
        ));
        assert!(verify(&format!("mov_imm.f32 r0, 0.0\n{text}")).is_ok());
    }

    #[test]
    fn unwritten_registers_and_predicates_are_refused() {
        let unwritten = |index, name: &str| ProgramError::Uninitialized {
            index,
            name: name.to_owned(),
        };
        assert_eq!(verify("neg.f32 r2, r0").unwrap_err(), unwritten(0, "r0"));
        assert_eq!(
            verify("mov_imm.f32 r3, 0.0\nreduce_add.f32 r2, r3, 2").unwrap_err(),
            unwritten(1, "r4")
        );
        assert_eq!(verify("a: bra.p3 @a").unwrap_err(), unwritten(0, "p3"));
        assert_eq!(
            verify("ldg.f32 r0, [r1 + r7]").unwrap_err(),
            unwritten(0, "r7")
        );
    }

    #[test]
    fn loops_and_calls_are_followed() {
        let types = verify(
            "    mov_imm.u32 r0, 10
                 mov_imm.f32 r2, 0.0
             again:
                 call @body
                 loop r0, @again
                 exit
             body:
                 add.f32 r2, r2, r2
                 ret",
        )
        .unwrap();
        assert_eq!(types.dtype(3, Register(2)), Some(DType::F32));
        let types = verify("bra @end\nneg.f32 r0, r0\nend: exit").unwrap();
        assert!(!types.is_reachable(1));
        assert!(types.is_reachable(2));
    }
}
