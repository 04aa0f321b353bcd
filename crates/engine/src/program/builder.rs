//! Building programs from Rust.

use super::{Instruction, Program, Result};

/// Builds a [`Program`], with a method for every instruction and one for labels. Mistakes are found by [`Builder::build`].
///
/// ```
/// use bessemer::program::{Address, Program, Register};
/// use bessemer::DType::{F32, U32, U64};
///
/// let [buffer, two, offset, value] = [1, 2, 3, 4].map(Register);
/// let element = Address::RegisterIndirectComputed { handle_reg: buffer, offset_reg: offset };
/// let mut program = Program::builder();
/// program
///     .mov_imm(U32, two, 2_u64)
///     .shl(U64, offset, Register::GLOBAL_LANE_ID, two)
///     .ldg(F32, value, element)
///     .add(F32, value, value, value)
///     .stg(F32, element, value);
/// assert_eq!(program.build()?.len(), 5);
/// # Ok::<(), bessemer::program::ProgramError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    program: Program,
    failure: Option<super::ProgramError>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Appends an instruction.
    pub fn push(&mut self, instruction: Instruction) -> &mut Self {
        self.program.instructions.push(instruction);
        self
    }

    /// Adds a label for the next instruction.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        if let Err(error) = self.program.add_label(label) {
            self.failure.get_or_insert(error);
        }
        self
    }

    /// The program, validated.
    ///
    /// # Errors
    /// [`ProgramError::DuplicateLabel`](super::ProgramError::DuplicateLabel) and what [`Program::validate`] finds.
    pub fn build(&self) -> Result<Program> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        self.program.validate()?;
        Ok(self.program.clone())
    }
}
