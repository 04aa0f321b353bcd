//! What can be wrong with a program, and what can go wrong while it runs.

use std::path::Path;

use crate::DType;

/// A result with a [`ProgramError`].
pub type Result<T, E = ProgramError> = std::result::Result<T, E>;

/// What is wrong with a program, or with the request to run it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A label was added twice; the index is that of the second.
    #[error("label `{0}` at instruction {1} exists already")]
    DuplicateLabel(String, usize),
    /// An instruction refers to a label that the program does not have.
    #[error("instruction {1}: label `{0}` is not defined")]
    UndefinedLabel(String, usize),
    /// A label points behind the end of the program: label, index, number of instructions.
    #[error("label `{0}` points to instruction {1}, but there are only {2}")]
    InvalidLabelTarget(String, usize, usize),
    /// A name that cannot be a label.
    #[error(
        "`{0}` is not a label: it must start with a letter or `_`, followed by letters, digits, `_`, `.` or `$`"
    )]
    InvalidLabel(String),
    /// More instructions than [`MAX_INSTRUCTIONS`](super::MAX_INSTRUCTIONS).
    #[error("the program has {instructions} instructions, the limit is {max}", max = super::MAX_INSTRUCTIONS)]
    TooLong {
        /// Number of instructions.
        instructions: usize,
    },
    /// An operand is out of range, or the instruction is not defined for its type.
    #[error("instruction {index}: {mnemonic}: {reason}")]
    InvalidInstruction {
        /// Index of the instruction.
        index: usize,
        /// Its mnemonic.
        mnemonic: &'static str,
        /// What must hold.
        reason: String,
    },
    /// A register is read as a type that it does not hold.
    #[error("instruction {index}: {register} is read as {expected} but holds {actual}")]
    TypeMismatch {
        /// Index of the instruction.
        index: usize,
        /// The register.
        register: super::Register,
        /// The type that the instruction reads.
        expected: DType,
        /// What the register holds, or may hold.
        actual: String,
    },
    /// A register or predicate may be read before it was written.
    #[error("instruction {index}: {name} is read, but may not have been written")]
    Uninitialized {
        /// Index of the instruction.
        index: usize,
        /// The register or predicate.
        name: String,
    },
    /// The text of a program cannot be parsed. Lines and columns count from 1.
    #[error("{line}:{column}: {reason}")]
    Parse {
        /// Line.
        line: usize,
        /// Column, in characters.
        column: usize,
        /// What was expected.
        reason: String,
    },
    /// The binary form of a program is damaged or of another version.
    #[error("byte {offset}: {reason}")]
    Binary {
        /// Offset of the first byte that is wrong.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// A grid, block or shared memory that cannot be launched.
    #[error("launch: {0}")]
    InvalidLaunch(String),
    /// A valid program that a compiler or a device refuses.
    #[error("instruction {index}: {mnemonic}: {reason}")]
    Unsupported {
        /// Index of the instruction.
        index: usize,
        /// Its mnemonic.
        mnemonic: &'static str,
        /// Why, and what would be supported.
        reason: String,
    },
    /// Memory was accessed by a handle or in a range that does not exist.
    #[error(transparent)]
    Memory(#[from] FaultKind),
    /// The device failed, or has no memory left.
    #[error(transparent)]
    Device(Box<crate::Error>),
    /// The program ran and failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl ProgramError {
    /// Index of the instruction that the error is about.
    pub fn instruction(&self) -> Option<usize> {
        match self {
            Self::UndefinedLabel(_, index)
            | Self::InvalidInstruction { index, .. }
            | Self::Unsupported { index, .. }
            | Self::TypeMismatch { index, .. }
            | Self::Uninitialized { index, .. } => Some(*index),
            Self::Fault(fault) => Some(fault.index),
            _ => None,
        }
    }

    pub(super) fn file(path: &Path, source: &std::io::Error) -> Self {
        Self::File {
            path: path.display().to_string(),
            reason: source.to_string(),
        }
    }
}

impl From<crate::Error> for ProgramError {
    fn from(error: crate::Error) -> Self {
        Self::Device(Box::new(error))
    }
}

/// A failure of one lane at run time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("instruction {index}, lane {lane}: {kind}")]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// Index of the instruction.
    pub index: usize,
    /// The lane, by its number in the grid.
    pub lane: u64,
}

/// What goes wrong when a program runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// An integer division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// An access behind the end of a buffer.
    #[error("{size} bytes at offset {offset} exceed the buffer's {buffer_size} bytes")]
    BufferOutOfBounds {
        /// Offset in bytes.
        offset: u64,
        /// Bytes accessed.
        size: usize,
        /// Size of the buffer in bytes.
        buffer_size: usize,
    },
    /// An access behind the end of a pool.
    #[error("{size} bytes at offset {offset} exceed the pool's {pool_size} bytes")]
    PoolOutOfBounds {
        /// Offset in bytes.
        offset: u64,
        /// Bytes accessed.
        size: usize,
        /// Size of the pool in bytes.
        pool_size: usize,
    },
    /// An access behind the end of shared memory.
    #[error("{size} bytes at offset {offset} exceed the {shared_size} bytes of shared memory")]
    SharedOutOfBounds {
        /// Offset in bytes.
        offset: u64,
        /// Bytes accessed.
        size: usize,
        /// Size of shared memory in bytes.
        shared_size: usize,
    },
    /// An address that is not a multiple of the size of the element.
    #[error("address {offset} is not aligned to {dtype}")]
    InvalidMemoryAddress {
        /// Offset in bytes.
        offset: u64,
        /// Type of the element.
        dtype: DType,
    },
    /// No buffer has this handle.
    #[error("no buffer has the handle {0}")]
    InvalidBufferHandle(u64),
    /// No pool has this handle.
    #[error("no pool has the handle {0}")]
    InvalidPoolHandle(u64),
    /// A register is read as another type than it was written with.
    #[error("{register} is read as {expected} but holds {actual}")]
    TypeMismatch {
        /// The register.
        register: super::Register,
        /// The type that the instruction reads.
        expected: DType,
        /// The type it was written with.
        actual: DType,
    },
    /// A register is read before it was written.
    #[error("{0} is read before it was written")]
    UninitializedRegister(super::Register),
    /// A predicate is read before it was written.
    #[error("{0} is read before it was written")]
    UninitializedPredicate(super::Predicate),
    /// More nested calls than the call stack has entries.
    #[error("more than {0} nested calls")]
    CallStackOverflow(usize),
    /// `ret` without `call`.
    #[error("ret without a call")]
    CallStackUnderflow,
    /// A class above 95.
    #[error("class {0} is out of range: there are 96")]
    InvalidClassIndex(u8),
    /// A page above 47 in the boundary pool.
    #[error(
        "page {page}, byte {byte} are not in the boundary pool: a class has 48 pages of 256 bytes"
    )]
    InvalidBoundaryCoordinates {
        /// Page.
        page: u8,
        /// Byte.
        byte: u8,
    },
    /// Lanes of a block wait at barriers with different ids, and none can go on.
    #[error("lanes of block {block} wait at different barriers")]
    DivergentBarrier {
        /// The block.
        block: u64,
    },
    /// Lanes disagree on the operands of an instruction that runs once for a launch, or only some of them reach it.
    #[error(
        "an instruction that runs once per launch must be reached by every lane, with equal operands"
    )]
    DivergentLaunch,
    /// A lane ran too many instructions.
    #[error("the lane ran more than {0} instructions")]
    StepLimit(u64),
    /// An allocation failed.
    #[error("no memory for {0} bytes")]
    OutOfMemory(u64),
    /// The device failed.
    #[error(transparent)]
    Device(Box<crate::Error>),
}
