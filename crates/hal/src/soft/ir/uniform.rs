//! Which values and branches are the same for all lanes that come by.

use super::kernel::Kernel;
use super::live::Set;
use super::order::Order;
use super::parse::{Id, Inst, Op, Terminator};

/// What is known to be uniform.
#[derive(Debug, Clone)]
pub(crate) struct Uniformity {
    /// Values that may differ between lanes.
    pub(crate) varying: Set,
    /// Blocks that only some of the lanes may run at a time.
    pub(crate) divergent: Set,
}

fn is_source(inst: &Inst) -> bool {
    match &inst.op {
        Op::Alloca { .. } => true,
        Op::Load { plain, .. } => !plain,
        Op::Call {
            callee: Some(name), ..
        } => !name.starts_with("llvm."),
        Op::Call { callee: None, .. } => true,
        _ => matches!(
            inst.opcode.as_str(),
            "sm.result" | "atomicrmw" | "cmpxchg" | "freeze"
        ),
    }
}

/// The blocks from which one of `goals` can be reached, along blocks that `pass`.
fn leading_to(
    flow: &[Vec<usize>],
    goals: impl Iterator<Item = usize>,
    pass: impl Fn(usize) -> bool,
) -> Set {
    let mut found = Set::new(flow.len());
    goals.for_each(|block| found.insert(block));
    let mut changed = true;
    while changed {
        changed = false;
        for (index, next) in flow.iter().enumerate().rev() {
            if !found.contains(index) && pass(index) && next.iter().any(|to| found.contains(*to)) {
                found.insert(index);
                changed = true;
            }
        }
    }
    found
}

/// The graph that matters: blocks from which a synchronisation can be reached. Lanes that leave it wait for nobody,
/// so that what separates them from the rest separates nothing.
fn waiting(kernel: &Kernel, flow: &[Vec<usize>]) -> Set {
    let blocks = kernel.blocks.iter().enumerate();
    let sites = blocks
        .filter(|(_, b)| matches!(b.end, Terminator::Sync { .. }))
        .map(|(index, _)| index);
    leading_to(flow, sites, |_| true)
}

/// The blocks of `keep` at which its graph ends.
///
/// Where a lane leaves a loop that the rest can only leave the same way, that is an end too; any other way out of the
/// graph is an early return, which the remaining lanes do not notice.
fn ends(flow: &[Vec<usize>], keep: &Set) -> Set {
    let inner = |block: usize| flow[block].iter().any(|to| keep.contains(*to));
    let kept = || keep.iter();
    let mut ends = Set::new(flow.len());
    kept().filter(|b| !inner(*b)).for_each(|b| ends.insert(b));
    let reaching = leading_to(flow, ends.clone().iter(), |b| keep.contains(b));
    for block in kept().filter(|b| !reaching.contains(*b)) {
        if flow[block].iter().any(|to| !keep.contains(*to)) {
            ends.insert(block);
        }
    }
    let reaching = leading_to(flow, ends.clone().iter(), |b| keep.contains(b));
    kept()
        .filter(|b| !reaching.contains(*b))
        .for_each(|b| ends.insert(b));
    ends
}

/// For each block, the blocks that every path from it to the end of `keep` passes, itself included.
fn post_dominators(flow: &[Vec<usize>], keep: &Set) -> Vec<Set> {
    let count = flow.len();
    let ends = ends(flow, keep);
    let mut all = Set::new(count);
    (0..count).for_each(|block| all.insert(block));
    let mut sets = vec![all; count];
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..count).rev().filter(|b| keep.contains(*b)) {
            let mut joined = ends.contains(block).then(|| Set::new(count));
            for to in flow[block].iter().filter(|to| keep.contains(**to)) {
                match &mut joined {
                    Some(set) => set.intersect(&sets[*to]),
                    None => joined = Some(sets[*to].clone()),
                }
            }
            let mut set = joined.unwrap_or_else(|| Set::new(count));
            set.insert(block);
            if set != sets[block] {
                sets[block] = set;
                changed = true;
            }
        }
    }
    sets
}

impl Uniformity {
    /// Analyses `kernel`.
    pub(crate) fn new(kernel: &Kernel, flow: &[Vec<usize>], order: &Order, live: &[Set]) -> Self {
        let arguments = kernel.arguments;
        let mut varying = Set::new(kernel.ids);
        for id in [arguments.x, arguments.y, arguments.z, arguments.lane] {
            varying.insert(id);
        }
        let keep = waiting(kernel, flow);
        let passes = post_dominators(flow, &keep);
        let mut this = Self {
            varying,
            divergent: Set::new(kernel.blocks.len()),
        };
        let mut split = Set::new(kernel.blocks.len());
        let mut changed = true;
        while changed {
            changed = false;
            for (index, block) in kernel.blocks.iter().enumerate() {
                for inst in &block.insts {
                    let Some(result) = inst.result.filter(|id| !this.varying.contains(*id)) else {
                        continue;
                    };
                    if is_source(inst) || inst.uses().iter().any(|id| this.varying.contains(*id)) {
                        this.varying.insert(result);
                        changed = true;
                    }
                }
                if !split.contains(index) && this.splits(kernel, flow, &keep, index) {
                    split.insert(index);
                    changed = true;
                    this.influence(kernel, flow, &keep, &passes, index);
                }
            }
            for component in &order.loops {
                let exits = component.blocks.iter().filter(|b| split.contains(*b));
                for block in exits {
                    for &to in flow[block]
                        .iter()
                        .filter(|to| !component.blocks.contains(**to))
                    {
                        changed |= this.left_behind(kernel, component.blocks.iter(), &live[to]);
                    }
                }
            }
        }
        this
    }

    /// Whether lanes part at the end of a block.
    fn splits(&self, kernel: &Kernel, flow: &[Vec<usize>], keep: &Set, block: usize) -> bool {
        keep.contains(block)
            && flow[block].iter().filter(|to| keep.contains(**to)).count() > 1
            && self.branches_apart(kernel, block)
    }

    /// Whether the condition at the end of a block varies.
    pub(crate) fn branches_apart(&self, kernel: &Kernel, block: usize) -> bool {
        matches!(kernel.blocks[block].end, Terminator::Jump { .. })
            && kernel
                .end_uses(block)
                .iter()
                .any(|id| self.varying.contains(*id))
    }

    /// Lanes part at `from`: until they meet again, blocks are run by some of them, and phis depend on the way.
    fn influence(
        &mut self,
        kernel: &Kernel,
        flow: &[Vec<usize>],
        keep: &Set,
        passes: &[Set],
        from: usize,
    ) {
        let mut seen = Set::new(flow.len());
        let mut work: Vec<usize> = flow[from]
            .iter()
            .copied()
            .filter(|to| keep.contains(*to))
            .collect();
        while let Some(block) = work.pop() {
            if seen.contains(block) {
                continue;
            }
            seen.insert(block);
            for inst in &kernel.blocks[block].insts {
                if let (Op::Phi { .. }, Some(id)) = (&inst.op, inst.result) {
                    self.varying.insert(id);
                }
            }
            if block == from || !passes[from].contains(block) {
                self.divergent.insert(block);
                work.extend(flow[block].iter().copied().filter(|to| keep.contains(*to)));
            }
        }
    }

    /// Values of a loop that lanes leave at different times differ outside; whether any is new.
    fn left_behind(
        &mut self,
        kernel: &Kernel,
        blocks: impl Iterator<Item = usize>,
        live: &Set,
    ) -> bool {
        let mut changed = false;
        for block in blocks {
            for inst in &kernel.blocks[block].insts {
                if let Some(id) = inst
                    .result
                    .filter(|id| live.contains(*id) && !self.varying.contains(*id))
                {
                    self.varying.insert(id);
                    changed = true;
                }
            }
        }
        changed
    }

    /// Whether all lanes that go on after a synchronisation agree on `id`.
    pub(crate) fn agrees(&self, block: usize, id: Id) -> bool {
        !self.divergent.contains(block) && !self.varying.contains(id)
    }
}
