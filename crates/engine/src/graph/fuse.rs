//! Fusion of elementwise ops into one pass over memory.
//!
//! A node is fused into its user if both are elementwise on the same shape and nothing else in the schedule needs its
//! value in memory. A handle that the program still has does not prevent this: if the value is requested later, it is
//! recomputed, but only once; the next time the node is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Schedule;
use crate::Tensor;
use crate::ops::Op;
use crate::ops::fused::{Action, Fused, Step};
use crate::tensor::{Node, Work};

/// Maximum number of steps of a program; each value of it occupies a block of the L1 cache.
const MAX_FUSED_STEPS: usize = 24;

/// The users of a value, as far as they have been visited.
#[derive(Clone, Copy, PartialEq)]
enum Users {
    None,
    /// Only the program of this entry, element by element.
    Program(usize),
    /// Others, which read it from memory, for this reason.
    Memory(&'static str),
}

impl Schedule {
    /// Fuses every elementwise node into its users where possible, and rewrites those.
    pub(super) fn fuse_elementwise(&mut self) {
        let count = self.entries.len();
        if count < 2 {
            return;
        }
        // The entry whose program computes each entry: itself, or a later one. Entries come after their inputs, so
        // going backwards, all users of an entry are decided before it is.
        let mut home: Vec<usize> = (0..count).collect();
        let mut users = vec![Users::None; count];
        let mut steps = vec![1; count];
        // Upper bound on the inputs of each program: a value that is used twice counts twice.
        let mut reads = vec![0; count];
        for i in (0..count).rev() {
            let entry = &self.entries[i];
            let work = entry.node.work();
            let Some(w) = &*work else { continue };
            if entry.inlined {
                continue;
            }
            let pointwise = Action::of(&w.op).is_some();
            reads[i] = w.inputs.len();
            let max_inputs = entry.node.placement.device.capabilities().max_fused_inputs;
            if let Users::Program(h) = users[i]
                && pointwise
            {
                let obstacle = if entry.root {
                    Some("its value is read")
                } else if steps[h] >= MAX_FUSED_STEPS {
                    Some("the program has the maximum number of steps")
                } else if reads[h] + reads[i] - 1 > max_inputs {
                    Some("the program has the maximum number of inputs")
                } else if !self.may_inline(i) {
                    Some("it was computed again before")
                } else {
                    None
                };
                if let Some(reason) = obstacle {
                    event!(DEBUG, "not fused", op = w.op.name(), reason = reason);
                    entry.not_fused.set(Some(reason));
                } else {
                    home[i] = h;
                    steps[h] += 1;
                    reads[h] += reads[i] - 1;
                }
            } else if pointwise && let Users::Memory(reason) = users[i] {
                event!(DEBUG, "not fused", op = w.op.name(), reason = reason);
                entry.not_fused.set(Some(reason));
            }
            for input in &w.inputs {
                let Some(&j) = self.index.get(&Arc::as_ptr(&input.node)) else {
                    continue;
                };
                let obstacle = if !pointwise {
                    Some("an op that is not elementwise reads it from memory")
                } else if input.node.placement.device != entry.node.placement.device {
                    Some("another device reads it from memory")
                } else if !input.layout().is_whole()
                    || *input.shape() != entry.node.shape
                    // Through another shape, its own inputs would have to be broadcast to that.
                    || input.node.shape != entry.node.shape
                {
                    Some("it is read from memory through a view, or broadcast")
                } else {
                    None
                };
                users[j] = match (users[j], obstacle) {
                    (known @ Users::Memory(_), _) => known,
                    (_, Some(reason)) => Users::Memory(reason),
                    (Users::None, None) => Users::Program(home[i]),
                    (known @ Users::Program(h), None) if h == home[i] => known,
                    (Users::Program(_), None) => {
                        Users::Memory("several kernels read it from memory")
                    }
                };
            }
        }
        for i in 0..count {
            self.entries[i].inlined |= home[i] != i;
            if home[i] == i && steps[i] > 1 {
                let member = |t: &Tensor| {
                    let j = self.index.get(&Arc::as_ptr(&t.node));
                    j.is_some_and(|&j| home[j] == i)
                };
                let node = &self.entries[i].node;
                let mut work = node.work();
                if let Some(w) = &*work {
                    let fused = Builder::build(node, w, &member);
                    event!(
                        DEBUG,
                        "fused",
                        last = w.op.name(),
                        ops = steps[i],
                        inputs = fused.inputs.len()
                    );
                    *work = Some(fused);
                }
            }
        }
    }

    /// Returns `true` if a node may be computed without being kept.
    pub(super) fn may_inline(&self, i: usize) -> bool {
        let entry = &self.entries[i];
        // Its owners in the schedule are its users and the entry itself.
        let has_handle = Arc::strong_count(&entry.node) > entry.uses + 1;
        !has_handle || !entry.node.inlined.load(Ordering::Relaxed)
    }
}

/// A value of a program being built: inputs and steps are numbered separately until all inputs are known.
#[derive(Clone, Copy)]
enum Value {
    Input(usize),
    Step(usize),
}

struct Builder<'a> {
    member: &'a dyn Fn(&Tensor) -> bool,
    inputs: Vec<Tensor>,
    steps: Vec<(Action, [Value; 3], crate::DType)>,
    // A program is short: a linear search is faster than a hash map.
    done: Vec<(*const Node, Value)>,
}

impl<'a> Builder<'a> {
    /// Builds the program of a node and its members.
    fn build(node: &Node, work: &Work, member: &'a dyn Fn(&Tensor) -> bool) -> Work {
        let mut builder = Self {
            member,
            inputs: Vec::new(),
            steps: Vec::new(),
            done: Vec::new(),
        };
        builder.step(node, work);
        let inputs = builder.inputs;
        let number = |v: Value| match v {
            Value::Input(i) => i as u16,
            Value::Step(s) => (inputs.len() + s) as u16,
        };
        let steps = builder.steps.into_iter().map(|(action, args, dtype)| Step {
            action,
            args: args.map(number),
            dtype,
        });
        Work {
            op: Op::from(Fused {
                shape: node.shape,
                steps: steps.collect(),
            }),
            inputs,
            target: work.target.clone(),
        }
    }

    fn step(&mut self, node: &Node, work: &Work) -> Value {
        let action = Action::of(&work.op).expect("only elementwise nodes are fused");
        let mut args = [Value::Input(0); 3];
        for (arg, input) in args.iter_mut().zip(&work.inputs) {
            *arg = self.value(input);
        }
        self.steps.push((action, args, node.dtype));
        Value::Step(self.steps.len() - 1)
    }

    fn value(&mut self, tensor: &Tensor) -> Value {
        if (self.member)(tensor) {
            let key = Arc::as_ptr(&tensor.node);
            if let Some(&(_, value)) = self.done.iter().find(|(node, _)| *node == key) {
                return value;
            }
            // Another thread may have computed or rewritten it by now; then it becomes an input.
            let work = tensor.node.work();
            if let Some(w) = &*work
                && Action::of(&w.op).is_some()
            {
                let value = self.step(&tensor.node, w);
                self.done.push((key, value));
                return value;
            }
        }
        let known =
            |t: &Tensor| Arc::ptr_eq(&t.node, &tensor.node) && t.layout() == tensor.layout();
        if let Some(i) = self.inputs.iter().position(known) {
            return Value::Input(i);
        }
        self.inputs.push(tensor.clone());
        Value::Input(self.inputs.len() - 1)
    }
}
