//! [`Tensor`]: a lazy, cheap handle.

mod create;
mod display;
mod operand;
mod operator;
mod read;
mod view;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub use operand::Operand;

use crate::device::Placement;
use crate::ops::alias::Alias;
use crate::ops::argument::Argument;
use crate::ops::copy::Copy;
use crate::ops::{Meta, Op, Rule};
use crate::storage::Storage;
use crate::{DType, Error, Layout, Result, Scalar, Shape, graph};

/// A lazily evaluated multi-dimensional array.
///
/// A tensor is a handle: cloning it copies no data, and it can be sent to and used from any thread.
/// Methods and operators only record a graph, which is evaluated when a value is requested
/// ([`Tensor::to_vec`], [`Tensor::item`], [`Tensor::eval`], printing). Values are immutable.
///
/// # Errors
///
/// Methods and operators always return a tensor, so that formulas read like formulas. An invalid call returns a tensor
/// that *carries its error*, as does everything computed from it; every read returns the error. [`Tensor::check`]
/// returns it without evaluating anything.
///
/// ```
/// use bessemer::Tensor;
/// let a = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], [3]);
/// let b = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
/// let y = (&a + &b).exp();
/// let error = y.to_vec::<f32>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "add: shapes [3] and [2] do not match: lengths, aligned at the last axis, must be equal or 1"
/// );
/// ```
#[derive(Clone)]
pub struct Tensor {
    pub(crate) node: Arc<Node>,
    layout: Layout,
}

/// The inferred dtype, shape and placement of an op's result. A struct of three fields is copied field by field here, which costs
/// a tiny op 4 % of its instructions.
type Inferred = (Meta, Placement);

/// A value of the graph: contiguous, computed at most once.
pub(crate) struct Node {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The value, once it is computed.
    pub(crate) value: OnceLock<Storage>,
    /// How to compute the value, until it is computed. The thread that computes it holds the lock meanwhile.
    work: Mutex<Option<Work>>,
    /// The error of an invalid call.
    error: Option<Box<Error>>,
    /// The device that computes it.
    pub(crate) placement: Placement,
    /// Its value, if it is a scalar constant.
    pub(crate) constant: Option<Scalar>,
    /// Whether it has been computed inside a fused node without being kept.
    pub(crate) inlined: AtomicBool,
}

/// How to compute a node.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Tensor>,
    /// Memory to write the result to, if the caller provides it.
    pub(crate) target: Option<Storage>,
}

impl Work {
    pub(crate) const fn new(op: Op, inputs: Vec<Tensor>) -> Self {
        Self {
            op,
            inputs,
            target: None,
        }
    }

    /// Returns `true` if an input is ready: evaluated, or a scalar constant that the op takes as such.
    pub(crate) fn has(&self, input: &Tensor) -> bool {
        input.is_evaluated() || (input.node.constant.is_some() && self.op.is_pointwise())
    }
}

impl Node {
    pub(crate) fn work(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    /// Drops a chain of nodes without recursion: it may be a million nodes long.
    fn drop(&mut self) {
        let take = |node: &mut Self| match node.work.get_mut() {
            Ok(work) => work.take(),
            Err(poisoned) => poisoned.into_inner().take(),
        };
        let Some(work) = take(self) else {
            return;
        };
        let mut open = work.inputs;
        while let Some(tensor) = open.pop() {
            if let Some(mut node) = Arc::into_inner(tensor.node)
                && let Some(work) = take(&mut node)
            {
                open.extend(work.inputs);
            }
        }
    }
}

impl Tensor {
    // Avoids one more copy of a node, which is several hundred bytes.
    #[inline(always)]
    fn from_node(node: Node) -> Self {
        let layout = Layout::contiguous(node.shape);
        Self {
            node: Arc::new(node),
            layout,
        }
    }

    /// A tensor of a node's whole value.
    pub(crate) fn of_node(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            layout: Layout::contiguous(node.shape),
        }
    }

    /// A tensor with these bytes, which must be aligned and at least as many as its shape and type require.
    pub(crate) fn from_storage(dtype: DType, shape: Shape, storage: Storage) -> Self {
        Self::from_storage_at(Placement::default(), dtype, shape, storage)
    }

    /// [`Tensor::from_storage`] with a placement.
    pub(crate) fn from_storage_at(
        placement: Placement,
        dtype: DType,
        shape: Shape,
        storage: Storage,
    ) -> Self {
        debug_assert!(storage.len() >= shape.count() * dtype.size());
        Self::from_node(Node {
            dtype,
            shape,
            value: OnceLock::from(storage),
            work: Mutex::new(None),
            error: None,
            placement,
            constant: None,
            inlined: AtomicBool::new(false),
        })
    }

    /// A tensor that carries an error.
    pub(crate) fn failed(error: Error) -> Self {
        Self::from_node(Node {
            dtype: DType::F32,
            shape: Shape::new("error", &[0]).expect("a shape of rank 1"),
            value: OnceLock::new(),
            work: Mutex::new(None),
            error: Some(Box::new(error)),
            placement: Placement::default(),
            constant: None,
            inlined: AtomicBool::new(false),
        })
    }

    /// An argument of a function that is being traced.
    pub(crate) fn argument(
        placement: Placement,
        dtype: DType,
        shape: Shape,
        argument: Argument,
    ) -> Self {
        Self::from_node(Node {
            dtype,
            shape,
            value: OnceLock::new(),
            work: Mutex::new(Some(Work::new(Op::Argument(argument), Vec::new()))),
            error: None,
            placement,
            constant: None,
            inlined: AtomicBool::new(false),
        })
    }

    /// Records an op and returns its result, or a tensor that carries the first error.
    pub(crate) fn apply(op: impl Rule, inputs: &[&Self]) -> Self {
        match Self::infer(&op, inputs) {
            Ok(result) => {
                let inputs = inputs.iter().map(|&t| t.clone()).collect();
                Self::record(op, result, inputs)
            }
            Err(error) => Self::failed(error),
        }
    }

    /// [`Tensor::apply`] for two inputs, of which it takes the second by value: in small ops the cost of another
    /// reference count is measurable.
    pub(crate) fn apply_to(op: impl Rule, first: &Self, second: Self) -> Self {
        match Self::infer(&op, &[first, &second]) {
            Ok(result) => Self::record(op, result, vec![first.clone(), second]),
            Err(error) => Self::failed(error),
        }
    }

    /// Infers the dtype, shape and placement of a result, or returns the first error.
    fn infer(op: &impl Rule, inputs: &[&Self]) -> Result<Inferred> {
        for input in inputs {
            input.check()?;
        }
        let meta = op.infer(inputs)?;
        let placement = Placement::of(op.name(), inputs, meta.0, op.measured_as())?;
        Ok((meta, placement))
    }

    #[inline]
    fn record(op: impl Rule, (meta, placement): Inferred, inputs: Vec<Self>) -> Self {
        Self::recorded(op.into(), placement, meta, inputs)
    }

    /// A tensor that an op computes on a device, from inputs that match.
    #[inline]
    pub(crate) fn recorded(
        op: Op,
        placement: Placement,
        (dtype, shape): Meta,
        inputs: Vec<Self>,
    ) -> Self {
        let constant = match &op {
            Op::Full(full) => Some(full.value),
            _ => None,
        };
        Self::from_node(Node {
            dtype,
            shape,
            value: OnceLock::new(),
            work: Mutex::new(Some(Work::new(op, inputs))),
            error: None,
            placement,
            constant,
            inlined: AtomicBool::new(false),
        })
    }

    /// The same value with another placement.
    pub(crate) fn placed(&self, placement: Placement) -> Self {
        let (dtype, shape) = (self.dtype(), self.node.shape);
        let mut node = Node {
            dtype,
            shape,
            value: OnceLock::new(),
            work: Mutex::new(None),
            error: None,
            placement,
            constant: self.node.constant,
            inlined: AtomicBool::new(false),
        };
        match self.node.value.get() {
            Some(storage) => node.value = OnceLock::from(storage.clone()),
            None => {
                let inputs = vec![Self::of_node(&self.node)];
                node.work = Mutex::new(Some(Work::new(Op::Alias(Alias), inputs)));
            }
        }
        Self::from_node(node).with_layout(self.layout)
    }

    /// Computes the value into the caller's memory, which is of the device that computes it.
    pub(crate) fn store(self, target: Storage) -> Result<()> {
        self.check()?;
        // A value that is shared or exists already is copied there.
        let is_unique = self.layout.is_whole() && Arc::strong_count(&self.node) == 1;
        let tensor = if is_unique && !self.is_evaluated() && self.node.constant.is_none() {
            self
        } else {
            Self::apply(Copy, &[&self])
        };
        let size = tensor.node.shape.count() * tensor.dtype().size();
        debug_assert!(target.len() >= size, "checked by the caller");
        let eval_into_target = |tensor: &Self| -> Result<()> {
            if let Some(work) = &mut *tensor.node.work() {
                work.target = Some(target.clone());
            }
            tensor.eval()?;
            Ok(())
        };
        eval_into_target(&tensor)?;
        // A result that the CPU has computed for the device is elsewhere, and copied.
        match tensor.node.value.get() {
            Some(value) if !value.is(&target) => eval_into_target(&Self::apply(Copy, &[&tensor])),
            _ => Ok(()),
        }
    }

    /// Returns the tensor of `body`, or a tensor that carries its error.
    pub fn attempt(body: impl FnOnce() -> Result<Self>) -> Self {
        body().unwrap_or_else(Self::failed)
    }

    /// A view of the same node with another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        debug_assert!(layout.span().end <= self.node.shape.count().max(layout.offset()));
        Self {
            node: Arc::clone(&self.node),
            layout,
        }
    }

    /// The lengths of the axes; `[0]` for a tensor that carries an error.
    pub const fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The length of an axis; negative ones count from the end.
    pub fn dim(&self, axis: isize) -> Result<usize> {
        self.check()?;
        Ok(self.shape()[self.shape().axis("dim", axis)?])
    }

    /// Number of axes.
    pub const fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape().count()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.node.dtype
    }

    /// The layout of the elements in the storage.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the tensor, or the error it carries.
    pub fn check(&self) -> Result<&Self> {
        match &self.node.error {
            None => Ok(self),
            Some(error) => Err((**error).clone()),
        }
    }

    /// Returns `true` if the value is computed, or pending on the device.
    pub fn is_evaluated(&self) -> bool {
        self.node.value.get().is_some()
    }

    /// Evaluates the tensor and everything it depends on. After an error the next attempt continues where this one
    /// stopped.
    pub fn eval(&self) -> Result<&Self> {
        graph::eval(&[self])?;
        Ok(self)
    }
}

/// Shows type, shape, the strides of a view, and the pending op. Neither computes nor waits.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.node.error {
            return write!(f, "Tensor({error})");
        }
        write!(f, "Tensor({} {}", self.dtype(), self.shape())?;
        if !self.layout.is_whole() {
            let (strides, offset) = (self.layout.strides(), self.layout.offset());
            write!(f, ", view by {strides:?} from {offset}")?;
        }
        if !self.is_evaluated() {
            match self.node.work.try_lock().as_deref() {
                Ok(Some(work)) => write!(f, ", {} pending", work.op.name())?,
                _ => f.write_str(", being computed")?,
            }
        }
        f.write_str(")")
    }
}
