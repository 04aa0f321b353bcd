//! From tensors asked for to kernels run.
//!
//! A tensor is a node of a graph that grows as a program calls methods. [`eval`] looks at what the nodes
//! asked for depend on, and
//! - leaves out what nothing needs: only nodes that are reached are looked at;
//! - finds equal expressions and computes them once;
//! - joins elementwise ops into one pass over memory ([`fuse`]);
//! - runs the rest in the order of dependence, giving each op the memory of an input that nobody needs
//!   any more ([`dispatch`]), and letting go of every value after its last use.
//!
//! Passes rewrite the [`Work`] of nodes into other work with the same value. Whatever happens in between,
//! an error or another thread with the same nodes, every node stays computable.

mod background;
mod fuse;
mod plan;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use background::{async_eval, synchronize};
pub use plan::{Plan, PlannedStep, explain};

use crate::ops::Op;
use crate::ops::alias::Alias;
use crate::tensor::{Node, Work};
use crate::{DType, Layout, Result, Scalar, Tensor, dispatch};

/// Computes the values of all these tensors, sharing what they have in common.
pub fn eval(tensors: &[&Tensor]) -> Result<()> {
    for tensor in tensors {
        tensor.check()?;
    }
    if let [tensor] = tensors {
        if tensor.is_evaluated() || run_if_ready(&tensor.node)? {
            return Ok(());
        }
    }
    Schedule::new(tensors).run()
}

/// Runs a node whose inputs all have values, without looking at the rest of the graph.
fn run_if_ready(node: &Node) -> Result<bool> {
    let mut work = node.work();
    match &*work {
        Some(w) if w.inputs.iter().all(|t| w.has(t)) => {
            dispatch::run(node, &mut work)?;
            Ok(true)
        }
        Some(_) => Ok(false),
        None => Ok(true),
    }
}

/// The nodes to compute, each after those it depends on.
struct Schedule {
    entries: Vec<Entry>,
    index: HashMap<*const Node, usize, BuildHasherDefault<PointerHasher>>,
}

/// A node that is not computed yet.
struct Entry {
    node: Arc<Node>,
    /// Times that another entry has it as an input.
    uses: usize,
    /// Whether its value was asked for.
    root: bool,
    /// Whether it is computed inside others, and not on its own.
    inlined: bool,
}

/// What makes two inputs the same.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Node(*const Node),
    Constant(DType, Scalar),
}

/// Pointers are spread well enough by one multiplication.
#[derive(Default)]
struct PointerHasher(u64);

impl Hasher for PointerHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_usize(usize::from(b));
        }
    }

    fn write_usize(&mut self, i: usize) {
        self.0 = (self.0.rotate_left(5) ^ i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Schedule {
    fn new(roots: &[&Tensor]) -> Self {
        let mut schedule = Self {
            entries: Vec::new(),
            index: HashMap::default(),
        };
        for root in roots {
            schedule.add(&root.node);
        }
        for root in roots {
            if let Some(&i) = schedule.index.get(&Arc::as_ptr(&root.node)) {
                schedule.entries[i].root = true;
            }
        }
        schedule.share();
        schedule.fuse();
        schedule
    }

    /// Adds a node and all it depends on, inputs first, without recursion: graphs can be deep.
    fn add(&mut self, root: &Arc<Node>) {
        let mut open: Vec<(Arc<Node>, Vec<Tensor>)> = Vec::new();
        let enter = |node: &Arc<Node>, open: &mut Vec<_>| {
            // Waits while another thread computes it, which then leaves nothing to do.
            if let Some(work) = &*node.work() {
                let inputs = work.inputs.iter().filter(|t| !work.has(t));
                open.push((Arc::clone(node), inputs.rev().cloned().collect()));
            }
        };
        if !self.index.contains_key(&Arc::as_ptr(root)) {
            enter(root, &mut open);
        }
        while let Some((node, inputs)) = open.last_mut() {
            if let Some(input) = inputs.pop() {
                match self.index.get(&Arc::as_ptr(&input.node)) {
                    Some(&i) => self.entries[i].uses += 1,
                    // Counted when it is added; it is not yet, or it is below in `open`, which only a
                    // cycle could do, and there is no way to make one.
                    None => {
                        inputs.push(input.clone());
                        let before = open.len();
                        enter(&input.node, &mut open);
                        if open.len() == before {
                            // Computed in the meantime.
                            open.last_mut().expect("not empty").1.pop();
                        }
                    }
                }
            } else {
                let node = Arc::clone(node);
                open.pop();
                self.index.insert(Arc::as_ptr(&node), self.entries.len());
                self.entries.push(Entry {
                    node,
                    uses: 0,
                    root: false,
                    inlined: false,
                });
            }
        }
    }

    /// Turns every expression that another one equals into an alias of it.
    fn share(&mut self) {
        if self.entries.len() < 2 {
            return;
        }
        let mut seen: HashMap<(Op, Vec<(Identity, Layout)>), usize> = HashMap::new();
        let mut same: HashMap<*const Node, *const Node> = HashMap::new();
        for i in 0..self.entries.len() {
            let node = &self.entries[i].node;
            let mut work = node.work();
            let Some(w) = &*work else { continue };
            let inputs = w.inputs.iter().map(|t| {
                let node = Arc::as_ptr(&t.node);
                let identity = match t.node.constant {
                    Some(value) => Identity::Constant(t.dtype(), value),
                    None => Identity::Node(same.get(&node).copied().unwrap_or(node)),
                };
                (identity, *t.layout())
            });
            match seen.entry((w.op.clone(), inputs.collect())) {
                std::collections::hash_map::Entry::Vacant(new) => {
                    new.insert(i);
                }
                std::collections::hash_map::Entry::Occupied(first) => {
                    let first = &self.entries[*first.get()];
                    same.insert(Arc::as_ptr(node), Arc::as_ptr(&first.node));
                    *work = Some(Work {
                        op: Op::Alias(Alias),
                        inputs: vec![Tensor::of_node(&first.node)],
                    });
                }
            }
        }
        if same.is_empty() {
            return;
        }
        // What only the duplicates needed is needed no more: count again from the roots.
        let roots: Vec<_> = self
            .entries
            .iter()
            .filter(|e| e.root)
            .map(|e| Arc::clone(&e.node))
            .collect();
        self.entries.clear();
        self.index.clear();
        for root in &roots {
            self.add(root);
        }
        for root in &roots {
            if let Some(&i) = self.index.get(&Arc::as_ptr(root)) {
                self.entries[i].root = true;
            }
        }
    }

    /// Runs what is not part of another entry, in order. Each entry is let go once it has run, so that a
    /// value's only owners are those that still need it.
    fn run(self) -> Result<()> {
        drop(self.index);
        for entry in self.entries {
            if entry.inlined {
                entry.node.inlined.store(true, Ordering::Relaxed);
            } else {
                run(&entry.node)?;
            }
        }
        Ok(())
    }
}

/// Runs a node of a schedule. Another thread may have rewritten it or its inputs since the schedule was
/// made, so that an input has no value after all; then that comes first.
fn run(node: &Node) -> Result<()> {
    loop {
        let mut work = node.work();
        let missing = match &*work {
            Some(w) => w.inputs.iter().find(|t| !w.has(t)).cloned(),
            None => None,
        };
        match missing {
            None => return dispatch::run(node, &mut work),
            Some(input) => {
                drop(work);
                eval(&[&input])?;
            }
        }
    }
}
