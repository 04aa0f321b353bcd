//! Pipelines of the software device: a loaded image with what the front must know of it.

use super::compile::{Compiled, HEADER};
use super::image::Ready;
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
    image: Image,
}

impl Pipeline {
    /// From the source's view of a kernel and the image's.
    pub(crate) fn new(kernel: &Kernel, ready: Ready, compiled: &Compiled, limits: &Limits) -> Self {
        let mut arguments = Vec::new();
        let (mut buffers, mut memories) = (Vec::new(), Vec::new());
        for (argument, parameter) in kernel.arguments.iter().zip(&ready.parameters) {
            let kind = match argument.kind {
                Kind::Buffer { index } => {
                    buffers.push((index, argument.name.clone()));
                    ArgumentKind::Buffer(index)
                }
                Kind::ThreadgroupMemory { index } => {
                    memories.push((index, argument.name.clone()));
                    ArgumentKind::ThreadgroupMemory(index)
                }
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
            image: ready
                .image
                .with_buffers(buffers)
                .with_threadgroup_arguments(memories)
                .with_user_files(|file| !file.starts_with(HEADER))
                .with_variables(compiled.variables.iter().cloned()),
        }
    }

    /// The code.
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }
}

impl driver::Pipeline for Pipeline {
    fn info(&self) -> &PipelineInfo {
        &self.info
    }
}
