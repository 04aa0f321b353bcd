//! A validated call as an op of the graph.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bessemer_hal::Pipeline;

use super::ProgramLaunch;
use super::grid::LaunchGrid;
use crate::ops::Op;
use crate::storage::Storage;
use crate::{DType, Shape};

/// A tensor argument of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BoundTensor {
    /// The input of the node with this position, read only.
    Input(usize),
    /// The result with this position.
    Result(usize),
}

/// A result of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelResult {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The input of the node whose value the result has before the launch.
    pub(crate) updates: Option<usize>,
}

impl KernelResult {
    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.count() * self.dtype.size()
    }
}

/// A launch of a custom kernel, complete but for its buffers.
pub(crate) struct CustomLaunch {
    pub(crate) name: &'static str,
    pub(crate) pipeline: Pipeline,
    /// Tensor arguments by buffer index.
    pub(crate) tensors: Vec<(u32, BoundTensor)>,
    /// Scalars by buffer index.
    pub(crate) values: Vec<(u32, Vec<u8>)>,
    /// Bytes of threadgroup memory by index.
    pub(crate) threadgroup: Vec<(u32, usize)>,
    pub(crate) grid: LaunchGrid,
    pub(crate) results: Vec<KernelResult>,
    /// The results of a launch with several, until their nodes take them.
    pub(super) computed: Mutex<Vec<Option<Storage>>>,
}

impl CustomLaunch {
    fn computed(&self) -> MutexGuard<'_, Vec<Option<Storage>>> {
        self.computed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the results for their nodes.
    pub(crate) fn keep(&self, results: Vec<Storage>) {
        *self.computed() = results.into_iter().map(Some).collect();
    }
}

impl fmt::Debug for CustomLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomLaunch({})", self.name)
    }
}

/// A custom kernel as an op.
#[derive(Clone, Debug)]
pub(crate) enum CustomOp {
    /// A launch of a Metal kernel. Its value is the result of the kernel; that of a kernel with several results is empty,
    /// and each result is the value of a [`CustomOutput`].
    Metal(Arc<CustomLaunch>),
    /// A run of a program.
    Program(Arc<ProgramLaunch>),
}

impl CustomOp {
    /// The name in errors and plans.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Metal(launch) => launch.name,
            Self::Program(launch) => launch.name,
        }
    }

    /// Returns `true` if the memory of an input may be that of a result.
    pub(crate) fn may_update(&self, input: usize) -> bool {
        match self {
            Self::Metal(launch) => launch.results.iter().any(|r| r.updates == Some(input)),
            Self::Program(_) => false,
        }
    }

    /// Bytes of all results, of which the node has `bytes`.
    pub(crate) fn result_bytes(&self, bytes: usize) -> usize {
        match self {
            Self::Metal(launch) => launch.results.iter().map(KernelResult::bytes).sum(),
            Self::Program(_) => bytes,
        }
    }

    /// The address of the launch.
    fn address(&self) -> *const () {
        match self {
            Self::Metal(launch) => Arc::as_ptr(launch).cast(),
            Self::Program(launch) => Arc::as_ptr(launch).cast(),
        }
    }
}

impl fmt::Debug for ProgramLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramLaunch({})", self.name)
    }
}

/// One of several results of a launch, which is the node's input.
#[derive(Clone, Debug)]
pub(crate) struct CustomOutput {
    pub(crate) launch: Arc<CustomLaunch>,
    pub(crate) index: usize,
}

impl CustomOutput {
    /// The value, once the launch is recorded.
    pub(crate) fn take(&self) -> Option<Storage> {
        self.launch.computed().get_mut(self.index)?.take()
    }
}

// Two calls are two launches even if all their arguments are equal: results belong to the nodes of their call.
impl PartialEq for CustomOp {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.address(), other.address())
    }
}

impl Eq for CustomOp {}

impl Hash for CustomOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.address(), state);
    }
}

impl PartialEq for CustomOutput {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.launch, &other.launch) && self.index == other.index
    }
}

impl Eq for CustomOutput {}

impl Hash for CustomOutput {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(Arc::as_ptr(&self.launch), state);
        self.index.hash(state);
    }
}

impl From<CustomOp> for Op {
    fn from(op: CustomOp) -> Self {
        Self::Custom(op)
    }
}

impl From<CustomOutput> for Op {
    fn from(op: CustomOutput) -> Self {
        Self::CustomOutput(op)
    }
}
