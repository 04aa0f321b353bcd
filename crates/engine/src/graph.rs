//! Scheduling: from requested tensors to kernel launches.
//!
//! A tensor is a node of a graph that grows as a program calls methods. [`eval`] walks the dependencies of the
//! requested nodes, which eliminates dead code, and
//! - eliminates common subexpressions;
//! - fuses elementwise ops into the epilogue of a matmul, if the device supports it ([`epilogue`]);
//! - fuses elementwise ops into one pass over memory ([`fuse`]);
//! - runs the rest in topological order, donating dead inputs to results ([`dispatch`]) and freeing every value after
//!   its last use.
//!
//! Passes rewrite the [`Work`] of a node into other work with the same value. Every node stays computable if an error
//! occurs in between or another thread evaluates the same nodes.

mod background;
mod constant;
mod epilogue;
mod fuse;
mod plan;

use std::cell::Cell;
use std::collections::{HashMap, hash_map};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use background::{async_eval, synchronize};
pub(crate) use constant::constants;
pub use plan::{Plan, PlannedStep, explain};

use crate::ops::Op;
use crate::ops::alias::Alias;
use crate::tensor::{Node, Work};
use crate::{DType, Device, Result, Scalar, Tensor, dispatch, env};

/// Evaluates all these tensors, sharing common subexpressions.
pub fn eval(tensors: &[&Tensor]) -> Result<()> {
    env::check()?;
    for tensor in tensors {
        tensor.check()?;
    }
    let done = match tensors {
        [tensor] => tensor.is_evaluated() || run_if_ready(&tensor.node)?,
        _ => false,
    };
    if !done {
        span!(DEBUG, "evaluate", tensors = tensors.len());
        Schedule::new(tensors).run()?;
    }
    for tensor in tensors {
        tensor.device().flush();
    }
    Ok(())
}

/// The work of a tensor after fusion; `None` if it is evaluated.
pub(crate) fn prepared(tensor: &Tensor) -> Result<Option<Work>> {
    tensor.check()?;
    Schedule::new(&[tensor]);
    Ok(tensor.node.work().clone())
}

/// Evaluates these tensors as [`eval`] does, but leaves recorded commands to be submitted with later ones.
pub(crate) fn eval_unsubmitted(tensors: &[&Tensor]) -> Result<()> {
    if tensors.iter().all(|tensor| tensor.is_evaluated()) {
        return Ok(());
    }
    for tensor in tensors {
        tensor.check()?;
    }
    Schedule::new(tensors).run()
}

/// A node of a schedule and how it is computed, in the order of evaluation.
pub(crate) struct ScheduledWork {
    pub(crate) node: Arc<Node>,
    pub(crate) work: Work,
}

/// Schedules the evaluation of these tensors without running it.
pub(crate) fn schedule(tensors: &[&Tensor]) -> Result<(Vec<ScheduledWork>, Plan)> {
    for tensor in tensors {
        tensor.check()?;
    }
    let schedule = Schedule::new(tensors);
    let plan = schedule.plan()?;
    let entries = schedule.entries.into_iter().filter(|entry| !entry.inlined);
    let scheduled = entries.filter_map(|entry| {
        // A node without work was computed by another thread meanwhile.
        let work = entry.node.work().clone()?;
        Some(ScheduledWork {
            node: entry.node,
            work,
        })
    });
    Ok((scheduled.collect(), plan))
}

/// Runs a node if all its inputs have values, without scheduling the rest of the graph.
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

/// The nodes to compute, in topological order.
struct Schedule {
    entries: Vec<ScheduledNode>,
    index: HashMap<*const Node, usize, BuildHasherDefault<WordHasher>>,
}

/// Initial capacity of the tables, in nodes: enough for one evaluation of most programs. Growing a table costs more
/// than all its other operations.
const INITIAL_SCHEDULE_NODES: usize = 24;

/// A node to compute.
struct ScheduledNode {
    node: Arc<Node>,
    /// Number of inputs of other entries that refer to it.
    uses: usize,
    /// Whether its value was requested.
    root: bool,
    /// Whether it is computed inside other entries rather than on its own.
    inlined: bool,
    /// Why it is not, if it could be in principle.
    not_fused: Cell<Option<&'static str>>,
}

/// The identity of an input, for common subexpression elimination.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Node(*const Node),
    Constant(DType, Scalar),
}

/// Nodes that compute the same value as an earlier node, with that node.
#[derive(Default)]
struct Duplicates(HashMap<*const Node, *const Node, BuildHasherDefault<WordHasher>>);

impl Duplicates {
    fn insert(&mut self, node: *const Node, first: *const Node) {
        self.0.insert(node, first);
    }

    fn identity(&self, input: &Tensor) -> Identity {
        let node = Arc::as_ptr(&input.node);
        match input.node.constant {
            Some(value) => Identity::Constant(input.dtype(), value),
            None => Identity::Node(self.0.get(&node).copied().unwrap_or(node)),
        }
    }

    fn hash(&self, work: &Work, device: &Device) -> u64 {
        let mut hasher = WordHasher::default();
        device.hash(&mut hasher);
        work.op.hash(&mut hasher);
        for input in &work.inputs {
            self.identity(input).hash(&mut hasher);
            // Most inputs are contiguous from offset 0; then the shape determines the strides.
            input.shape().hash(&mut hasher);
            if !input.layout().is_whole() {
                input.layout().hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn equal(&self, a: &Work, b: &Work) -> bool {
        let mut inputs = a.inputs.iter().zip(&b.inputs);
        a.op == b.op
            && a.inputs.len() == b.inputs.len()
            && inputs.all(|(a, b)| self.identity(a) == self.identity(b) && a.layout() == b.layout())
    }
}

/// A multiplicative hash (Fibonacci hashing): good enough for pointers and the small parameters of ops.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // The high bits of a product are the best mixed; hash tables use the low ones.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for &word in words {
            self.write_u64(u64::from_ne_bytes(word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u8(&mut self, i: u8) {
        self.write_u64(i.into());
    }

    fn write_u64(&mut self, i: u64) {
        self.0 = (self.0.rotate_left(5) ^ i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, i: usize) {
        self.write_u64(i as u64);
    }
}

impl Schedule {
    fn new(roots: &[&Tensor]) -> Self {
        let mut schedule = Self {
            entries: Vec::with_capacity(INITIAL_SCHEDULE_NODES),
            index: HashMap::with_capacity_and_hasher(
                INITIAL_SCHEDULE_NODES,
                BuildHasherDefault::default(),
            ),
        };
        for root in roots {
            schedule.add(&root.node);
        }
        for root in roots {
            if let Some(&i) = schedule.index.get(&Arc::as_ptr(&root.node)) {
                schedule.entries[i].root = true;
            }
        }
        span!(DEBUG, "schedule", nodes = schedule.entries.len());
        schedule.eliminate_common_subexpressions();
        event!(
            DEBUG,
            "common subexpressions",
            nodes = schedule.kernel_count()
        );
        schedule.fuse_epilogues();
        event!(DEBUG, "matmul epilogues", nodes = schedule.kernel_count());
        schedule.fuse_elementwise();
        event!(DEBUG, "fusion", nodes = schedule.kernel_count());
        schedule
    }

    /// Number of nodes that are computed on their own.
    fn kernel_count(&self) -> usize {
        self.entries.iter().filter(|e| !e.inlined).count()
    }

    /// Adds a node and its dependencies, inputs first, without recursion: graphs can be deep.
    fn add(&mut self, root: &Arc<Node>) {
        // The path from the root, each node with the length of `inputs` before its own were pushed; those above are
        // still to be visited.
        let mut open: Vec<(Arc<Node>, usize)> = Vec::with_capacity(INITIAL_SCHEDULE_NODES);
        let mut inputs: Vec<Arc<Node>> = Vec::with_capacity(INITIAL_SCHEDULE_NODES);
        let enter = |node: Arc<Node>, open: &mut Vec<_>, inputs: &mut Vec<_>| {
            // Waits while another thread computes it; then there is nothing left to do.
            let before = inputs.len();
            let unfinished = match &*node.work() {
                Some(work) => {
                    let missing = work.inputs.iter().filter(|t| !work.has(t));
                    inputs.extend(missing.rev().map(|t| Arc::clone(&t.node)));
                    true
                }
                None => false,
            };
            if unfinished {
                open.push((node, before));
            }
            unfinished
        };
        if !self.index.contains_key(&Arc::as_ptr(root)) {
            enter(Arc::clone(root), &mut open, &mut inputs);
        }
        while let Some((node, others)) = open.last() {
            if inputs.len() > *others {
                let input = Arc::clone(inputs.last().expect("not empty"));
                if let Some(&i) = self.index.get(&Arc::as_ptr(&input)) {
                    self.entries[i].uses += 1;
                    inputs.pop();
                } else if !enter(input, &mut open, &mut inputs) {
                    // Computed in the meantime.
                    inputs.pop();
                }
                // Otherwise it is counted when it is added. It cannot be in `open` already: graphs have no cycles.
            } else {
                let node = Arc::clone(node);
                open.pop();
                self.index.insert(Arc::as_ptr(&node), self.entries.len());
                self.entries.push(ScheduledNode {
                    node,
                    uses: 0,
                    root: false,
                    inlined: false,
                    not_fused: Cell::new(None),
                });
            }
        }
    }

    /// Rewrites every node that computes the same expression as an earlier one into an alias of it.
    fn eliminate_common_subexpressions(&mut self) {
        if self.entries.len() < 2 {
            return;
        }
        // By hash first: few expressions have a duplicate, and only those are compared.
        let mut seen: HashMap<u64, usize, BuildHasherDefault<WordHasher>> =
            HashMap::with_capacity_and_hasher(self.entries.len(), BuildHasherDefault::default());
        let mut duplicates = Duplicates::default();
        for i in 0..self.entries.len() {
            let node = &self.entries[i].node;
            let hash = |w: &Work| duplicates.hash(w, &node.placement.device);
            let Some(hash) = node.work().as_ref().map(hash) else {
                continue;
            };
            let j = match seen.entry(hash) {
                hash_map::Entry::Vacant(new) => {
                    new.insert(i);
                    continue;
                }
                hash_map::Entry::Occupied(first) => *first.get(),
            };
            // One lock at a time: another thread may compare the same two nodes in the other order.
            let work = node.work().clone();
            let first = &self.entries[j].node;
            let equal = match (&work, &*first.work()) {
                // A result with its own target is computed there.
                (Some(a), _) if a.target.is_some() => false,
                (Some(a), Some(b)) => node.placement == first.placement && duplicates.equal(a, b),
                _ => false,
            };
            if equal {
                let mut work = node.work();
                if work.is_some() {
                    duplicates.insert(Arc::as_ptr(node), Arc::as_ptr(first));
                    let inputs = vec![Tensor::of_node(first)];
                    *work = Some(Work::new(Op::Alias(Alias), inputs));
                }
            }
        }
        if duplicates.0.is_empty() {
            return;
        }
        // Users of a duplicate use the first node instead, so that they can be fused with it.
        for entry in &self.entries {
            let mut work = entry.node.work();
            for input in work.iter_mut().flat_map(|w| &mut w.inputs) {
                let first = duplicates.0.get(&Arc::as_ptr(&input.node));
                if let Some(&first) = first.and_then(|first| self.index.get(first)) {
                    let first = Tensor::of_node(&self.entries[first].node);
                    *input = first.with_layout(*input.layout());
                }
            }
        }
        // Inputs of the duplicates alone are dead now: rebuild the entries from the roots.
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

    /// Runs the entries that are not inlined, in order. Each is dropped once it has run, so that a value is owned only
    /// by those that still need it.
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

/// Runs a node of a schedule. Another thread may have rewritten it or its inputs since the schedule was made, so that
/// an input has no value; such an input is evaluated first.
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
