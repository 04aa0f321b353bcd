//! Programs that are compiled for a device.

use super::error::{ProgramError, Result};
use super::launch::ExecutionParams;
use super::{DeviceMemory, Program};
use crate::Device;
use crate::dispatch::program::Executor;

/// A program that is compiled for a device.
///
/// ```
/// use bessemer::Device;
/// use bessemer::program::{DeviceMemory, ExecutionParams, LaunchConfig, Program, Register};
///
/// let program: Program = "
///     mov_imm.u32 r2, 2
///     shl.u64 r3, %global, r2
///     ldg.f32 r4, [r1 + r3]
///     add.f32 r4, r4, r4
///     stg.f32 [r1 + r3], r4
/// "
/// .parse()?;
/// let device = Device::cpu();
/// let compiled = program.compile(&device)?;
///
/// let mut memory = DeviceMemory::new(&device)?;
/// let buffer = memory.insert_bytes(&1.5_f32.to_le_bytes())?;
/// let params = ExecutionParams::new(LaunchConfig::linear(1, 1)).with_register(Register(1), buffer);
/// compiled.run(&params, &mut memory)?;
/// assert_eq!(memory.to_vec(buffer)?, 3.0_f32.to_le_bytes());
/// # Ok::<(), bessemer::program::ProgramError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompiledProgram {
    executor: Executor,
    device: Device,
    step_limit: Option<u64>,
}

impl Program {
    /// Compiles the program for a device. A device that cannot run it refuses it here if that does not depend on a launch.
    ///
    /// # Errors
    /// Those of [`Program::validate`]; on devices with a compiler also those of [`Program::verify`], and
    /// [`ProgramError::Unsupported`] with the instruction and the reason.
    pub fn compile(&self, device: &Device) -> Result<CompiledProgram> {
        self.validate()?;
        Ok(CompiledProgram {
            executor: Executor::new(self, device)?,
            device: device.clone(),
            step_limit: None,
        })
    }
}

impl CompiledProgram {
    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Stops lanes with [`FaultKind::StepLimit`](super::FaultKind::StepLimit) after a number of steps; 2^28 unless set. A
    /// compiler counts iterations of loops, an interpreter instructions.
    #[must_use]
    pub fn with_step_limit(self, limit: u64) -> Self {
        Self {
            step_limit: Some(limit),
            ..self
        }
    }

    /// Runs the program and waits for its end. What lanes wrote before a fault, and what other lanes wrote, stays.
    ///
    /// # Errors
    /// [`ProgramError::Fault`] with the instruction and the lane, [`ProgramError::InvalidLaunch`],
    /// [`ProgramError::Unsupported`] for what only the launch shows, and [`ProgramError::Device`].
    pub fn run(&self, params: &ExecutionParams, memory: &mut DeviceMemory) -> Result<()> {
        params.launch_config.validate()?;
        if memory.device() != &self.device {
            return Err(ProgramError::InvalidLaunch(format!(
                "the program is compiled for {}, the memory is on {}",
                self.device,
                memory.device()
            )));
        }
        self.executor.run(params, memory, self.step_limit)
    }

    /// The MSL of a launch with this block, shared memory and initial registers: the kernels of its stages, one after the
    /// other. It needs no Metal device.
    ///
    /// # Errors
    /// As those of [`Program::compile`] for a device with a compiler.
    pub fn msl(&self, params: &ExecutionParams) -> Result<String> {
        params.launch_config.validate()?;
        self.executor.text(params)
    }

    /// A Metal library with the kernel of a launch under a name, for programs that are compiled ahead of time: the text includes
    /// nothing, and begins with what the kernel's arguments are. It needs no Metal device.
    ///
    /// ```
    /// // build.rs
    /// use bessemer::Device;
    /// use bessemer::program::{ExecutionParams, LaunchConfig, Program, Register};
    ///
    /// let program: Program = "mov_imm.u32 r0, 7\nstg.u32 [r1], r0".parse()?;
    /// let params = ExecutionParams::new(LaunchConfig::linear(1, 64)).with_register(Register(1), 1);
    /// let library = program.compile(&Device::cpu())?.msl_library("store_seven", &params)?;
    /// assert!(library.contains("void store_seven("));
    /// # Ok::<(), bessemer::program::ProgramError>(())
    /// ```
    ///
    /// # Errors
    /// As [`CompiledProgram::msl`]; [`ProgramError::Unsupported`] for a program with instructions that run once per launch, which
    /// needs several kernels and ops between them; [`ProgramError::InvalidLaunch`] for a name that is no identifier.
    pub fn msl_library(&self, name: &str, params: &ExecutionParams) -> Result<String> {
        params.launch_config.validate()?;
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_identifier =
            name.starts_with(is_start) && name.chars().all(|c| is_start(c) || c.is_ascii_digit());
        if !is_identifier {
            return Err(ProgramError::InvalidLaunch(format!(
                "`{name}` is not the name of a kernel"
            )));
        }
        self.executor.library(name, params)
    }
}
