//! Pointer analysis: which variables are tracked, and which pointers may point into them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::ParsedFunction;
use crate::soft::ir::lex::{Cursor, tokens};
use crate::soft::ir::liveness::BitSet;
use crate::soft::ir::parse::{Id, Inst, Op, Operand, Terminator};
use crate::soft::ir::types::{Named, Type};

/// Size of the largest variable with shadow memory.
const MAX_SHADOW_BYTES: u64 = 1 << 16;
/// Size of the largest variable whose bounds are checked.
const MAX_TRACKED_BYTES: u64 = u32::MAX as u64;

/// A tracked variable.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackedVariable {
    pub(super) size: u64,
    /// Whether it may be read before it is written.
    pub(super) shadow: bool,
}

/// Analysis results of one function.
#[derive(Debug, Default)]
pub(super) struct FunctionFacts {
    pub(super) variables: HashMap<Id, TrackedVariable>,
    /// Local pointer variables whose address does not escape.
    pub(super) slots: HashSet<Id>,
    /// Slots that may contain a tracked pointer.
    pub(super) tracked_slots: HashSet<Id>,
    /// Values that may point into a tracked variable.
    pub(super) pointers: HashSet<Id>,
    /// Positions of parameters that may point into one.
    pub(super) parameters: BTreeSet<usize>,
    /// Whether the result may point into one.
    pub(super) result: bool,
    /// Loads whose value is only stored to private memory again: it may still be uninitialised.
    pub(super) copies: HashSet<Id>,
}

/// Analysis results of all functions.
#[derive(Debug)]
pub(super) struct PointerAnalysis {
    pub(super) facts: Vec<FunctionFacts>,
    /// Functions by name.
    pub(super) by_name: HashMap<String, usize>,
}

pub(super) fn callee(inst: &Inst) -> &str {
    match &inst.op {
        Op::Call {
            callee: Some(name), ..
        } => name,
        _ => "",
    }
}

pub(super) fn argument(inst: &Inst, index: usize) -> Option<&Operand> {
    match &inst.op {
        Op::Call { arguments, .. } => arguments.get(index).map(|(_, value)| value),
        _ => None,
    }
}

pub(super) fn is_local(operand: &Operand, id: Id) -> bool {
    matches!(operand, Operand::Local(other) if *other == id)
}

/// Returns whether the result is a pointer derived from the pointer operands.
pub(super) fn derives_pointer(inst: &Inst) -> bool {
    inst.ty == Type::Ptr
        && (matches!(inst.op, Op::Gep { .. } | Op::Phi { .. })
            || matches!(
                inst.opcode.as_str(),
                "select" | "bitcast" | "addrspacecast" | "freeze"
            ))
}

/// Returns whether the compiler inserted the instruction to fill an uninitialised variable.
pub(super) fn is_auto_init(raw: &str) -> bool {
    raw.contains(", !annotation !")
}

/// Returns the number of bytes that a `store` writes.
pub(super) fn stored_size(raw: &str, named: &Named) -> Option<u64> {
    let list = tokens(raw, 0).ok()?;
    let mut cursor = Cursor::new(&list, 0);
    cursor.skip_words(|word| matches!(word, "store" | "atomic" | "volatile"));
    Type::parse(&mut cursor)
        .ok()?
        .layout(named)
        .map(|layout| layout.size)
}

/// Returns the constant length of a `memcpy`, `memmove` or `memset`.
pub(super) fn bulk_size(inst: &Inst) -> Option<u64> {
    match argument(inst, 2) {
        Some(Operand::Constant(text)) => text.parse().ok(),
        _ => None,
    }
}

pub(super) fn is_bulk(name: &str) -> bool {
    ["llvm.memcpy.", "llvm.memmove.", "llvm.memset."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

impl PointerAnalysis {
    pub(super) fn new(functions: &[ParsedFunction<'_>], named: &Named) -> Self {
        let by_name = functions
            .iter()
            .enumerate()
            .map(|(index, parsed)| (parsed.definition.name.clone(), index))
            .collect();
        let all_candidates = |parsed: &ParsedFunction<'_>| {
            let tracked = |(id, size)| (id, TrackedVariable { size, shadow: true });
            candidates(parsed).into_iter().map(tracked).collect()
        };
        let mut analysis = Self {
            facts: functions
                .iter()
                .map(|s| facts(s, all_candidates(s)))
                .collect(),
            by_name,
        };
        analysis.propagate(functions);
        // Now that the private pointers are known, keep only the variables worth tracking.
        analysis.facts = functions
            .iter()
            .zip(std::mem::take(&mut analysis.facts))
            .map(|(parsed, all)| FunctionFacts {
                copies: copies(parsed, &all.pointers),
                ..facts(parsed, variables(parsed, named, &all.pointers))
            })
            .collect();
        analysis.propagate(functions);
        analysis
    }

    /// Propagates pointers through all functions to a fixpoint.
    fn propagate(&mut self, functions: &[ParsedFunction<'_>]) {
        let mut changed = true;
        while changed {
            changed = false;
            for (index, parsed) in functions.iter().enumerate() {
                changed |= self.flow(functions, index, parsed);
            }
        }
    }

    /// Returns the callee that a call passes provenance to.
    pub(super) fn target(&self, functions: &[ParsedFunction<'_>], inst: &Inst) -> Option<usize> {
        let index = *self.by_name.get(callee(inst))?;
        functions[index].extensible.then_some(index)
    }

    /// Propagates pointers through one function; returns whether anything changed.
    fn flow(
        &mut self,
        functions: &[ParsedFunction<'_>],
        index: usize,
        parsed: &ParsedFunction<'_>,
    ) -> bool {
        let mut facts = std::mem::take(&mut self.facts[index]);
        let arguments = &parsed.function.arguments;
        let mut any = false;
        for &at in &facts.parameters {
            any |= facts.pointers.insert(arguments[at]);
        }
        loop {
            let mut changed = false;
            for inst in parsed.function.blocks.iter().flat_map(|b| &b.insts) {
                let tracked = |operand: &Operand| matches!(operand, Operand::Local(id) if facts.pointers.contains(id));
                let yields_tracked = match &inst.op {
                    Op::Alloca { .. } => inst
                        .result
                        .is_some_and(|id| facts.variables.contains_key(&id)),
                    Op::Load {
                        pointer: Operand::Local(slot),
                        ..
                    } => inst.ty == Type::Ptr && facts.tracked_slots.contains(slot),
                    Op::Store {
                        value,
                        pointer: Operand::Local(slot),
                        ..
                    } => {
                        if facts.slots.contains(slot) && tracked(value) {
                            changed |= facts.tracked_slots.insert(*slot);
                        }
                        false
                    }
                    Op::Call { arguments, .. } => {
                        let target = self.target(functions, inst);
                        let tracked_arguments: Vec<usize> = (0..arguments.len())
                            .filter(|&at| tracked(&arguments[at].1))
                            .collect();
                        // A recursive call is not followed: its facts are taken out of `self` here.
                        match target.filter(|&target| target != index) {
                            Some(target) => {
                                for at in tracked_arguments {
                                    if functions[target].pointers.get(at) == Some(&true) {
                                        any |= self.facts[target].parameters.insert(at);
                                    }
                                }
                                self.facts[target].result
                            }
                            None => false,
                        }
                    }
                    _ => {
                        derives_pointer(inst)
                            && inst.uses().iter().any(|id| facts.pointers.contains(id))
                    }
                };
                if let Some(result) = inst.result.filter(|_| yields_tracked) {
                    changed |= facts.pointers.insert(result);
                }
            }
            any |= changed;
            if !changed {
                break;
            }
        }
        if parsed.extensible && !facts.result {
            let returned = parsed.returned.values().flatten();
            facts.result = returned.into_iter().any(|id| facts.pointers.contains(id));
            any |= facts.result;
        }
        self.facts[index] = facts;
        any
    }
}

fn instructions<'s>(parsed: &'s ParsedFunction<'_>) -> impl Iterator<Item = &'s Inst> {
    parsed.function.blocks.iter().flat_map(|b| &b.insts)
}

fn facts(parsed: &ParsedFunction<'_>, variables: HashMap<Id, TrackedVariable>) -> FunctionFacts {
    FunctionFacts {
        slots: slots(parsed),
        variables,
        ..FunctionFacts::default()
    }
}

/// Returns the loads of a function that copy a scalar from private memory to private memory.
fn copies(parsed: &ParsedFunction<'_>, private: &HashSet<Id>) -> HashSet<Id> {
    let is_private =
        |pointer: &Operand| matches!(pointer, Operand::Local(id) if private.contains(id));
    let mut copies: HashSet<Id> = instructions(parsed)
        .filter(|inst| inst.ty.is_scalar())
        .filter(|inst| matches!(&inst.op, Op::Load { pointer, .. } if is_private(pointer)))
        .filter_map(|inst| inst.result)
        .collect();
    for inst in instructions(parsed) {
        for id in inst.uses() {
            let copied = matches!(&inst.op, Op::Store { value, pointer, .. } if is_local(value, id) && is_private(pointer));
            if !copied {
                copies.remove(&id);
            }
        }
    }
    copies
}

/// Returns the local pointer variables of a function whose address does not escape.
fn slots(parsed: &ParsedFunction<'_>) -> HashSet<Id> {
    let mut slots: HashSet<Id> = instructions(parsed)
        .filter(|inst| matches!(inst.op, Op::Alloca { .. }))
        .filter(|inst| parsed.raw(inst.line).contains("= alloca ptr,"))
        .filter_map(|inst| inst.result)
        .collect();
    for id in parsed.returned.values().flatten() {
        slots.remove(id);
    }
    for inst in instructions(parsed) {
        for id in inst.uses() {
            let is_slot_access = match &inst.op {
                Op::Load { .. } => inst.ty == Type::Ptr,
                Op::Store { value, .. } => {
                    !is_local(value, id)
                        && parsed.raw(inst.line).trim_start().starts_with("store ptr ")
                }
                _ => callee(inst).starts_with("llvm.lifetime."),
            };
            if !is_slot_access {
                slots.remove(&id);
            }
        }
    }
    slots
}

/// Returns the variables of a user function, with their sizes.
fn candidates(parsed: &ParsedFunction<'_>) -> Vec<(Id, u64)> {
    let slots = slots(parsed);
    let mut list: Vec<(Id, u64)> = Vec::new();
    if !parsed.is_user_code {
        return list;
    }
    for inst in instructions(parsed) {
        let (Op::Alloca { layout }, Some(id)) = (&inst.op, inst.result) else {
            continue;
        };
        // Only compiler temporaries have dots in their names, and they are always initialised.
        let is_temporary = parsed.function.names[id].contains(['.', '-']);
        if !is_temporary && !slots.contains(&id) && (1..=MAX_TRACKED_BYTES).contains(&layout.size) {
            list.push((id, layout.size));
        }
    }
    list
}

/// Returns the variables of a function that are worth tracking; `private` are the pointers that may be private.
fn variables(
    parsed: &ParsedFunction<'_>,
    named: &Named,
    private: &HashSet<Id>,
) -> HashMap<Id, TrackedVariable> {
    let list = candidates(parsed);
    let unwritten = unwritten_uses(parsed, &list, named, private);
    // Variables that are only accessed as a whole need no bounds checks.
    let indexed: HashSet<Id> = instructions(parsed)
        .filter(|inst| {
            let name = callee(inst);
            !matches!(inst.op, Op::Load { .. } | Op::Store { .. })
                && !is_bulk(name)
                && !name.starts_with("llvm.lifetime.")
        })
        .flat_map(Inst::uses)
        .collect();
    list.iter()
        .enumerate()
        .map(|(index, &(id, size))| {
            let shadow = unwritten.contains(index) && size <= MAX_SHADOW_BYTES;
            (id, TrackedVariable { size, shadow })
        })
        .filter(|(id, variable)| variable.shadow || indexed.contains(id))
        .collect()
}

/// Returns the variables of `list` with uses at which they may not be fully initialised.
fn unwritten_uses(
    parsed: &ParsedFunction<'_>,
    list: &[(Id, u64)],
    named: &Named,
    private: &HashSet<Id>,
) -> BitSet {
    let copies = copies(parsed, private);
    let index_of: HashMap<Id, usize> = list
        .iter()
        .enumerate()
        .map(|(n, &(id, _))| (id, n))
        .collect();
    let blocks = &parsed.function.blocks;
    let by_label: HashMap<Id, usize> = blocks
        .iter()
        .enumerate()
        .map(|(n, b)| (b.label, n))
        .collect();
    let mut found = BitSet::new(list.len());
    let mut inflow = vec![BitSet::new(list.len()); blocks.len()];
    if let Some(first) = inflow.first_mut() {
        (0..list.len()).for_each(|n| first.insert(n));
    }
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in blocks.iter().enumerate() {
            let mut state = inflow[number].clone();
            // Copied values that may themselves be uninitialised.
            let mut maybe_unwritten: HashSet<Id> = HashSet::new();
            for inst in &block.insts {
                if matches!(inst.op, Op::Alloca { .. }) {
                    continue;
                }
                if let (Op::Load { pointer, .. }, Some(id)) = (&inst.op, inst.result)
                    && let Operand::Local(pointer) = pointer
                    && copies.contains(&id)
                    && index_of.get(pointer).is_none_or(|&v| state.contains(v))
                {
                    maybe_unwritten.insert(id);
                }
                for id in inst.uses() {
                    let Some(&variable) = index_of.get(&id) else {
                        continue;
                    };
                    let size = list[variable].1;
                    let raw = parsed.raw(inst.line);
                    let name = callee(inst);
                    let written = match &inst.op {
                        _ if is_auto_init(raw) => continue,
                        _ if name.starts_with("llvm.lifetime.start") => {
                            state.insert(variable);
                            continue;
                        }
                        _ if name.starts_with("llvm.lifetime.") => continue,
                        Op::Store {
                            value: Operand::Local(value),
                            ..
                        } if maybe_unwritten.contains(value) => {
                            state.insert(variable);
                            continue;
                        }
                        Op::Store { pointer, value, .. }
                            if is_local(pointer, id) && !is_local(value, id) =>
                        {
                            stored_size(raw.trim_start(), named)
                        }
                        Op::Call { .. }
                            if is_bulk(name)
                                && argument(inst, 0).is_some_and(|to| is_local(to, id))
                                && !argument(inst, 1).is_some_and(|from| is_local(from, id)) =>
                        {
                            bulk_size(inst)
                        }
                        _ => None,
                    };
                    match written {
                        Some(bytes) if bytes >= size => state.remove(variable),
                        _ if state.contains(variable) => found.insert(variable),
                        _ => {}
                    }
                }
            }
            if let Terminator::Jump { targets, .. } = &block.end {
                for next in targets.iter().filter_map(|label| by_label.get(label)) {
                    changed |= inflow[*next].union(&state);
                }
            }
        }
    }
    found
}
