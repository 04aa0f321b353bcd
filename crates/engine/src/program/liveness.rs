//! Registers, predicates and phases that instructions read, and those that are read before they are written.

use super::flow::Flow;
use super::instruction::Instruction;
use super::operand::{Operand, Predicate, Register};
use crate::DType;

/// A set of registers, predicates and the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSet {
    registers: [u64; 4],
    predicates: u16,
    pub(crate) has_phase: bool,
}

impl LiveSet {
    pub(crate) fn insert(&mut self, register: Register) {
        self.registers[usize::from(register.0) / 64] |= 1 << (register.0 % 64);
    }

    pub(crate) fn remove(&mut self, register: Register) {
        self.registers[usize::from(register.0) / 64] &= !(1 << (register.0 % 64));
    }

    pub(crate) fn contains(&self, register: Register) -> bool {
        self.registers[usize::from(register.0) / 64] & (1 << (register.0 % 64)) != 0
    }

    pub(crate) fn insert_predicate(&mut self, predicate: Predicate) {
        self.predicates |= 1 << predicate.0;
    }

    pub(crate) fn remove_predicate(&mut self, predicate: Predicate) {
        self.predicates &= !(1 << predicate.0);
    }

    pub(crate) fn has_predicate(&self, predicate: Predicate) -> bool {
        self.predicates & (1 << predicate.0) != 0
    }

    pub(crate) fn registers(&self) -> impl Iterator<Item = Register> {
        (0..=u8::MAX).map(Register).filter(|r| self.contains(*r))
    }

    pub(crate) fn predicates(&self) -> impl Iterator<Item = Predicate> {
        (0..Predicate::COUNT as u8)
            .map(Predicate)
            .filter(|p| self.has_predicate(*p))
    }

    /// Adds all of another set; returns `true` if that changes this one.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let before = *self;
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers) {
            *mine |= theirs;
        }
        self.predicates |= other.predicates;
        self.has_phase |= other.has_phase;
        *self != before
    }
}

/// Calls `f` with every register that an instruction reads, and its type.
pub(crate) fn for_each_read(instruction: &Instruction, mut f: impl FnMut(Register, DType)) {
    instruction.for_each_operand(|_, operand| match operand {
        Operand::Read(register, dtype) | Operand::Update(register, dtype) => f(register, dtype),
        Operand::Span(span, dtype) => span.registers().for_each(|r| f(r, dtype)),
        Operand::Address(address) => address.registers().for_each(|r| f(r, DType::U64)),
        _ => {}
    });
}

/// Calls `f` with every register that an instruction writes, and its type.
pub(crate) fn for_each_write(instruction: &Instruction, mut f: impl FnMut(Register, DType)) {
    instruction.for_each_operand(|_, operand| match operand {
        Operand::Write(register, dtype) | Operand::Update(register, dtype) => f(register, dtype),
        _ => {}
    });
}

/// Predicates that an instruction reads.
pub(crate) fn tested(instruction: &Instruction) -> Option<Predicate> {
    let mut found = None;
    instruction.for_each_operand(|_, operand| {
        if let Operand::Test(p) | Operand::Guard(Some(p)) = operand {
            found = Some(p);
        }
    });
    found
}

/// The predicate that an instruction writes.
pub(crate) fn set(instruction: &Instruction) -> Option<Predicate> {
    let mut found = None;
    instruction.for_each_operand(|_, operand| {
        if let Operand::Set(p) = operand {
            found = Some(p);
        }
    });
    found
}

/// What is read before it is written when the graph is entered.
pub(crate) fn live_at_entry(flow: &Flow, instructions: &[Instruction]) -> LiveSet {
    let order = flow.reverse_postorder();
    let mut live = vec![LiveSet::default(); flow.blocks.len()];
    let mut is_changed = true;
    while is_changed {
        is_changed = false;
        for &block in order.iter().rev() {
            let mut state = LiveSet::default();
            for next in flow.successors(block) {
                state.join(&live[next]);
            }
            let all: Vec<_> = flow.blocks[block].all_instructions().collect();
            for &index in all.iter().rev() {
                let instruction = &instructions[index];
                for_each_write(instruction, |register, _| state.remove(register));
                if let Some(predicate) = set(instruction) {
                    state.remove_predicate(predicate);
                }
                for_each_read(instruction, |register, _| state.insert(register));
                if let Some(predicate) = tested(instruction) {
                    state.insert_predicate(predicate);
                }
                state.has_phase |= matches!(
                    instruction,
                    Instruction::PhaseGet { .. } | Instruction::PhaseAdv { .. }
                );
            }
            is_changed |= live[block].join(&state);
        }
    }
    live.first().copied().unwrap_or_default()
}
