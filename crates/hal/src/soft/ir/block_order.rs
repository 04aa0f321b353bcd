//! Program order of basic blocks, with loops as nested strongly connected components.

use super::liveness::BitSet;

/// A loop: a strongly connected set of blocks, entered at its header.
#[derive(Debug, Clone)]
pub(crate) struct Loop {
    pub(crate) head: usize,
    pub(crate) blocks: BitSet,
}

/// An order in which every loop is contiguous and precedes the blocks after it.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockOrder {
    pub(crate) position: Vec<usize>,
    pub(crate) loops: Vec<Loop>,
}

impl BlockOrder {
    /// Orders the blocks of the graph `next` that are reachable from block 0.
    pub(crate) fn new(next: &[Vec<usize>]) -> Self {
        let count = next.len();
        let mut order = Self {
            position: vec![usize::MAX; count],
            loops: Vec::new(),
        };
        let mut next_position = 0;
        let mut all = BitSet::new(count);
        (0..count).for_each(|block| all.insert(block));
        // Sets of blocks to be ordered, with their entries, as a stack.
        let mut work: Vec<OrderingTask> = vec![OrderingTask::Order {
            blocks: all,
            starts: vec![0],
        }];
        while let Some(task) = work.pop() {
            match task {
                OrderingTask::Append(block) => {
                    order.position[block] = next_position;
                    next_position += 1;
                }
                OrderingTask::Order { blocks, starts } => {
                    // Components are in reverse topological order, as the stack needs them.
                    for component in components(next, &blocks, &starts) {
                        let head = component[0];
                        let is_loop = component.len() > 1 || next[head].contains(&head);
                        if !is_loop {
                            work.push(OrderingTask::Append(head));
                            continue;
                        }
                        let mut inside = BitSet::new(count);
                        component.iter().for_each(|&block| inside.insert(block));
                        let mut rest = inside.clone();
                        rest.remove(head);
                        order.loops.push(Loop {
                            head,
                            blocks: inside,
                        });
                        let starts = next[head]
                            .iter()
                            .copied()
                            .filter(|b| rest.contains(*b))
                            .collect();
                        work.push(OrderingTask::Order {
                            blocks: rest,
                            starts,
                        });
                        work.push(OrderingTask::Append(head));
                    }
                }
            }
        }
        order
    }
}

enum OrderingTask {
    Append(usize),
    Order { blocks: BitSet, starts: Vec<usize> },
}

/// Strongly connected components of `next` within `blocks` in reverse topological order, each with its entry block
/// first (iterative Tarjan).
fn components(next: &[Vec<usize>], blocks: &BitSet, starts: &[usize]) -> Vec<Vec<usize>> {
    let count = next.len();
    let mut state = Tarjan {
        index: vec![usize::MAX; count],
        low: vec![0; count],
        on_stack: vec![false; count],
        stack: Vec::new(),
        calls: Vec::new(),
        clock: 0,
    };
    let mut found = Vec::new();
    for &start in starts {
        if state.index[start] == usize::MAX {
            state.enter(start);
        }
        while let Some((block, edge)) = state.calls.pop() {
            let mut descend = None;
            for (at, &to) in next[block].iter().enumerate().skip(edge) {
                if !blocks.contains(to) {
                    continue;
                }
                if state.index[to] == usize::MAX {
                    descend = Some((at, to));
                    break;
                }
                if state.on_stack[to] {
                    state.low[block] = state.low[block].min(state.low[to]);
                }
            }
            if let Some((at, to)) = descend {
                // Resumes at the same edge after `to`, and then takes over its low-link.
                state.calls.push((block, at));
                state.enter(to);
            } else if state.low[block] == state.index[block] {
                let at = state.stack.iter().rposition(|b| *b == block).unwrap_or(0);
                let component = state.stack.split_off(at);
                component.iter().for_each(|&b| state.on_stack[b] = false);
                found.push(component);
            }
        }
    }
    found
}

struct Tarjan {
    index: Vec<usize>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    /// Blocks being visited, with the next edge to follow.
    calls: Vec<(usize, usize)>,
    clock: usize,
}

impl Tarjan {
    fn enter(&mut self, block: usize) {
        self.index[block] = self.clock;
        self.low[block] = self.clock;
        self.clock += 1;
        self.stack.push(block);
        self.on_stack[block] = true;
        self.calls.push((block, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_precede_the_blocks_after_them() {
        // 0 -> 1 (head) -> {3 (after), 2 (body) -> {4 -> 1}}: the text order of 3 is before the loop's end.
        let next = [vec![1], vec![3, 2], vec![4], vec![], vec![1]];
        let order = BlockOrder::new(&next);
        assert_eq!(order.position, [0, 1, 2, 4, 3]);
        assert_eq!(order.loops.len(), 1);
        assert_eq!(order.loops[0].blocks.iter().collect::<Vec<_>>(), [1, 2, 4]);
    }

    #[test]
    fn nested_loops_are_nested_components() {
        // 0 -> 1 -> 2 -> {2, 3} ; 3 -> {1, 4}
        let next = [vec![1], vec![2], vec![2, 3], vec![1, 4], vec![]];
        let order = BlockOrder::new(&next);
        assert_eq!(order.position, [0, 1, 2, 3, 4]);
        assert_eq!(
            order.loops.iter().map(|l| l.head).collect::<Vec<_>>(),
            [1, 2]
        );
    }
}
