//! Pipelines of the software device: a loaded image with what the front must know of it.

use super::compile::Compiled;
use super::image::{Parameter, Recipe};
use super::runtime::Image;
use crate::access::Access;
use crate::driver;
use crate::info::Limits;
use crate::msl::{ArgumentKind as Kind, Kernel};
use crate::pipeline::{Argument, ArgumentKind, PipelineInfo};

/// A kernel ready to run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    info: PipelineInfo,
    code: Code,
}

/// Where a pipeline's code is.
#[derive(Debug)]
pub(crate) enum Code {
    /// In this process.
    Here(Box<Image>),
    /// To be loaded by each process that runs it, and never by this one.
    Apart(Recipe),
}

impl Pipeline {
    /// From the source's view of a kernel and the image's.
    pub(crate) fn new(
        kernel: &Kernel,
        parameters: &[Parameter],
        code: Code,
        compiled: &Compiled,
        limits: &Limits,
    ) -> Self {
        let mut arguments = Vec::new();
        for (argument, parameter) in kernel.arguments.iter().zip(parameters) {
            let kind = match argument.kind {
                Kind::Buffer { index } => ArgumentKind::Buffer(index),
                Kind::ThreadgroupMemory { index } => ArgumentKind::ThreadgroupMemory(index),
                _ => continue,
            };
            arguments.push(Argument {
                name: argument.name.clone(),
                kind,
                access: if argument.writable {
                    Access::ReadWrite
                } else {
                    Access::Read
                },
                min_bytes: parameter.min_bytes,
                active: parameter.active,
            });
        }
        let most = limits.max_total_threads_per_threadgroup;
        Self {
            info: PipelineInfo {
                name: kernel.name.clone(),
                max_total_threads_per_threadgroup: kernel
                    .max_total_threads
                    .map_or(most, |n| most.min(n as usize)),
                thread_execution_width: limits.simd_width,
                static_threadgroup_memory: compiled.threadgroup_memory(),
                arguments: Some(arguments),
            },
            code,
        }
    }

    /// The code.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }
}

impl driver::Pipeline for Pipeline {
    fn info(&self) -> &PipelineInfo {
        &self.info
    }
}
