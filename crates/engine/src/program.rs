//! Programs: kernels in a typed instruction set, executed by one lane per element.
//!
//! A [`Program`] is a list of [`Instruction`]s with labels. Every lane has 256 registers and 16 predicates, and a register
//! has the type it was last written with; lanes of a block share memory and barriers. The instruction set is that of hologram's
//! `isa`.
//!
//! | file | contents |
//! |---|---|
//! | `instruction.rs` | the table of instructions: opcode, mnemonic, category and operands, one row each |
//! | `operand.rs` | what operands are made of: registers, predicates, conditions, addresses |
//! | `text.rs`, `binary.rs` | the two formats, both driven by the table |
//! | `builder.rs` | a method for every instruction, with labels and loops |
//! | `value.rs` | the meaning of every instruction on values: the definition that executors are compared with |
//! | `interpreter.rs`, `launch.rs`, `memory.rs` | the reference executor: one lane and one instruction at a time |
//! | `host.rs`, `tensor_op.rs` | instructions that run once per launch |
//! | `verify.rs` | what a program must satisfy to be compiled: register types at every point |
//! | `lower.rs` | the passes of compilers, in order: |
//! | `inline.rs`, `flow.rs`, `liveness.rs` | basic blocks with calls inlined; orders, dominators, dataflow; what is live |
//! | `known.rs`, `access.rs` | handles that are known before a launch, and the memory that each access has |
//! | `stage.rs` | splits at instructions that run once per launch |
//! | `irreducible.rs`, `structure.rs` | dispatchers for loops with several entries; conditions, loops and scopes |
//! | `uniform.rs` | barriers: divergent branches, and lanes that end early |
//! | `compiled.rs`, `device_memory.rs` | programs compiled for a device, and the memory there that they read and write |
//!
//! [`Interpreter`] defines what a program means, and [`CpuExecutor`] runs it fast. Nothing here knows a device.
//! [`Program::validate`] checks what any executor needs, labels and operand ranges; [`Program::verify`] checks what a compiler
//! needs besides.
//!
//! ```
//! use bessemer::program::Program;
//!
//! let program: Program = "
//!     ; doubles an f32 per lane; r1 is the buffer
//!     mov_imm.u32 r2, 2
//!     shl.u64 r3, %global, r2
//!     ldg.f32 r4, [r1 + r3]
//!     add.f32 r4, r4, r4
//!     stg.f32 [r1 + r3], r4
//! "
//! .parse()?;
//! assert_eq!(program.to_string().parse(), Ok(program.clone()));
//! assert_eq!(Program::from_bytes(&program.to_bytes()?)?, program);
//! # Ok::<(), bessemer::program::ProgramError>(())
//! ```

pub(crate) mod access;
pub(crate) mod atlas;
mod binary;
mod builder;
mod compiled;
pub(crate) mod device_memory;
mod error;
pub(crate) mod flow;
pub(crate) mod host;
mod inline;
mod instruction;
pub(crate) mod interpreter;
mod irreducible;
pub(crate) mod known;
mod launch;
mod liveness;
pub(crate) mod lower;
mod memory;
pub(crate) mod once;
mod operand;
pub(crate) mod stage;
pub(crate) mod structure;
mod tensor_op;
mod text;
mod uniform;
pub(crate) mod value;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;

pub use crate::dispatch::program::CpuExecutor;
pub use atlas::{BOUNDARY_BYTES, CLASSES};
pub use builder::Builder;
pub use compiled::CompiledProgram;
pub use device_memory::DeviceMemory;
pub use error::{Fault, FaultKind, ProgramError, Result};
pub use instruction::{Category, Instruction};
pub use interpreter::{Interpreter, Outcome};
pub use launch::{BlockDim, ExecutionParams, GridDim, LaunchConfig, SharedMemory};
pub use memory::{BufferBytes, BufferMemory, Memory, MemoryView};
pub use operand::{
    Address, BinaryOperation, Condition, MapOperation, MemoryScope, Operand, Predicate,
    ReduceOperation, Register, RegisterSpan,
};
pub use text::TextLocation;
pub use value::Value;
pub use verify::RegisterTypes;

#[cfg(test)]
pub(crate) mod tests;

/// Maximum number of instructions of a program.
pub const MAX_INSTRUCTIONS: usize = 1 << 16;

/// A kernel: instructions, and labels that branches refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The instructions. A lane starts at the first and ends at `exit` or behind the last.
    pub instructions: Vec<Instruction>,
    /// Indices of instructions by label. A label may be `len()`: the end of the program.
    pub labels: BTreeMap<String, usize>,
}

impl Program {
    /// A program without instructions.
    pub fn new() -> Self {
        Self::default()
    }

    /// A program without labels.
    pub fn from_instructions(instructions: Vec<Instruction>) -> Self {
        Self {
            instructions,
            labels: BTreeMap::new(),
        }
    }

    /// A program without instructions, with memory for `capacity` of them.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::from_instructions(Vec::with_capacity(capacity))
    }

    /// A builder for a program.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Adds a label for the next instruction.
    ///
    /// # Errors
    /// [`ProgramError::DuplicateLabel`], [`ProgramError::InvalidLabel`].
    pub fn add_label(&mut self, label: impl Into<String>) -> Result<()> {
        let label = label.into();
        operand::check_label(&label)?;
        let index = self.instructions.len();
        if self.labels.contains_key(&label) {
            return Err(ProgramError::DuplicateLabel(label, index));
        }
        self.labels.insert(label, index);
        Ok(())
    }

    /// Index of the instruction that a label stands for.
    pub fn resolve_label(&self, label: &str) -> Option<usize> {
        self.labels.get(label).copied()
    }

    /// Returns `true` if the program has the label.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.contains_key(label)
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Returns `true` if there are no instructions.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Checks what any executor needs: labels exist and point into the program, operands are in range and every instruction
    /// is defined for its type.
    ///
    /// # Errors
    /// The first problem, with the index of its instruction.
    pub fn validate(&self) -> Result<()> {
        if self.len() > MAX_INSTRUCTIONS {
            return Err(ProgramError::TooLong {
                instructions: self.len(),
            });
        }
        for (label, &index) in &self.labels {
            operand::check_label(label)?;
            if index > self.len() {
                return Err(ProgramError::InvalidLabelTarget(
                    label.clone(),
                    index,
                    self.len(),
                ));
            }
        }
        for (index, instruction) in self.instructions.iter().enumerate() {
            if let Some(label) = instruction.label()
                && !self.has_label(label)
            {
                return Err(ProgramError::UndefinedLabel(label.to_owned(), index));
            }
            instruction
                .check()
                .map_err(|reason| ProgramError::InvalidInstruction {
                    index,
                    mnemonic: instruction.mnemonic(),
                    reason,
                })?;
        }
        Ok(())
    }

    /// Returns `true` if a file with these contents is in the binary format, by its first bytes.
    pub fn is_binary(bytes: &[u8]) -> bool {
        bytes.starts_with(binary::MAGIC)
    }

    /// Writes the binary format to a file.
    ///
    /// # Errors
    /// [`ProgramError::File`], and those of [`Program::to_bytes`].
    pub fn save_to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()?).map_err(|e| ProgramError::file(path, &e))
    }

    /// Reads a file in the binary format, or in the text format.
    ///
    /// # Errors
    /// [`ProgramError::File`], and those of [`Program::from_bytes`] or of parsing.
    pub fn load_from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| ProgramError::file(path, &e))?;
        if Self::is_binary(&bytes) {
            return Self::from_bytes(&bytes);
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => text.parse(),
            Err(_) => Err(ProgramError::File {
                path: path.display().to_string(),
                reason: "neither a program in binary form nor text".to_owned(),
            }),
        }
    }
}
