//! Liveness analysis.

use super::kernel::KernelFunction;
use super::parse::{Id, Op, Operand};

/// A set of small integers, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            words: vec![0; capacity.div_ceil(64)],
        }
    }

    pub(crate) fn insert(&mut self, item: usize) {
        self.words[item / 64] |= 1 << (item % 64);
    }

    pub(crate) fn remove(&mut self, item: usize) {
        self.words[item / 64] &= !(1 << (item % 64));
    }

    pub(crate) fn contains(&self, item: usize) -> bool {
        self.words[item / 64] >> (item % 64) & 1 == 1
    }

    /// Adds all of `other`; returns whether the set changed.
    pub(crate) fn union(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            let union = *mine | theirs;
            changed |= union != *mine;
            *mine = union;
        }
        changed
    }

    /// Removes everything that is not in `other`.
    pub(crate) fn intersect(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= theirs;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    index * 64 + bit
                })
            })
        })
    }
}

/// Computes the values live at the start of each block, after its phis.
///
/// A phi uses its operands at the end of the incoming blocks, and defines its value at the start of its block.
pub(crate) fn live_in(kernel: &KernelFunction) -> Vec<BitSet> {
    let count = kernel.blocks.len();
    let mut uses = vec![BitSet::new(kernel.ids); count];
    let mut defs = vec![BitSet::new(kernel.ids); count];
    let mut edge_uses: Vec<Vec<(usize, Id)>> = vec![Vec::new(); count];
    for (index, block) in kernel.blocks.iter().enumerate() {
        for inst in &block.insts {
            if let Op::Phi { incoming } = &inst.op {
                for (value, from) in incoming {
                    if let (Operand::Local(id), Some(&from)) = (value, kernel.by_label.get(from)) {
                        edge_uses[from].push((index, *id));
                    }
                }
            } else {
                for id in inst.uses() {
                    if !defs[index].contains(id) {
                        uses[index].insert(id);
                    }
                }
            }
            if let Some(id) = inst.result {
                defs[index].insert(id);
            }
        }
        for id in kernel.terminator_uses(index) {
            if !defs[index].contains(id) {
                uses[index].insert(id);
            }
        }
    }
    let mut predecessors = vec![Vec::new(); count];
    for index in 0..count {
        for next in kernel.kernel_successors(index) {
            predecessors[next].push(index);
        }
    }
    let mut live = uses.clone();
    let mut queued = vec![true; count];
    let mut work: Vec<usize> = (0..count).collect();
    while let Some(index) = work.pop() {
        queued[index] = false;
        let mut out = BitSet::new(kernel.ids);
        for next in kernel.kernel_successors(index) {
            out.union(&live[next]);
        }
        for (_, id) in &edge_uses[index] {
            out.insert(*id);
        }
        for (word, def) in out.words.iter_mut().zip(&defs[index].words) {
            *word &= !def;
        }
        if live[index].union(&out) {
            for &from in &predecessors[index] {
                if !std::mem::replace(&mut queued[from], true) {
                    work.push(from);
                }
            }
        }
    }
    live
}
