//! The engine's error type.

use crate::{DType, Shape};

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine. Every message names the op, the shapes or types it was given, and the remedy if there is
/// one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes do not match.
    #[error("{op}: shapes {left} and {right} do not match: {reason}")]
    ShapeMismatch {
        /// The op.
        op: &'static str,
        /// The shape of the first operand.
        left: Shape,
        /// The shape of the second operand, or the requested shape.
        right: Shape,
        /// The shape rule of the op.
        reason: &'static str,
    },
    /// The op does not support the shape of a tensor.
    #[error("{op}: unsupported shape {shape}: {reason}")]
    BadShape {
        /// The op.
        op: &'static str,
        /// The shape it was given.
        shape: Shape,
        /// The shape rule of the op.
        reason: String,
    },
    /// The op is not defined for a type.
    #[error("{op}: not defined for {dtype}: {expected}; convert with `cast`")]
    BadDType {
        /// The op.
        op: &'static str,
        /// The type it was given.
        dtype: DType,
        /// The types it accepts.
        expected: &'static str,
    },
    /// An axis is out of range.
    #[error("{op}: axis {axis} is out of range for a tensor of rank {rank}")]
    BadAxis {
        /// The op.
        op: &'static str,
        /// The axis as given; negative ones count from the end.
        axis: isize,
        /// The rank of the tensor.
        rank: usize,
    },
    /// An index is out of range.
    #[error("{op}: index {index} is out of range for an axis of length {len}")]
    BadIndex {
        /// The op.
        op: &'static str,
        /// The index as given.
        index: i64,
        /// The length of the axis.
        len: usize,
    },
    /// An argument is invalid.
    #[error("{op}: {reason}")]
    Invalid {
        /// The op.
        op: &'static str,
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// The rank exceeds [`MAX_RANK`](crate::MAX_RANK).
    #[error("{op}: rank {rank} is more than the {max} dimensions a tensor can have", max = crate::shape::MAX_RANK)]
    RankTooLarge {
        /// The op.
        op: &'static str,
        /// The requested rank.
        rank: usize,
    },
    /// The size in bytes overflows.
    #[error("{op}: a tensor of {dims:?} elements is larger than the address space")]
    SizeOverflow {
        /// The op.
        op: &'static str,
        /// The requested dimensions.
        dims: Vec<usize>,
    },
    /// The memory, or the limit set for it, is exhausted.
    #[error(
        "{op}: no memory for {requested} bytes: {in_use} bytes are in use, the limit is {limit}"
    )]
    OutOfMemory {
        /// The op.
        op: &'static str,
        /// Requested bytes.
        requested: usize,
        /// Bytes in use by tensors.
        in_use: usize,
        /// The limit in bytes; see [`crate::memory::set_memory_limit`].
        limit: usize,
    },
    /// A device failed or is unavailable.
    #[error("{op}: {source}")]
    Device {
        /// The op.
        op: &'static str,
        /// The error of the hal.
        source: Box<bessemer_hal::Error>,
    },
    /// An environment variable has a value that it may not have; see [`crate::env`].
    #[error("{variable} is `{value}`; allowed: {allowed}")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values it may have.
        allowed: String,
    },
    /// The device does not support the op.
    #[error("{op}: not on {device}: {what}")]
    Unsupported {
        /// The op.
        op: &'static str,
        /// The unsupported feature, and the remedy.
        what: String,
        /// The device.
        device: String,
    },
    /// A program is invalid, refused or failed.
    #[error("{op}: {source}")]
    Program {
        /// The op.
        op: &'static str,
        /// The error of the program, with the instruction.
        source: Box<crate::program::ProgramError>,
    },
    /// Elements were requested as a type that is not the tensor's.
    #[error("{op}: the tensor is {actual}, not {requested}; convert with `cast`")]
    WrongType {
        /// The op.
        op: &'static str,
        /// The type of the tensor.
        actual: DType,
        /// The requested type.
        requested: DType,
    },
    /// A file cannot be read, written or parsed.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    pub(crate) fn program(op: &'static str, source: crate::program::ProgramError) -> Self {
        match source {
            crate::program::ProgramError::Device(error) => *error,
            source => Self::Program {
                op,
                source: Box::new(source),
            },
        }
    }

    pub(crate) fn device(op: &'static str, source: bessemer_hal::Error) -> Self {
        match source {
            bessemer_hal::Error::Environment {
                variable,
                value,
                allowed,
            } => Self::Environment {
                variable,
                value,
                allowed,
            },
            source => Self::Device {
                op,
                source: Box::new(source),
            },
        }
    }
}
