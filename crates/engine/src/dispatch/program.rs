//! The executor of a program on a device.

use crate::Device;
use crate::program::{DeviceMemory, ExecutionParams, Interpreter, Program, ProgramError, Result};

/// What runs a program.
#[derive(Clone, Debug)]
pub(crate) enum Executor {
    /// The processor of the host.
    Host(Program),
}

impl Executor {
    /// Prepares a validated program for a device.
    pub(crate) fn new(program: &Program, device: &Device) -> Result<Self> {
        if device.is_cpu() {
            return Ok(Self::Host(program.clone()));
        }
        Err(crate::Error::Unsupported {
            op: "program",
            what: "programs".to_owned(),
            device: device.name().to_owned(),
        }
        .into())
    }

    /// Runs the program once, in memory of its device, and waits for the end.
    pub(crate) fn run(
        &self,
        params: &ExecutionParams,
        memory: &mut DeviceMemory,
        step_limit: Option<u64>,
    ) -> Result<()> {
        match self {
            Self::Host(program) => run_on_host(program, params, memory, step_limit),
        }
    }

    /// The source of the kernels of a launch.
    pub(crate) fn text(&self, _params: &ExecutionParams) -> Result<String> {
        Err(ProgramError::Device(Box::new(crate::Error::Unsupported {
            op: "program",
            what: "a source".to_owned(),
            device: "CPU".to_owned(),
        })))
    }
}

/// Runs a program on the processor of the host.
fn run_on_host(
    program: &Program,
    params: &ExecutionParams,
    memory: &mut DeviceMemory,
    step_limit: Option<u64>,
) -> Result<()> {
    let mut interpreter = Interpreter::new(program)?;
    if let Some(limit) = step_limit {
        interpreter = interpreter.with_step_limit(limit);
    }
    interpreter.run(params, memory).map(drop)
}
