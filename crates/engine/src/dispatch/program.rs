//! The executor of a program on a device.

use std::sync::Arc;

pub use crate::cpu::program::CpuExecutor;
use crate::metal::program::MetalProgram;
use crate::program::{DeviceMemory, ExecutionParams, Program, Result};
use crate::{Device, Error};

/// What runs a program.
#[derive(Clone, Debug)]
pub(crate) enum Executor {
    /// The processor of the host.
    Host(Arc<CpuExecutor>),
    /// Generated Metal kernels.
    Metal(Arc<MetalProgram>),
}

impl Executor {
    /// Prepares a validated program for a device.
    pub(crate) fn new(program: &Program, device: &Device) -> Result<Self> {
        if device.is_cpu() {
            return Ok(Self::Host(Arc::new(CpuExecutor::new(program)?)));
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
            Self::Host(executor) => executor.run_on_device(params, memory, step_limit),
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
            Self::Host(executor) => MetalProgram::new(executor.program())?.text(params),
            Self::Metal(program) => program.text(params),
        }
    }

    /// The kernel of a launch as a library of its own.
    pub(crate) fn library(&self, name: &str, params: &ExecutionParams) -> Result<String> {
        match self {
            Self::Host(executor) => MetalProgram::new(executor.program())?.library(name, params),
            Self::Metal(program) => program.library(name, params),
        }
    }
}
