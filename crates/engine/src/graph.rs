//! From tensors asked for to kernels run.
//!
//! A tensor is a node of a graph that grows as a program calls methods. [`eval`] looks at what the nodes
//! asked for depend on, and
//! - leaves out what nothing needs: only nodes that are reached are looked at;
//! - finds equal expressions and computes them once;
//! - adds to products as they are made, where a device can ([`epilogue`]);
//! - joins elementwise ops into one pass over memory ([`fuse`]);
//! - runs the rest in the order of dependence, giving each op the memory of an input that nobody needs
//!   any more ([`dispatch`]), and letting go of every value after its last use.
//!
//! Passes rewrite the [`Work`] of nodes into other work with the same value. Whatever happens in between,
//! an error or another thread with the same nodes, every node stays computable.

mod background;
mod epilogue;
mod fuse;
mod plan;

use std::collections::{HashMap, hash_map};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use background::{async_eval, synchronize};
pub use plan::{Plan, PlannedStep, explain};

use crate::ops::Op;
use crate::ops::alias::Alias;
use crate::tensor::{Node, Work};
use crate::{DType, Device, Result, Scalar, Tensor, dispatch};

/// Computes the values of all these tensors, sharing what they have in common.
pub fn eval(tensors: &[&Tensor]) -> Result<()> {
    for tensor in tensors {
        tensor.check()?;
    }
    let done = match tensors {
        [tensor] => tensor.is_evaluated() || run_if_ready(&tensor.node)?,
        _ => false,
    };
    if !done {
        Schedule::new(tensors).run()?;
    }
    for tensor in tensors {
        tensor.device().flush();
    }
    Ok(())
}

/// What computing a tensor comes down to once all that joins has joined; `None` if its value is there.
pub(crate) fn prepared(tensor: &Tensor) -> Result<Option<Work>> {
    tensor.check()?;
    Schedule::new(&[tensor]);
    Ok(tensor.node.work().clone())
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
    index: HashMap<*const Node, usize, BuildHasherDefault<WordHasher>>,
}

/// Nodes that there is room for from the beginning: what most programs ask for at once, so that tables need
/// not grow on the way, which costs more than all else they do.
const USUAL: usize = 24;

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

/// Nodes that turned out to be what an earlier node is.
#[derive(Default)]
struct Same(HashMap<*const Node, *const Node, BuildHasherDefault<WordHasher>>);

impl Same {
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
            // Strides of the whole tensors that most inputs are say nothing more.
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

/// Pointers, and what little else there is in an op, are spread well enough by one multiplication a word.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // The best bits are the high ones, tables look at the low ones.
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
            entries: Vec::with_capacity(USUAL),
            index: HashMap::with_capacity_and_hasher(USUAL, BuildHasherDefault::default()),
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
        schedule.add_to_products();
        schedule.fuse();
        schedule
    }

    /// Adds a node and all it depends on, inputs first, without recursion: graphs can be deep.
    fn add(&mut self, root: &Arc<Node>) {
        // The nodes on the way from the root, each with the number of entries of `inputs` that are not
        // its own; what is above those are inputs still to be looked at.
        let mut open: Vec<(Arc<Node>, usize)> = Vec::with_capacity(USUAL);
        let mut inputs: Vec<Arc<Node>> = Vec::with_capacity(USUAL);
        let enter = |node: Arc<Node>, open: &mut Vec<_>, inputs: &mut Vec<_>| {
            // Waits while another thread computes it, which then leaves nothing to do.
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
                let input = Arc::clone(inputs.last().expect("there are more"));
                if let Some(&i) = self.index.get(&Arc::as_ptr(&input)) {
                    self.entries[i].uses += 1;
                    inputs.pop();
                } else if !enter(input, &mut open, &mut inputs) {
                    // Computed in the meantime.
                    inputs.pop();
                }
                // Otherwise it is counted when it is added. It cannot be below in `open`: that would be
                // a cycle, and there is no way to make one.
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
        // By hash first: few expressions are like another, and only those are worth a closer look.
        let mut seen: HashMap<u64, usize, BuildHasherDefault<WordHasher>> =
            HashMap::with_capacity_and_hasher(self.entries.len(), BuildHasherDefault::default());
        let mut same = Same::default();
        for i in 0..self.entries.len() {
            let node = &self.entries[i].node;
            let hash = |w: &Work| same.hash(w, &node.place.device);
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
            // One lock at a time: another thread may look at the same two in the other order.
            let work = node.work().clone();
            let first = &self.entries[j].node;
            let equal = match (&work, &*first.work()) {
                // What is wanted in a place of its own is computed there.
                (Some(a), _) if a.target.is_some() => false,
                (Some(a), Some(b)) => node.place == first.place && same.equal(a, b),
                _ => false,
            };
            if equal {
                let mut work = node.work();
                if work.is_some() {
                    same.insert(Arc::as_ptr(node), Arc::as_ptr(first));
                    let inputs = vec![Tensor::of_node(first)];
                    *work = Some(Work::new(Op::Alias(Alias), inputs));
                }
            }
        }
        if same.0.is_empty() {
            return;
        }
        // Users of a duplicate use the first one, so that they can join it.
        for entry in &self.entries {
            let mut work = entry.node.work();
            for input in work.iter_mut().flat_map(|w| &mut w.inputs) {
                let first = same.0.get(&Arc::as_ptr(&input.node));
                if let Some(&first) = first.and_then(|first| self.index.get(first)) {
                    let first = Tensor::of_node(&self.entries[first].node);
                    *input = first.with_layout(*input.layout());
                }
            }
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
