//! The executor of a program on a device.

use std::sync::Arc;

use crate::metal::program::MetalProgram;
use crate::program::{DeviceMemory, ExecutionParams, Interpreter, Program, Result};
use crate::{Device, Error};

/// What runs a program.
#[derive(Clone, Debug)]
pub(crate) enum Executor {
    /// The processor of the host.
    Host(Program),
    /// Generated Metal kernels.
    Metal(Arc<MetalProgram>),
}

impl Executor {
    /// Prepares a validated program for a device.
    pub(crate) fn new(program: &Program, device: &Device) -> Result<Self> {
        if device.is_cpu() {
            return Ok(Self::Host(program.clone()));
        }
        Ok(Self::Metal(Arc::new(MetalProgram::new(program)?)))
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
            Self::Metal(program) => {
                let device = memory.device().clone();
                let metal = device.metal_backend().ok_or_else(|| Error::Invalid {
                    op: "program",
                    reason: "the memory is not on a Metal device".to_owned(),
                })?;
                program.run(metal, params, memory, step_limit)
            }
        }
    }

    /// The MSL of a launch.
    pub(crate) fn text(&self, params: &ExecutionParams) -> Result<String> {
        match self {
            Self::Host(program) => MetalProgram::new(program)?.text(params),
            Self::Metal(program) => program.text(params),
        }
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
