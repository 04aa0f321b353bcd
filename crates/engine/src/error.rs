//! What can go wrong.

use crate::{DType, Shape};

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. Every message names the op, the shapes or types it was given, and what would help.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes do not fit together.
    #[error("{op}: shapes {left} and {right} do not fit: {reason}")]
    ShapeMismatch {
        /// The op.
        op: &'static str,
        /// The shape of the first operand.
        left: Shape,
        /// The shape of the second operand, or the shape asked for.
        right: Shape,
        /// What must hold.
        reason: &'static str,
    },
    /// A tensor has too few, too many or the wrong dimensions.
    #[error("{op}: shape {shape} does not serve: {reason}")]
    BadShape {
        /// The op.
        op: &'static str,
        /// The shape it was given.
        shape: Shape,
        /// What must hold.
        reason: String,
    },
    /// An op does not exist for a type.
    #[error("{op}: not defined for {dtype}: {expected}; convert with `cast`")]
    BadDType {
        /// The op.
        op: &'static str,
        /// The type it was given.
        dtype: DType,
        /// What it takes.
        expected: &'static str,
    },
    /// An axis that the tensor does not have.
    #[error("{op}: axis {axis} is out of range for a tensor of rank {rank}")]
    BadAxis {
        /// The op.
        op: &'static str,
        /// The axis, as it was given; negative ones count from the end.
        axis: isize,
        /// Dimensions of the tensor.
        rank: usize,
    },
    /// An index that lies outside the axis it is for.
    #[error("{op}: index {index} is out of range for an axis of length {len}")]
    BadIndex {
        /// The op.
        op: &'static str,
        /// The index, as it was given.
        index: i64,
        /// The length of the axis.
        len: usize,
    },
    /// An argument that makes no sense.
    #[error("{op}: {reason}")]
    Invalid {
        /// The op.
        op: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// More dimensions than a tensor can have.
    #[error("{op}: rank {rank} is more than the {max} dimensions a tensor can have", max = crate::shape::MAX_RANK)]
    RankTooLarge {
        /// The op.
        op: &'static str,
        /// Dimensions asked for.
        rank: usize,
    },
    /// A size that cannot be counted in bytes.
    #[error("{op}: a tensor of {dims:?} elements is larger than the address space")]
    SizeOverflow {
        /// The op.
        op: &'static str,
        /// The dimensions asked for.
        dims: Vec<usize>,
    },
    /// The memory is used up, or the limit set for it.
    #[error(
        "{op}: no memory for {requested} bytes: {in_use} bytes are in use, the limit is {limit}"
    )]
    OutOfMemory {
        /// The op.
        op: &'static str,
        /// Bytes asked for.
        requested: usize,
        /// Bytes in use by tensors.
        in_use: usize,
        /// The limit in bytes; see [`crate::memory::set_memory_limit`].
        limit: usize,
    },
    /// A device failed, or does not exist.
    #[error("{op}: {source}")]
    Device {
        /// The op.
        op: &'static str,
        /// What the device says.
        source: Box<bessemer_hal::Error>,
    },
    /// What a device cannot do.
    #[error("{op}: not on {device}: {what}")]
    Unsupported {
        /// The op.
        op: &'static str,
        /// What was asked for, and what would help.
        what: String,
        /// The device.
        device: String,
    },
    /// A read as another type than the tensor's.
    #[error("{op}: the tensor holds {actual}, not {requested}; convert with `cast`")]
    WrongType {
        /// The op.
        op: &'static str,
        /// The type of the tensor.
        actual: DType,
        /// The type asked for.
        requested: DType,
    },
    /// A file that cannot be read, written or understood.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    pub(crate) fn device(op: &'static str, source: bessemer_hal::Error) -> Self {
        Self::Device {
            op,
            source: Box::new(source),
        }
    }
}
