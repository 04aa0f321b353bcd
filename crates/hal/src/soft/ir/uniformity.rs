//! Uniformity analysis: values and branches that are the same for all lanes.

use super::block_order::BlockOrder;
use super::kernel::KernelFunction;
use super::liveness::BitSet;
use super::parse::{Id, Inst, Op, Terminator};

/// Result of the uniformity analysis.
#[derive(Debug, Clone)]
pub(crate) struct Uniformity {
    /// Values that may differ between lanes.
    pub(crate) varying: BitSet,
    /// Blocks that only some of the lanes may execute at a time.
    pub(crate) divergent: BitSet,
}

fn is_divergence_source(inst: &Inst) -> bool {
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

/// Returns the blocks from which one of `goals` can be reached through blocks that satisfy `pass`.
fn blocks_reaching(
    flow: &[Vec<usize>],
    goals: impl Iterator<Item = usize>,
    pass: impl Fn(usize) -> bool,
) -> BitSet {
    let mut found = BitSet::new(flow.len());
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

/// Returns the relevant subgraph: blocks from which a synchronisation can be reached. Lanes that leave it wait for no other
/// lane, so a branch out of it causes no divergence.
fn reaching_sync(kernel: &KernelFunction, flow: &[Vec<usize>]) -> BitSet {
    let blocks = kernel.blocks.iter().enumerate();
    let sites = blocks
        .filter(|(_, b)| matches!(b.end, Terminator::Sync { .. }))
        .map(|(index, _)| index);
    blocks_reaching(flow, sites, |_| true)
}

/// Returns the exit blocks of the subgraph `keep`.
///
/// An exit from a loop that has no other exits counts as one; any other edge out of the subgraph is an early
/// return, which the remaining lanes do not wait for.
fn ends(flow: &[Vec<usize>], keep: &BitSet) -> BitSet {
    let inner = |block: usize| flow[block].iter().any(|to| keep.contains(*to));
    let kept = || keep.iter();
    let mut ends = BitSet::new(flow.len());
    kept().filter(|b| !inner(*b)).for_each(|b| ends.insert(b));
    let reaching = blocks_reaching(flow, ends.clone().iter(), |b| keep.contains(b));
    for block in kept().filter(|b| !reaching.contains(*b)) {
        if flow[block].iter().any(|to| !keep.contains(*to)) {
            ends.insert(block);
        }
    }
    let reaching = blocks_reaching(flow, ends.clone().iter(), |b| keep.contains(b));
    kept()
        .filter(|b| !reaching.contains(*b))
        .for_each(|b| ends.insert(b));
    ends
}

/// Computes the post-dominators of each block within `keep`, itself included.
fn post_dominators(flow: &[Vec<usize>], keep: &BitSet) -> Vec<BitSet> {
    let count = flow.len();
    let ends = ends(flow, keep);
    let mut all = BitSet::new(count);
    (0..count).for_each(|block| all.insert(block));
    let mut sets = vec![all; count];
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..count).rev().filter(|b| keep.contains(*b)) {
            let mut common = ends.contains(block).then(|| BitSet::new(count));
            for to in flow[block].iter().filter(|to| keep.contains(**to)) {
                match &mut common {
                    Some(set) => set.intersect(&sets[*to]),
                    None => common = Some(sets[*to].clone()),
                }
            }
            let mut set = common.unwrap_or_else(|| BitSet::new(count));
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
    pub(crate) fn new(
        kernel: &KernelFunction,
        flow: &[Vec<usize>],
        order: &BlockOrder,
        live: &[BitSet],
    ) -> Self {
        let arguments = kernel.arguments;
        let mut varying = BitSet::new(kernel.ids);
        for id in [arguments.x, arguments.y, arguments.z, arguments.lane] {
            varying.insert(id);
        }
        let keep = reaching_sync(kernel, flow);
        let post_dominators = post_dominators(flow, &keep);
        let mut uniformity = Self {
            varying,
            divergent: BitSet::new(kernel.blocks.len()),
        };
        let mut divergent_branches = BitSet::new(kernel.blocks.len());
        let mut changed = true;
        while changed {
            changed = false;
            for (index, block) in kernel.blocks.iter().enumerate() {
                for inst in &block.insts {
                    let Some(result) = inst.result.filter(|id| !uniformity.varying.contains(*id))
                    else {
                        continue;
                    };
                    if is_divergence_source(inst)
                        || inst
                            .uses()
                            .iter()
                            .any(|id| uniformity.varying.contains(*id))
                    {
                        uniformity.varying.insert(result);
                        changed = true;
                    }
                }
                if !divergent_branches.contains(index)
                    && uniformity.diverges(kernel, flow, &keep, index)
                {
                    divergent_branches.insert(index);
                    changed = true;
                    uniformity.propagate_divergence(kernel, flow, &keep, &post_dominators, index);
                }
            }
            for component in &order.loops {
                let exits = component
                    .blocks
                    .iter()
                    .filter(|b| divergent_branches.contains(*b));
                for block in exits {
                    for &to in flow[block]
                        .iter()
                        .filter(|to| !component.blocks.contains(**to))
                    {
                        changed |=
                            uniformity.mark_live_outs(kernel, component.blocks.iter(), &live[to]);
                    }
                }
            }
        }
        uniformity
    }

    /// Returns whether lanes diverge at the end of a block.
    fn diverges(
        &self,
        kernel: &KernelFunction,
        flow: &[Vec<usize>],
        keep: &BitSet,
        block: usize,
    ) -> bool {
        keep.contains(block)
            && flow[block].iter().filter(|to| keep.contains(**to)).count() > 1
            && self.is_divergent_branch(kernel, block)
    }

    /// Returns whether the branch condition of a block is varying.
    pub(crate) fn is_divergent_branch(&self, kernel: &KernelFunction, block: usize) -> bool {
        matches!(kernel.blocks[block].end, Terminator::Jump { .. })
            && kernel
                .terminator_uses(block)
                .iter()
                .any(|id| self.varying.contains(*id))
    }

    /// Propagates the divergence of the branch at `from`: until the lanes reconverge, blocks are divergent, and phis depend
    /// on the path.
    fn propagate_divergence(
        &mut self,
        kernel: &KernelFunction,
        flow: &[Vec<usize>],
        keep: &BitSet,
        post_dominators: &[BitSet],
        from: usize,
    ) {
        let mut seen = BitSet::new(flow.len());
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
            if block == from || !post_dominators[from].contains(block) {
                self.divergent.insert(block);
                work.extend(flow[block].iter().copied().filter(|to| keep.contains(*to)));
            }
        }
    }

    /// Marks the values of a loop that lanes leave in different iterations as varying outside of it (temporal
    /// divergence); returns whether any is new.
    fn mark_live_outs(
        &mut self,
        kernel: &KernelFunction,
        blocks: impl Iterator<Item = usize>,
        live: &BitSet,
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

    /// Returns whether `id` is uniform among all lanes that continue after the synchronisation in `block`.
    pub(crate) fn is_uniform_at(&self, block: usize, id: Id) -> bool {
        !self.divergent.contains(block) && !self.varying.contains(id)
    }
}
