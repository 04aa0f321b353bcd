//! Thread-private memory: which arrays of a kernel outlive a synchronisation.

use super::kernel::Kernel;
use super::live::Set;
use super::parse::{Id, Inst, Op, Operand, Terminator};
use super::types::Layout;
use std::collections::{BTreeSet, HashMap};

/// One `alloca` of the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Private {
    pub(crate) id: Id,
    pub(crate) layout: Layout,
    /// Whether it needs memory of its own for every lane.
    pub(crate) crosses: bool,
    /// Whether its address is known to code we do not see.
    pub(crate) escapes: bool,
}

/// All private memory of a kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrivateMemory {
    pub(crate) list: Vec<Private>,
    /// The entries of `list` that a pointer may point into.
    pub(crate) roots: HashMap<Id, BTreeSet<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
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

pub(crate) fn is_lifetime(inst: &Inst) -> bool {
    callee(inst).starts_with("llvm.lifetime.")
}

fn derives(inst: &Inst) -> bool {
    matches!(inst.op, Op::Gep { .. } | Op::Phi { .. })
        || matches!(
            inst.opcode.as_str(),
            "select" | "bitcast" | "addrspacecast" | "freeze"
        )
}

fn is(operand: &Operand, id: Id) -> bool {
    matches!(operand, Operand::Local(other) if *other == id)
}

/// What `inst` does with the memory behind pointer `id`; none when the pointer gets away.
fn events(inst: &Inst, id: Id) -> Option<Vec<Event>> {
    match &inst.op {
        Op::Load { .. } => Some(vec![Event::Read]),
        Op::Store { value, .. } => (!is(value, id)).then(|| vec![Event::Write]),
        Op::Call { arguments, .. } => {
            let name = callee(inst);
            if is_lifetime(inst) {
                return Some(vec![Event::Kill]);
            }
            if name == super::check::ACCESS {
                return Some(Vec::new());
            }
            let known = ["llvm.memcpy.", "llvm.memmove.", "llvm.memset."]
                .iter()
                .any(|p| name.starts_with(p));
            if !known {
                return None;
            }
            let mut list = Vec::new();
            if !name.starts_with("llvm.memset.") && arguments.get(1).is_some_and(|(_, v)| is(v, id))
            {
                list.push(Event::Read);
            }
            if arguments.first().is_some_and(|(_, v)| is(v, id)) {
                list.push(Event::Write);
            }
            Some(list)
        }
        _ if derives(inst) || inst.opcode == "icmp" => Some(Vec::new()),
        _ => None,
    }
}

impl PrivateMemory {
    /// Finds the kernel's allocas and what becomes of them; `live` is the liveness at block starts.
    pub(crate) fn new(kernel: &Kernel, live: &[Set]) -> Self {
        let mut memory = Self::default();
        for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
            if let (Op::Alloca { layout }, Some(id)) = (&inst.op, inst.result) {
                memory
                    .roots
                    .entry(id)
                    .or_default()
                    .insert(memory.list.len());
                memory.list.push(Private {
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
        memory.derive(kernel);
        memory.flow(kernel, live);
        memory
    }

    fn derive(&mut self, kernel: &Kernel) {
        let mut changed = true;
        while changed {
            changed = false;
            for inst in kernel.blocks.iter().flat_map(|b| &b.insts) {
                let Some(result) = inst.result.filter(|_| derives(inst)) else {
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

    fn flow(&mut self, kernel: &Kernel, live: &[Set]) {
        let count = self.list.len();
        let blocks = kernel.blocks.len();
        let mut happenings: Vec<Vec<(usize, Event)>> = vec![Vec::new(); blocks];
        for (index, block) in kernel.blocks.iter().enumerate() {
            for inst in &block.insts {
                for id in inst.uses() {
                    let Some(roots) = self.roots.get(&id) else {
                        continue;
                    };
                    match events(inst, id) {
                        Some(list) => {
                            for event in list {
                                // A kill through a derived pointer would be of a part.
                                if event != Event::Kill
                                    || roots.iter().all(|&r| self.list[r].id == id)
                                {
                                    happenings[index].extend(roots.iter().map(|&r| (r, event)));
                                }
                            }
                        }
                        None => {
                            for &root in roots {
                                self.list[root].escapes = true;
                                happenings[index].push((root, Event::Write));
                            }
                        }
                    }
                }
            }
            for id in kernel.end_uses(index) {
                for &root in self.roots.get(&id).into_iter().flatten() {
                    self.list[root].escapes = true;
                    happenings[index].push((root, Event::Write));
                }
            }
        }

        let written = forward(kernel, count, &happenings);
        let wanted = backward(kernel, count, &happenings);
        for (index, block) in kernel.blocks.iter().enumerate() {
            let Terminator::Sync { site } = block.end else {
                continue;
            };
            let next = kernel.sites[site - 1].continuation;
            for root in 0..count {
                let read_later = wanted[next].contains(root) || self.list[root].escapes;
                if written[index].contains(root) && read_later {
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

    /// The entry whose address `id` is.
    pub(crate) fn alloca(&self, id: Id) -> Option<usize> {
        let root = *self.roots.get(&id)?.first()?;
        (self.list[root].id == id).then_some(root)
    }

    /// Whether an access through `pointer` may touch memory that lanes take turns to use.
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

/// Memory that may hold something at the end of each block.
fn forward(kernel: &Kernel, count: usize, happenings: &[Vec<(usize, Event)>]) -> Vec<Set> {
    let blocks = kernel.blocks.len();
    let mut out = vec![Set::new(count); blocks];
    let mut inflow = vec![Set::new(count); blocks];
    let mut changed = true;
    while changed {
        changed = false;
        for index in 0..blocks {
            let mut state = inflow[index].clone();
            for (root, event) in &happenings[index] {
                match event {
                    Event::Write => state.insert(*root),
                    Event::Kill => state.remove(*root),
                    Event::Read => {}
                }
            }
            for next in kernel.flow(index) {
                changed |= inflow[next].union(&state);
            }
            changed |= out[index].union(&state);
        }
    }
    out
}

/// Memory that may be read after the start of each block.
fn backward(kernel: &Kernel, count: usize, happenings: &[Vec<(usize, Event)>]) -> Vec<Set> {
    let blocks = kernel.blocks.len();
    let mut wanted = vec![Set::new(count); blocks];
    let mut changed = true;
    while changed {
        changed = false;
        for index in (0..blocks).rev() {
            let mut state = Set::new(count);
            for next in kernel.flow(index) {
                state.union(&wanted[next]);
            }
            for (root, event) in happenings[index].iter().rev() {
                match event {
                    Event::Read => state.insert(*root),
                    Event::Kill => state.remove(*root),
                    Event::Write => {}
                }
            }
            changed |= wanted[index].union(&state);
        }
    }
    wanted
}
