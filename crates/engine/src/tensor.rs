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

use crate::device::Place;
use crate::ops::alias::Alias;
use crate::ops::copy::Copy;
use crate::ops::{Meta, Op, Rule};
use crate::storage::Storage;
use crate::{DType, Error, Layout, Result, Scalar, Shape, graph};

/// An array of numbers of one type, not necessarily computed yet.
///
/// A tensor is a handle: cloning it copies no data, and it can be sent to and used from any thread.
/// Methods and operators only record what is to be done; it is done, all of it together, when a value is
/// asked for ([`Tensor::to_vec`], [`Tensor::item`], [`Tensor::eval`], printing). Values never change.
///
/// # Errors
///
/// Methods and operators return a tensor, always, so that formulas read like formulas. A call that makes
/// no sense returns a tensor that *carries its error*, and whatever is computed from that carries it too;
/// each read returns it. [`Tensor::check`] asks at once.
///
/// ```
/// use bessemer::Tensor;
/// let a = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], [3]);
/// let b = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
/// let y = (&a + &b).exp();
/// let error = y.to_vec::<f32>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "add: shapes [3] and [2] do not fit: lengths, aligned at the last axis, must be equal or 1"
/// );
/// ```
#[derive(Clone)]
pub struct Tensor {
    pub(crate) node: Arc<Node>,
    layout: Layout,
}

/// A value of the graph: row-major, without gaps, computed at most once.
pub(crate) struct Node {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The value, once it is there.
    pub(crate) value: OnceLock<Storage>,
    /// How to compute it, until it is there. Whoever computes it holds the lock meanwhile.
    work: Mutex<Option<Work>>,
    /// Why there will be no value.
    error: Option<Box<Error>>,
    /// Where it is computed.
    pub(crate) place: Place,
    /// The number it is, if it is one that was written in the program.
    pub(crate) constant: Option<Scalar>,
    /// Whether it was once computed as part of another value without being kept.
    pub(crate) inlined: AtomicBool,
}

/// How to compute a node.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Tensor>,
    /// The memory that the result is to be written to, where somebody wants it in a place of his own.
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

    /// Whether an input can be used: its value is there, or it is a number that the op takes as such.
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
    /// A chain of a million nodes must not be a recursion a million calls deep.
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
    // A node is several hundred bytes, which would be copied once more.
    #[inline(always)]
    fn from_node(node: Node) -> Self {
        let layout = Layout::contiguous(node.shape);
        Self {
            node: Arc::new(node),
            layout,
        }
    }

    /// The tensor that a node is.
    pub(crate) fn of_node(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            layout: Layout::contiguous(node.shape),
        }
    }

    /// A tensor with these bytes, which must be as many as its shape and type need, and aligned.
    pub(crate) fn from_storage(dtype: DType, shape: Shape, storage: Storage) -> Self {
        Self::from_storage_at(Place::default(), dtype, shape, storage)
    }

    /// As [`Tensor::from_storage`], somewhere.
    pub(crate) fn from_storage_at(
        place: Place,
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
            place,
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
            place: Place::default(),
            constant: None,
            inlined: AtomicBool::new(false),
        })
    }

    /// The result of an op, recorded; or a tensor that carries the first error there is.
    pub(crate) fn apply(op: impl Rule, inputs: &[&Self]) -> Self {
        match Self::plan(&op, inputs) {
            Ok(result) => {
                let inputs = inputs.iter().map(|&t| t.clone()).collect();
                Self::record(op, result, inputs)
            }
            Err(error) => Self::failed(error),
        }
    }

    /// As [`Tensor::apply`] for two inputs, the second of which is handed over: small ops are so short that
    /// counting its owners once more shows.
    pub(crate) fn apply_to(op: impl Rule, first: &Self, second: Self) -> Self {
        match Self::plan(&op, &[first, &second]) {
            Ok(result) => Self::record(op, result, vec![first.clone(), second]),
            Err(error) => Self::failed(error),
        }
    }

    /// What an op will make of its inputs, and where; or the first error there is.
    fn plan(op: &impl Rule, inputs: &[&Self]) -> Result<(Meta, Place)> {
        for input in inputs {
            input.check()?;
        }
        let meta = op.infer(inputs)?;
        let place = Place::of(op.name(), inputs, meta.0, op.measured_as())?;
        Ok((meta, place))
    }

    #[inline]
    fn record(op: impl Rule, ((dtype, shape), place): (Meta, Place), inputs: Vec<Self>) -> Self {
        let op = op.into();
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
            place,
            constant,
            inlined: AtomicBool::new(false),
        })
    }

    /// The same value at another place.
    pub(crate) fn placed(&self, place: Place) -> Self {
        let (dtype, shape) = (self.dtype(), self.node.shape);
        let mut node = Node {
            dtype,
            shape,
            value: OnceLock::new(),
            work: Mutex::new(None),
            error: None,
            place,
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

    /// Computes the value into memory that somebody else chose, of the device that computes it.
    pub(crate) fn store(self, target: Storage) -> Result<()> {
        self.check()?;
        // What others hold or what exists already is copied there.
        let own = self.layout.is_whole() && Arc::strong_count(&self.node) == 1;
        let tensor = if own && !self.is_evaluated() && self.node.constant.is_none() {
            self
        } else {
            Self::apply(Copy, &[&self])
        };
        let size = tensor.node.shape.count() * tensor.dtype().size();
        debug_assert!(target.len() >= size, "checked by the caller");
        let aim = |tensor: &Self| -> Result<()> {
            if let Some(work) = &mut *tensor.node.work() {
                work.target = Some(target.clone());
            }
            tensor.eval()?;
            Ok(())
        };
        aim(&tensor)?;
        // What the CPU has computed for a device is brought there.
        match tensor.node.value.get() {
            Some(value) if !value.is(&target) => aim(&Self::apply(Copy, &[&tensor])),
            _ => Ok(()),
        }
    }

    /// The tensor that `body` returns, or a tensor that carries its error to the reader.
    pub fn attempt(body: impl FnOnce() -> Result<Self>) -> Self {
        body().unwrap_or_else(Self::failed)
    }

    /// The same node seen through another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        debug_assert!(layout.span().end <= self.node.shape.count().max(layout.offset()));
        Self {
            node: Arc::clone(&self.node),
            layout,
        }
    }

    /// The lengths of the axes. Of a tensor that carries an error: `[0]`.
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

    /// Where the elements lie.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// This tensor, or the error it carries.
    pub fn check(&self) -> Result<&Self> {
        match &self.node.error {
            None => Ok(self),
            Some(error) => Err((**error).clone()),
        }
    }

    /// Whether the value is there already.
    pub fn is_evaluated(&self) -> bool {
        self.node.value.get().is_some()
    }

    /// Computes the value now, with everything it depends on. On an error nothing is lost: the next try
    /// begins where this one stopped.
    pub fn eval(&self) -> Result<&Self> {
        graph::eval(&[self])?;
        Ok(self)
    }
}

/// Type, shape, strides where it is a view, and what is still to be done. Nothing is computed, and nothing
/// waited for.
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
