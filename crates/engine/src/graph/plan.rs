//! `explain`: the schedule of an evaluation, for people to read and tests to count.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::Schedule;
use crate::ops::Op;
use crate::ops::Rule;
use crate::ops::fused::{Action, Step};
use crate::tensor::Node;
use crate::{DType, Result, Shape, Tensor, dispatch};

/// The schedule of an [`eval`](super::eval): its kernels in order, and the memory they need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The kernels, in order.
    pub steps: Vec<PlannedStep>,
    /// Peak memory of the results in bytes, without inputs that exist already.
    pub peak_bytes: usize,
}

impl Plan {
    /// Kernel launches.
    pub fn launches(&self) -> usize {
        self.steps.iter().map(|step| step.launches).sum()
    }
}

/// A kernel of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedStep {
    /// The op, or the fused ops.
    pub ops: Vec<&'static str>,
    /// The shape of its result.
    pub shape: Shape,
    /// The type of its result.
    pub dtype: DType,
    /// Bytes read, counting each element of the inputs once.
    pub bytes_read: usize,
    /// Bytes written.
    pub bytes_written: usize,
    /// Whether an input is donated to the result.
    pub in_place: bool,
    /// Kernel launches; on the CPU, 1. 0 for a value that needs none, and on a Metal device for an op that the CPU computes
    /// instead.
    pub launches: usize,
    /// Why the kernel is not part of a later one, if the op could be fused with its user in principle: elementwise ops with
    /// elementwise ops, and matmuls with their epilogues.
    pub not_fused: Option<&'static str>,
}

/// Returns the schedule of evaluating these tensors. Nothing is computed.
///
/// ```
/// use bessemer::{DType, Tensor, explain};
/// let x = Tensor::ones([1000], DType::F32).contiguous();
/// let y = ((&x * 2.0 + 1.0).exp() - &x).tanh();
/// let plan = explain(&[&y])?;
/// assert_eq!(plan.steps.last().unwrap().ops, ["mul", "add", "exp", "sub", "tanh"]);
/// # Ok::<(), bessemer::Error>(())
/// ```
pub fn explain(tensors: &[&Tensor]) -> Result<Plan> {
    for tensor in tensors {
        tensor.check()?;
    }
    Schedule::new(tensors).plan()
}

impl Schedule {
    /// The kernels of the schedule and their memory.
    pub(super) fn plan(&self) -> Result<Plan> {
        let schedule = self;
        let mut uses: HashMap<*const Node, usize> = HashMap::new();
        let entries = || schedule.entries.iter().filter(|e| !e.inlined);
        for entry in entries() {
            if entry.root {
                *uses.entry(Arc::as_ptr(&entry.node)).or_default() += 1;
            }
            if let Some(w) = &*entry.node.work() {
                for input in &w.inputs {
                    *uses.entry(Arc::as_ptr(&input.node)).or_default() += 1;
                }
            }
        }
        let mut plan = Plan {
            steps: Vec::new(),
            peak_bytes: 0,
        };
        let mut live: HashMap<*const Node, usize> = HashMap::new();
        for entry in entries() {
            let node = &entry.node;
            let work = node.work();
            let Some(w) = &*work else { continue };
            if let Op::Argument(_) = w.op {
                continue;
            }
            let bytes = node.shape.count() * node.dtype.size();
            let is_scheduled = |t: &Tensor| schedule.index.contains_key(&Arc::as_ptr(&t.node));
            let donated = (0..w.inputs.len()).find(|&i| {
                let t = &w.inputs[i];
                let users = uses.get(&Arc::as_ptr(&t.node));
                is_scheduled(t) && users == Some(&1) && dispatch::may_donate(&w.op, node, i, t)
            });
            let in_place = donated.is_some();
            // An alias shares the memory of its input, which the alias's users keep alive from then on.
            if !in_place && !matches!(w.op, Op::Alias(_)) {
                live.insert(Arc::as_ptr(node), bytes);
            }
            plan.peak_bytes = plan.peak_bytes.max(live.values().sum());
            for input in &w.inputs {
                let key = Arc::as_ptr(&input.node);
                let left = uses.entry(key).or_default();
                *left -= 1;
                if *left == 0
                    && live.remove(&key).is_some()
                    && (in_place || matches!(w.op, Op::Alias(_)))
                {
                    live.insert(Arc::as_ptr(node), bytes);
                }
            }
            let (written, is_launch) = match &w.op {
                Op::Custom(op) => (op.result_bytes(bytes), true),
                // Written by the launch before it.
                Op::CustomOutput(_) => (0, false),
                _ => (bytes, true),
            };
            if !is_launch {
                continue;
            }
            let weights = match &w.op {
                Op::QuantMatmul(op) => op.matrix.bytes().len(),
                _ => 0,
            };
            plan.steps.push(PlannedStep {
                ops: names(&w.op),
                shape: node.shape,
                dtype: node.dtype,
                bytes_read: w
                    .inputs
                    .iter()
                    .filter(|t| t.is_evaluated() || is_scheduled(t))
                    .map(bytes_read)
                    .sum::<usize>()
                    + weights,
                bytes_written: written,
                in_place,
                launches: dispatch::launches(node, w, donated)?,
                not_fused: entry.not_fused.get(),
            });
        }
        Ok(plan)
    }
}

/// Bytes of the distinct elements of a tensor; scalar constants have no storage.
fn bytes_read(tensor: &Tensor) -> usize {
    if tensor.node.constant.is_some() {
        return 0;
    }
    let layout = tensor.layout();
    let axes = layout.shape().iter().zip(layout.strides());
    let count: usize = axes.filter(|&(_, &s)| s != 0).map(|(&d, _)| d).product();
    count.min(tensor.count()) * tensor.dtype().size()
}

fn names(op: &Op) -> Vec<&'static str> {
    let of_step = |s: &Step| match s.action {
        Action::Unary(f) => f.name(),
        Action::Binary(f) => f.name(),
        Action::Ternary(f) => f.name(),
        Action::Cast => "cast",
    };
    match op {
        Op::Fused(fused) => fused.steps.iter().map(of_step).collect(),
        Op::Matmul(matmul) => {
            // The dtype does not matter for the names.
            let steps = matmul.epilogue.steps(DType::F32);
            let names = steps.iter().map(of_step);
            [op.name()].into_iter().chain(names).collect()
        }
        op => vec![op.name()],
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            let in_place = if step.in_place { ", in place" } else { "" };
            write!(
                f,
                "{:>3}  {} -> {} {} ({} B read, {} B written{in_place})",
                i + 1,
                step.ops.join(" "),
                step.dtype,
                step.shape,
                step.bytes_read,
                step.bytes_written,
            )?;
            if step.launches != 1 {
                write!(f, ", {} launches", step.launches)?;
            }
            if let Some(reason) = step.not_fused {
                write!(f, "; not fused: {reason}")?;
            }
            writeln!(f)?;
        }
        let launches = self.launches();
        write!(f, "{launches} launches, peak memory {} B", self.peak_bytes)
    }
}
