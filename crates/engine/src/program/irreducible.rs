//! Loops with several entries get one: a dispatcher, which goes to the entry that a selector names.
//!
//! Only such loops are changed. In a reducible graph every loop has a header that dominates it, which is what
//! [`super::structure`] needs.

use super::flow::{Action, BlockId, End, Flow, FlowBlock};

/// Makes a graph reducible; `selectors` is the number of selectors in use.
pub(crate) fn make_reducible(flow: &mut Flow, selectors: &mut usize) {
    if is_reducible(flow) {
        return;
    }
    // Regions that are still to be searched for loops: their blocks, without the edges to a header.
    let all: Vec<_> = flow.reverse_postorder();
    let mut regions = vec![(all, None)];
    while let Some((blocks, header)) = regions.pop() {
        for component in components(flow, &blocks, header) {
            let header = one_entry(flow, component, selectors);
            regions.push((header.0, Some(header.1)));
        }
    }
}

/// Returns `true` if every edge back leads to a block that dominates where it comes from.
fn is_reducible(flow: &Flow) -> bool {
    let dominators = flow.dominators();
    dominators.order.iter().all(|&from| {
        let mut next = flow.successors(from).into_iter();
        next.all(|to| dominators.rank[to] > dominators.rank[from] || dominators.dominates(to, from))
    })
}

/// Loops of a region: strongly connected components with an edge, if edges to the region's header do not count.
fn components(flow: &Flow, blocks: &[BlockId], header: Option<BlockId>) -> Vec<Vec<BlockId>> {
    let mut place = vec![usize::MAX; flow.blocks.len()];
    for (i, &block) in blocks.iter().enumerate() {
        place[block] = i;
    }
    let inside = |to: &BlockId| place[*to] != usize::MAX && Some(*to) != header;
    let successors: Vec<Vec<usize>> = blocks
        .iter()
        .map(|&b| {
            let next = flow.successors(b).into_iter();
            next.filter(inside).map(|to| place[to]).collect()
        })
        .collect();
    let has_edge = |component: &[usize]| {
        component.len() > 1 || component.iter().any(|&n| successors[n].contains(&n))
    };
    strongly_connected(&successors)
        .into_iter()
        .filter(|component| has_edge(component))
        .map(|component| component.into_iter().map(|n| blocks[n]).collect())
        .collect()
}

/// Tarjan's algorithm, without recursion.
pub(crate) fn strongly_connected(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let count = successors.len();
    let (mut number, mut low) = (vec![UNSEEN; count], vec![0; count]);
    let mut on_stack = vec![false; count];
    let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 0);
    for start in 0..count {
        if number[start] != UNSEEN {
            continue;
        }
        let mut path = vec![(start, 0)];
        while let Some(&mut (node, ref mut edge)) = path.last_mut() {
            if *edge == 0 {
                (number[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if let Some(&to) = successors[node].get(*edge) {
                *edge += 1;
                if number[to] == UNSEEN {
                    path.push((to, 0));
                } else if on_stack[to] {
                    low[node] = low[node].min(number[to]);
                }
                // A node without edges left must not be numbered again.
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == number[node] {
                let mut component = Vec::new();
                while let Some(member) = stack.pop() {
                    on_stack[member] = false;
                    component.push(member);
                    if member == node {
                        break;
                    }
                }
                found.push(component);
            }
        }
    }
    found
}

/// Gives a loop one entry, its header; returns all its blocks and the header.
fn one_entry(
    flow: &mut Flow,
    mut component: Vec<BlockId>,
    selectors: &mut usize,
) -> (Vec<BlockId>, BlockId) {
    let mut inside = vec![false; flow.blocks.len()];
    for &block in &component {
        inside[block] = true;
    }
    let reachable = flow.reverse_postorder();
    let mut entries: Vec<BlockId> = Vec::new();
    for &from in reachable.iter().filter(|b| !inside[**b]) {
        for to in flow.successors(from) {
            if inside[to] && !entries.contains(&to) {
                entries.push(to);
            }
        }
    }
    // The entry of the program is in no loop, so every loop has an entry.
    if entries.len() <= 1 {
        let header = entries.first().or(component.first()).copied().unwrap_or(0);
        return (component, header);
    }
    let selector = *selectors;
    *selectors += 1;
    let dispatcher = flow.push(FlowBlock::new(End::Dispatch {
        selector,
        targets: entries.clone(),
    }));
    // One block for each entry and side: a block that is reached from both sides would be an entry itself.
    let mut through = [Vec::new(), Vec::new()];
    for side in &mut through {
        for value in 0..entries.len() {
            let mut block = FlowBlock::new(End::Jump(dispatcher));
            block.actions.push(Action::Select { selector, value });
            side.push(flow.push(block));
        }
    }
    for from in reachable {
        let side = &through[usize::from(inside[from])];
        flow.blocks[from].end.redirect(|to| {
            let entry = entries.iter().position(|&e| e == to);
            entry.map_or(to, |value| side[value])
        });
    }
    component.push(dispatcher);
    component.extend(&through[1]);
    (component, dispatcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph whose block `i` leads to `edges[i]`.
    fn graph(edges: &[&[BlockId]]) -> Flow {
        let block = |next: &&[BlockId]| match **next {
            [] => FlowBlock::new(End::Exit),
            [to] => FlowBlock::new(End::Jump(to)),
            [yes, no, ..] => FlowBlock::new(End::Branch { index: 0, yes, no }),
        };
        Flow {
            blocks: edges.iter().map(block).collect(),
        }
    }

    #[test]
    fn reducible_graphs_stay_as_they_are() {
        let mut flow = graph(&[&[1], &[2, 4], &[3, 1], &[2, 1], &[]]);
        let before = flow.clone();
        let mut selectors = 0;
        make_reducible(&mut flow, &mut selectors);
        assert_eq!((flow, selectors), (before, 0));
    }

    #[test]
    fn a_loop_with_two_entries_gets_a_dispatcher() {
        let mut flow = graph(&[&[1], &[2, 3], &[3, 4], &[2], &[]]);
        assert!(!is_reducible(&flow));
        let mut selectors = 0;
        make_reducible(&mut flow, &mut selectors);
        assert!(is_reducible(&flow));
        assert_eq!(selectors, 1);
        let dispatchers = flow.blocks.iter();
        let dispatchers = dispatchers.filter(|b| matches!(b.end, End::Dispatch { .. }));
        assert_eq!(dispatchers.count(), 1);
    }

    #[test]
    fn a_chain_as_long_as_a_program_does_not_overflow_the_stack() {
        let count = 1 << 16;
        let edges: Vec<Vec<usize>> = (0..count)
            .map(|i| {
                if i + 1 < count {
                    vec![i + 1]
                } else {
                    Vec::new()
                }
            })
            .collect();
        assert_eq!(strongly_connected(&edges).len(), count);
    }
}
