//! Control flow of a program: basic blocks and what ends them, orders, and dominators.

use super::instruction::Instruction;

/// Index of a block in [`Flow::blocks`].
pub(crate) type BlockId = usize;

/// Basic blocks. The first is the entry, and no edge leads to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Flow {
    pub(crate) blocks: Vec<FlowBlock>,
}

/// Actions that run in order, and what follows them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlowBlock {
    /// Label of the first instruction, for readers.
    pub(crate) label: Option<String>,
    pub(crate) actions: Vec<Action>,
    pub(crate) end: End,
    pub(crate) lanes: Lanes,
}

/// A step of a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Runs an instruction.
    Run {
        /// Index of the instruction in the program.
        index: usize,
        /// Index of the memory that it accesses among the kernel's bindings.
        binding: Option<usize>,
        /// A load of the same value in every lane.
        is_uniform: bool,
    },
    /// Sets the selector of a dispatcher to the position of the target.
    Select { selector: usize, value: usize },
    /// Counts an iteration of the loop at an instruction against the step limit.
    Count { index: usize },
    /// Ends the lane, which continues without effects because it must reach the barriers that follow.
    Leave,
}

/// What follows the actions of a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// The lane ends.
    Exit,
    Jump(BlockId),
    /// A guarded `bra`, or a `loop`.
    Branch {
        index: usize,
        yes: BlockId,
        no: BlockId,
    },
    /// Lanes that have left go to `no`.
    IfAlive {
        yes: BlockId,
        no: BlockId,
    },
    /// The dispatcher of an irreducible loop: goes to the target at the position that the selector has.
    Dispatch {
        selector: usize,
        targets: Vec<BlockId>,
    },
}

/// Which lanes run a block, and how one of them ends there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// No barrier can follow: a lane ends by returning.
    #[default]
    Free,
    /// A barrier can follow, and all lanes are here together, those that have left included.
    Uniform,
    /// A barrier can follow, and only some lanes are here.
    Divergent,
}

impl End {
    pub(crate) fn successors(&self) -> Vec<BlockId> {
        match self {
            Self::Exit => Vec::new(),
            Self::Jump(to) => vec![*to],
            Self::Branch { yes, no, .. } | Self::IfAlive { yes, no } => vec![*yes, *no],
            Self::Dispatch { targets, .. } => targets.clone(),
        }
    }

    /// Replaces every successor.
    pub(crate) fn redirect(&mut self, mut map: impl FnMut(BlockId) -> BlockId) {
        match self {
            Self::Exit => {}
            Self::Jump(to) => *to = map(*to),
            Self::Branch { yes, no, .. } | Self::IfAlive { yes, no } => {
                *yes = map(*yes);
                *no = map(*no);
            }
            Self::Dispatch { targets, .. } => {
                for target in targets {
                    *target = map(*target);
                }
            }
        }
    }
}

impl FlowBlock {
    pub(crate) fn new(end: End) -> Self {
        Self {
            label: None,
            actions: Vec::new(),
            end,
            lanes: Lanes::default(),
        }
    }

    /// Indices of the instructions, without the one that ends the block.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = usize> {
        self.actions.iter().filter_map(|action| match action {
            Action::Run { index, .. } => Some(*index),
            _ => None,
        })
    }

    /// Indices of the instructions, with the branch that ends the block.
    pub(crate) fn all_instructions(&self) -> impl Iterator<Item = usize> {
        let end = match self.end {
            End::Branch { index, .. } => Some(index),
            _ => None,
        };
        self.instructions().chain(end)
    }

    /// Index of an instruction of the block, for messages.
    pub(crate) fn position(&self) -> usize {
        let end = match self.end {
            End::Branch { index, .. } => Some(index),
            _ => None,
        };
        self.instructions().next().or(end).unwrap_or(0)
    }
}

impl Flow {
    pub(crate) fn push(&mut self, block: FlowBlock) -> BlockId {
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    pub(crate) fn successors(&self, block: BlockId) -> Vec<BlockId> {
        self.blocks[block].end.successors()
    }

    fn all_successors(&self) -> Vec<Vec<BlockId>> {
        self.blocks.iter().map(|b| b.end.successors()).collect()
    }

    /// Blocks that can be reached, in reverse postorder.
    pub(crate) fn reverse_postorder(&self) -> Vec<BlockId> {
        reverse_postorder(&self.all_successors(), 0)
    }

    pub(crate) fn dominators(&self) -> Dominators {
        Dominators::new(&self.all_successors(), 0)
    }

    /// For every block, the blocks that lead to it and can be reached.
    pub(crate) fn predecessors(&self) -> Vec<Vec<BlockId>> {
        let mut all = vec![Vec::new(); self.blocks.len()];
        for from in self.reverse_postorder() {
            for to in self.successors(from) {
                if !all[to].contains(&from) {
                    all[to].push(from);
                }
            }
        }
        all
    }

    /// For every block, whether it can be reached from one of `starts` without entering a block of `stop`.
    pub(crate) fn reachable(
        &self,
        starts: impl IntoIterator<Item = BlockId>,
        stop: impl Fn(BlockId) -> bool,
    ) -> Vec<bool> {
        let mut found = vec![false; self.blocks.len()];
        let mut pending: Vec<_> = starts.into_iter().filter(|&b| !stop(b)).collect();
        while let Some(block) = pending.pop() {
            if !std::mem::replace(&mut found[block], true) {
                let next = self.successors(block);
                pending.extend(next.into_iter().filter(|&b| !stop(b)));
            }
        }
        found
    }

    /// Removes blocks that cannot be reached.
    pub(crate) fn compact(&mut self) {
        let mut order = self.reverse_postorder();
        order.sort_unstable();
        let mut places = vec![0; self.blocks.len()];
        for (new, &old) in order.iter().enumerate() {
            places[old] = new;
        }
        let mut blocks = Vec::with_capacity(order.len());
        for old in order {
            let mut block = self.blocks[old].clone();
            block.end.redirect(|to| places[to]);
            blocks.push(block);
        }
        self.blocks = blocks;
    }

    /// Solves a forward analysis: the state at the start of every block that can be reached.
    pub(crate) fn solve<S: Clone>(
        &self,
        start: S,
        mut step: impl FnMut(BlockId, &mut S),
        mut join: impl FnMut(&mut S, &S) -> bool,
    ) -> Vec<Option<S>> {
        let order = self.reverse_postorder();
        let mut rank = vec![0; self.blocks.len()];
        for (position, &block) in order.iter().enumerate() {
            rank[block] = position;
        }
        let mut states: Vec<Option<S>> = vec![None; self.blocks.len()];
        let mut pending = std::collections::BTreeSet::new();
        if let Some(first) = states.first_mut() {
            *first = Some(start);
            pending.insert(0);
        }
        while let Some(position) = pending.pop_first() {
            let block = order[position];
            let Some(mut state) = states[block].clone() else {
                continue;
            };
            step(block, &mut state);
            for next in self.successors(block) {
                let is_changed = match &mut states[next] {
                    Some(other) => join(other, &state),
                    empty => {
                        *empty = Some(state.clone());
                        true
                    }
                };
                if is_changed {
                    pending.insert(rank[next]);
                }
            }
        }
        states
    }

    /// Returns `true` if an instruction satisfies a condition, in a block that can be reached.
    pub(crate) fn any(
        &self,
        instructions: &[Instruction],
        mut condition: impl FnMut(&Instruction) -> bool,
    ) -> bool {
        let mut all = self.reverse_postorder().into_iter();
        all.any(|b| {
            self.blocks[b]
                .all_instructions()
                .any(|index| condition(&instructions[index]))
        })
    }
}

/// Nodes that can be reached from `start`, in reverse postorder.
pub(crate) fn reverse_postorder(successors: &[Vec<usize>], start: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; successors.len()];
    if start >= successors.len() {
        return order;
    }
    seen[start] = true;
    let mut path = vec![(start, 0)];
    while let Some((node, next)) = path.last_mut() {
        // The last successor first, so that the first comes first in the reversed order.
        let all = &successors[*node];
        match all.len().checked_sub(*next + 1).map(|i| all[i]) {
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[to], true) {
                    path.push((to, 0));
                }
            }
            None => {
                order.push(*node);
                path.pop();
            }
        }
    }
    order.reverse();
    order
}

/// The dominator tree of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Dominators {
    /// The nodes in reverse postorder.
    pub(crate) order: Vec<usize>,
    /// Position of every node in the order; `usize::MAX` for nodes that cannot be reached.
    pub(crate) rank: Vec<usize>,
    /// Immediate dominator of every node; that of the start is itself.
    parent: Vec<usize>,
}

impl Dominators {
    /// By the algorithm of Cooper, Harvey and Kennedy.
    pub(crate) fn new(successors: &[Vec<usize>], start: usize) -> Self {
        let order = reverse_postorder(successors, start);
        let mut rank = vec![usize::MAX; successors.len()];
        for (position, &node) in order.iter().enumerate() {
            rank[node] = position;
        }
        let mut predecessors = vec![Vec::new(); successors.len()];
        for &from in &order {
            for &to in &successors[from] {
                predecessors[to].push(from);
            }
        }
        let mut parent = vec![usize::MAX; successors.len()];
        if let Some(first) = order.first() {
            parent[*first] = *first;
        }
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for &node in order.iter().skip(1) {
                let mut new = usize::MAX;
                for &from in predecessors[node]
                    .iter()
                    .filter(|p| parent[**p] != usize::MAX)
                {
                    new = if new == usize::MAX {
                        from
                    } else {
                        common(&parent, &rank, new, from)
                    };
                }
                if parent[node] != new {
                    parent[node] = new;
                    is_changed = true;
                }
            }
        }
        Self {
            order,
            rank,
            parent,
        }
    }

    /// The immediate dominator; `None` for the start and for nodes that cannot be reached.
    pub(crate) fn parent(&self, node: usize) -> Option<usize> {
        let parent = self.parent[node];
        (parent != usize::MAX && parent != node).then_some(parent)
    }

    /// Returns `true` if every path to `node` leads through `other`.
    pub(crate) fn dominates(&self, other: usize, mut node: usize) -> bool {
        // A dominator comes earlier in the order.
        while self.rank[node] > self.rank[other] {
            match self.parent(node) {
                Some(parent) => node = parent,
                None => return false,
            }
        }
        node == other
    }
}

/// The last common dominator of two nodes.
fn common(parent: &[usize], rank: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while rank[a] > rank[b] {
            a = parent[a];
        }
        while rank[b] > rank[a] {
            b = parent[b];
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dominators_of_a_diamond_with_a_loop() {
        // 0 → 1, 2; both → 3; 3 → 1 and 4.
        let graph = [vec![1, 2], vec![3], vec![3], vec![1, 4], vec![]];
        let dominators = Dominators::new(&graph, 0);
        assert_eq!(dominators.order, [0, 2, 3, 1, 4]);
        let parents: Vec<_> = (0..5).map(|n| dominators.parent(n)).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(0), Some(3)]);
        assert!(dominators.dominates(3, 4) && dominators.dominates(0, 4));
        assert!(!dominators.dominates(1, 3) && dominators.dominates(2, 2));
    }
}
