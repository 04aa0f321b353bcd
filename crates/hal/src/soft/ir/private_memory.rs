//! Thread-private memory: the allocas of a kernel, and which of them live across a synchronisation.

use std::collections::{BTreeSet, HashMap};

use super::kernel::KernelFunction;
use super::liveness::BitSet;
use super::parse::{Id, Inst, Op, Operand, Terminator};
use super::types::Layout;

/// One `alloca` of the kernel.
#[derive(Debug, Clone)]
pub(crate) struct PrivateVariable {
    pub(crate) id: Id,
    pub(crate) layout: Layout,
    /// Whether it lives across a site, and so needs separate memory for every lane.
    pub(crate) crosses: bool,
    /// Whether its address escapes.
    pub(crate) escapes: bool,
}

/// Private memory of a kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrivateMemory {
    pub(crate) list: Vec<PrivateVariable>,
    /// Points-to sets: the entries of `list` that a pointer may point into.
    pub(crate) roots: HashMap<Id, BTreeSet<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryEvent {
    Read,
    Write,
    Kill,
}

fn callee(inst: &Inst) -> &str {
    match &inst.op {
        Op::Call {
            callee: Some(name), ..
        } => name,
        _ => "",
    }
}

pub(crate) fn is_lifetime_marker(inst: &Inst) -> bool {
    callee(inst).starts_with("llvm.lifetime.")
}

fn derives_pointer(inst: &Inst) -> bool {
    matches!(inst.op, Op::Gep { .. } | Op::Phi { .. })
        || matches!(
            inst.opcode.as_str(),
            "select" | "bitcast" | "addrspacecast" | "freeze"
        )
}

fn is_local(operand: &Operand, id: Id) -> bool {
    matches!(operand, Operand::Local(other) if *other == id)
}

/// Returns how `inst` accesses the memory that pointer `id` points to; `None` if the pointer escapes.
fn memory_events(inst: &Inst, id: Id) -> Option<Vec<MemoryEvent>> {
    match &inst.op {
        Op::Load { .. } => Some(vec![MemoryEvent::Read]),
        Op::Store { value, .. } => (!is_local(value, id)).then(|| vec![MemoryEvent::Write]),
        Op::Call { arguments, .. } => {
            let name = callee(inst);
            if is_lifetime_marker(inst) {
                return Some(vec![MemoryEvent::Kill]);
            }
            if name == super::tsan::ACCESS_FN {
                return Some(Vec::new());
            }
            let known = ["llvm.memcpy.", "llvm.memmove.", "llvm.memset."]
                .iter()
                .any(|p| name.starts_with(p));
            if !known {
                return None;
            }
            let mut list = Vec::new();
            if !name.starts_with("llvm.memset.")
                && arguments.get(1).is_some_and(|(_, v)| is_local(v, id))
            {
                list.push(MemoryEvent::Read);
            }
            if arguments.first().is_some_and(|(_, v)| is_local(v, id)) {
                list.push(MemoryEvent::Write);
            }
            Some(list)
        }
        _ if derives_pointer(inst) || inst.opcode == "icmp" => Some(Vec::new()),
        _ => None,
    }
}

impl PrivateMemory {
    /// Analyses the kernel's allocas; `live` is the liveness at block starts.
    pub(crate) fn new(kernel: &KernelFunction, live: &[BitSet]) -> Self {
        let mut memory = Self::default();
        for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
            if let (Op::Alloca { layout }, Some(id)) = (&inst.op, inst.result) {
                memory
                    .roots
                    .entry(id)
                    .or_default()
                    .insert(memory.list.len());
                memory.list.push(PrivateVariable {
                    id,
                    layout: *layout,
                    crosses: false,
                    escapes: false,
                });
            }
        }
        if memory.list.is_empty() {
            return memory;
        }
        memory.propagate_points_to(kernel);
        memory.find_crossing(kernel, live);
        memory
    }

    fn propagate_points_to(&mut self, kernel: &KernelFunction) {
        let mut changed = true;
        while changed {
            changed = false;
            for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
                let Some(result) = inst.result.filter(|_| derives_pointer(inst)) else {
                    continue;
                };
                let mut found = BTreeSet::new();
                for id in inst.uses() {
                    if let Some(roots) = self.roots.get(&id) {
                        found.extend(roots.iter().copied());
                    }
                }
                if !found.is_empty() {
                    let entry = self.roots.entry(result).or_default();
                    let before = entry.len();
                    entry.extend(found);
                    changed |= entry.len() != before;
                }
            }
        }
    }

    fn find_crossing(&mut self, kernel: &KernelFunction, live: &[BitSet]) {
        let count = self.list.len();
        let blocks = kernel.blocks.len();
        let mut block_events: Vec<Vec<(usize, MemoryEvent)>> = vec![Vec::new(); blocks];
        for (index, block) in kernel.blocks.iter().enumerate() {
            for inst in &block.insts {
                for id in inst.uses() {
                    let Some(roots) = self.roots.get(&id) else {
                        continue;
                    };
                    match memory_events(inst, id) {
                        Some(list) => {
                            for event in list {
                                // A kill through a derived pointer might cover only a part of the variable.
                                if event != MemoryEvent::Kill
                                    || roots.iter().all(|&r| self.list[r].id == id)
                                {
                                    block_events[index].extend(roots.iter().map(|&r| (r, event)));
                                }
                            }
                        }
                        None => {
                            for &root in roots {
                                self.list[root].escapes = true;
                                block_events[index].push((root, MemoryEvent::Write));
                            }
                        }
                    }
                }
            }
            for id in kernel.terminator_uses(index) {
                for &root in self.roots.get(&id).into_iter().flatten() {
                    self.list[root].escapes = true;
                    block_events[index].push((root, MemoryEvent::Write));
                }
            }
        }

        let written = forward(kernel, count, &block_events);
        let read_later = backward(kernel, count, &block_events);
        for (index, block) in kernel.blocks.iter().enumerate() {
            let Terminator::Sync { site } = block.end else {
                continue;
            };
            let next = kernel.sites[site - 1].continuation;
            for root in 0..count {
                let is_read = read_later[next].contains(root) || self.list[root].escapes;
                if written[index].contains(root) && is_read {
                    self.list[root].crosses = true;
                }
            }
            for id in live[next].iter() {
                for &root in self.roots.get(&id).into_iter().flatten() {
                    if self.list[root].id != id {
                        self.list[root].crosses = true;
                    }
                }
            }
        }
    }

    /// Returns the entry whose address is `id`.
    pub(crate) fn alloca(&self, id: Id) -> Option<usize> {
        let root = *self.roots.get(&id)?.first()?;
        (self.list[root].id == id).then_some(root)
    }

    /// Returns whether an access through `pointer` may touch memory that the lanes reuse one after the other.
    pub(crate) fn shared_between_lanes(&self, pointer: &Operand) -> bool {
        let escaped = self.list.iter().any(|p| p.escapes && !p.crosses);
        match pointer {
            Operand::Local(id) => match self.roots.get(id) {
                Some(roots) => roots.iter().any(|&r| !self.list[r].crosses),
                None => escaped,
            },
            Operand::Constant(_) => escaped,
        }
    }
}

/// Forward dataflow: memory that may have been written at the end of each block.
fn forward(
    kernel: &KernelFunction,
    count: usize,
    block_events: &[Vec<(usize, MemoryEvent)>],
) -> Vec<BitSet> {
    let blocks = kernel.blocks.len();
    let mut out = vec![BitSet::new(count); blocks];
    let mut inflow = vec![BitSet::new(count); blocks];
    let mut changed = true;
    while changed {
        changed = false;
        for index in 0..blocks {
            let mut state = inflow[index].clone();
            for (root, event) in &block_events[index] {
                match event {
                    MemoryEvent::Write => state.insert(*root),
                    MemoryEvent::Kill => state.remove(*root),
                    MemoryEvent::Read => {}
                }
            }
            for next in kernel.kernel_successors(index) {
                changed |= inflow[next].union(&state);
            }
            changed |= out[index].union(&state);
        }
    }
    out
}

/// Backward dataflow: memory that may be read after the start of each block.
fn backward(
    kernel: &KernelFunction,
    count: usize,
    block_events: &[Vec<(usize, MemoryEvent)>],
) -> Vec<BitSet> {
    let blocks = kernel.blocks.len();
    let mut read_later = vec![BitSet::new(count); blocks];
    let mut changed = true;
    while changed {
        changed = false;
        for index in (0..blocks).rev() {
            let mut state = BitSet::new(count);
            for next in kernel.kernel_successors(index) {
                state.union(&read_later[next]);
            }
            for (root, event) in block_events[index].iter().rev() {
                match event {
                    MemoryEvent::Read => state.insert(*root),
                    MemoryEvent::Kill => state.remove(*root),
                    MemoryEvent::Write => {}
                }
            }
            changed |= read_later[index].union(&state);
        }
    }
    read_later
}
