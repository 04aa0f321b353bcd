//! Errors of programs and of memory by handle, under hologram's names.

use bessemer::program::{FaultKind, ProgramError};

use super::BufferHandle;

/// Why a program or a request to a hologram backend failed. Failures of a running program name the instruction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is no such device on this machine.
    #[error("{0}")]
    BackendNotAvailable(String),
    /// The request cannot be served by this build or version.
    #[error("{0}")]
    InvalidOperation(String),
    /// A handle that was never given out, or that was freed.
    #[error("{0} does not exist")]
    InvalidBuffer(BufferHandle),
    /// A program used a handle that no buffer has.
    #[error("instruction {instruction}: no buffer has the handle {handle}")]
    InvalidBufferHandle {
        /// The handle.
        handle: u64,
        /// Index of the instruction.
        instruction: usize,
    },
    /// A program used a handle that no pool has.
    #[error("instruction {instruction}: no pool has the handle {handle}")]
    InvalidPoolHandle {
        /// The handle.
        handle: u64,
        /// Index of the instruction.
        instruction: usize,
    },
    /// An access behind the end of a buffer.
    #[error(
        "instruction {instruction}: {size} bytes at offset {offset} exceed the buffer's {buffer_size} bytes"
    )]
    BufferOutOfBounds {
        /// Offset in bytes.
        offset: u64,
        /// Bytes accessed.
        size: usize,
        /// Size of the buffer in bytes.
        buffer_size: usize,
        /// Index of the instruction.
        instruction: usize,
    },
    /// An access behind the end of a pool.
    #[error(
        "instruction {instruction}: {size} bytes at offset {offset} exceed the pool's {pool_size} bytes"
    )]
    PoolOutOfBounds {
        /// Offset in bytes.
        offset: u64,
        /// Bytes accessed.
        size: usize,
        /// Size of the pool in bytes.
        pool_size: usize,
        /// Index of the instruction.
        instruction: usize,
    },
    /// An address that is not aligned to the type, or behind the end of shared memory.
    #[error("instruction {instruction}: {reason}")]
    InvalidMemoryAddress {
        /// What is wrong with it.
        reason: String,
        /// Index of the instruction.
        instruction: usize,
    },
    /// An integer division by zero.
    #[error("instruction {instruction}: division by zero")]
    DivisionByZero {
        /// Index of the instruction.
        instruction: usize,
    },
    /// A register is read as a type that it does not hold.
    #[error("instruction {instruction}: {register} is read as {expected} but holds {actual}")]
    TypeMismatch {
        /// The register.
        register: String,
        /// Type that the instruction reads.
        expected: String,
        /// Type that the register holds.
        actual: String,
        /// Index of the instruction.
        instruction: usize,
    },
    /// A register is read before it was written.
    #[error("instruction {instruction}: {register} is read before it was written")]
    UninitializedRegister {
        /// The register.
        register: String,
        /// Index of the instruction.
        instruction: usize,
    },
    /// A predicate is read before it was written.
    #[error("instruction {instruction}: {predicate} is read before it was written")]
    UninitializedPredicate {
        /// The predicate.
        predicate: String,
        /// Index of the instruction.
        instruction: usize,
    },
    /// Too many nested calls.
    #[error("instruction {instruction}: more than {limit} nested calls")]
    CallStackOverflow {
        /// Maximum depth.
        limit: usize,
        /// Index of the instruction.
        instruction: usize,
    },
    /// `ret` without `call`.
    #[error("instruction {instruction}: ret without a call")]
    CallStackUnderflow {
        /// Index of the instruction.
        instruction: usize,
    },
    /// A class above 95.
    #[error("instruction {instruction}: class {class} is out of range: there are 96")]
    InvalidClassIndex {
        /// The class.
        class: u8,
        /// Index of the instruction.
        instruction: usize,
    },
    /// A page above 47.
    #[error("instruction {instruction}: page {page}, byte {byte} are not in the boundary pool")]
    InvalidBoundaryCoordinates {
        /// Page.
        page: u8,
        /// Byte.
        byte: u8,
        /// Index of the instruction.
        instruction: usize,
    },
    /// Any other failure of a running program.
    #[error("instruction {instruction}: {reason}")]
    ExecutionError {
        /// What went wrong.
        reason: String,
        /// Index of the instruction.
        instruction: usize,
    },
    /// An instruction refers to a label that the program does not have.
    #[error("instruction {instruction}: label `{label}` is not defined")]
    LabelNotFound {
        /// The label.
        label: String,
        /// Index of the instruction.
        instruction: usize,
    },
    /// A grid, block or shared memory that cannot be launched.
    #[error("launch: {0}")]
    InvalidLaunchConfig(String),
    /// Any other reason why a program is not valid, or not accepted by the executor.
    #[error(transparent)]
    ProgramError(ProgramError),
    /// An error of the engine or the device.
    #[error(transparent)]
    Other(#[from] bessemer::Error),
}

impl From<ProgramError> for BackendError {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Fault(fault) => Self::of_fault(fault.kind, fault.index),
            ProgramError::UndefinedLabel(label, instruction) => {
                Self::LabelNotFound { label, instruction }
            }
            ProgramError::Device(error) => Self::Other(*error),
            ProgramError::InvalidLaunch(reason) => Self::InvalidLaunchConfig(reason),
            ProgramError::TypeMismatch {
                index,
                register,
                expected,
                actual,
            } => Self::TypeMismatch {
                register: register.to_string(),
                expected: expected.to_string(),
                actual,
                instruction: index,
            },
            ProgramError::Uninitialized { index, name } if name.starts_with('p') => {
                Self::UninitializedPredicate {
                    predicate: name,
                    instruction: index,
                }
            }
            ProgramError::Uninitialized { index, name } => Self::UninitializedRegister {
                register: name,
                instruction: index,
            },
            error => Self::ProgramError(error),
        }
    }
}

impl BackendError {
    fn of_fault(kind: FaultKind, instruction: usize) -> Self {
        match kind {
            FaultKind::DivisionByZero => Self::DivisionByZero { instruction },
            FaultKind::BufferOutOfBounds {
                offset,
                size,
                buffer_size,
            } => Self::BufferOutOfBounds {
                offset,
                size,
                buffer_size,
                instruction,
            },
            FaultKind::PoolOutOfBounds {
                offset,
                size,
                pool_size,
            } => Self::PoolOutOfBounds {
                offset,
                size,
                pool_size,
                instruction,
            },
            FaultKind::InvalidBufferHandle(handle) => Self::InvalidBufferHandle {
                handle,
                instruction,
            },
            FaultKind::InvalidPoolHandle(handle) => Self::InvalidPoolHandle {
                handle,
                instruction,
            },
            kind @ (FaultKind::InvalidMemoryAddress { .. }
            | FaultKind::SharedOutOfBounds { .. }) => Self::InvalidMemoryAddress {
                reason: kind.to_string(),
                instruction,
            },
            FaultKind::TypeMismatch {
                register,
                expected,
                actual,
            } => Self::TypeMismatch {
                register: register.to_string(),
                expected: expected.to_string(),
                actual: actual.to_string(),
                instruction,
            },
            FaultKind::UninitializedRegister(register) => Self::UninitializedRegister {
                register: register.to_string(),
                instruction,
            },
            FaultKind::UninitializedPredicate(predicate) => Self::UninitializedPredicate {
                predicate: predicate.to_string(),
                instruction,
            },
            FaultKind::CallStackOverflow(limit) => Self::CallStackOverflow { limit, instruction },
            FaultKind::CallStackUnderflow => Self::CallStackUnderflow { instruction },
            FaultKind::InvalidClassIndex(class) => Self::InvalidClassIndex { class, instruction },
            FaultKind::InvalidBoundaryCoordinates { page, byte } => {
                Self::InvalidBoundaryCoordinates {
                    page,
                    byte,
                    instruction,
                }
            }
            FaultKind::Device(error) => Self::Other(*error),
            kind => Self::ExecutionError {
                reason: kind.to_string(),
                instruction,
            },
        }
    }
}
