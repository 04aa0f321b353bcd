//! Pipelines of the software device: a loaded image with its reflection.

use std::sync::Arc;

use super::compile::CompiledKernel;
use super::image::{KernelLoader, ParameterInfo};
use super::plan::{MAX_LANES, SIMD_WIDTH};
use super::runtime::Image;
use crate::access::Access;
use crate::driver;
use crate::info::Limits;
use crate::msl::{ArgumentKind as Kind, Builtin, Kernel, SLOTS};
use crate::pipeline::{Argument, ArgumentKind, PipelineInfo};
use crate::report::{Report, Sources};
use crate::size::Size;

/// A kernel ready to run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    info: PipelineInfo,
    code: Code,
    /// Whether the kernel cannot observe how its grid is divided into threadgroups.
    threadgroup_agnostic: bool,
    /// The library's source, in check mode: comments in it may suppress reports.
    sources: Option<Arc<Sources>>,
}

/// Location of a pipeline's code.
#[derive(Debug)]
pub(crate) enum Code {
    /// Loaded into this process.
    InProcess(Box<Image>),
    /// Loaded by each child process that runs it, and never by this one.
    PerProcess(KernelLoader),
}

impl Pipeline {
    /// Combines the source's reflection of a kernel with the image's.
    pub(crate) fn new(
        kernel: &Kernel,
        parameters: &[ParameterInfo],
        code: Code,
        compiled: &CompiledKernel,
        max_threads: usize,
        limits: &Limits,
    ) -> Self {
        let mut arguments = Vec::new();
        for (argument, parameter) in kernel.arguments.iter().zip(parameters) {
            let (kind, bit) = match argument.kind {
                Kind::Buffer { index } => (ArgumentKind::Buffer(index), index),
                Kind::ThreadgroupMemory { index } => {
                    (ArgumentKind::ThreadgroupMemory(index), SLOTS + index)
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
                active: parameter.active && compiled.arguments >> bit & 1 != 0,
            });
        }
        Self {
            info: PipelineInfo {
                name: kernel.name.clone(),
                max_total_threads_per_threadgroup: kernel
                    .max_total_threads
                    .map_or(max_threads, |n| {
                        limits.max_total_threads_per_threadgroup.min(n as usize)
                    }),
                thread_execution_width: limits.simd_width,
                static_threadgroup_memory: compiled.threadgroup_memory(),
                arguments: Some(arguments),
            },
            code,
            threadgroup_agnostic: is_threadgroup_agnostic(kernel, compiled),
            sources: None,
        }
    }

    /// Adds the source of the library.
    pub(crate) fn with_sources(mut self, sources: Option<Arc<Sources>>) -> Self {
        self.sources = sources;
        self
    }

    /// Removes the reports that comments in the source suppress, and returns their number.
    pub(crate) fn suppress(&self, reports: &mut Vec<Report>) -> usize {
        let sources = self.sources.as_ref();
        sources.map_or(0, |sources| sources.suppress(reports))
    }

    /// Returns the threadgroup size to run a grid with in fast mode: a kernel that cannot observe it runs in the largest
    /// threadgroups, to amortise their overhead.
    pub(crate) fn threadgroup(&self, requested: Size) -> Size {
        let whole_simdgroups = requested.height == 1
            && requested.depth == 1
            && requested.width.is_multiple_of(SIMD_WIDTH);
        if self.threadgroup_agnostic && whole_simdgroups {
            Size::x(MAX_LANES)
        } else {
            requested
        }
    }

    /// The code.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }
}

/// Returns whether a kernel cannot observe its threadgroup size: it has no synchronisation and no threadgroup
/// memory, and reads no position in the group. The lane in a SIMD-group is the same in all threadgroups of whole
/// SIMD-groups.
fn is_threadgroup_agnostic(kernel: &Kernel, compiled: &CompiledKernel) -> bool {
    let is_grid_level = |kind: &Kind| {
        matches!(
            kind,
            Kind::Buffer { .. }
                | Kind::Builtin(Builtin::ThreadPositionInGrid | Builtin::ThreadsPerGrid)
        )
    };
    compiled.plan.sites.is_empty()
        && compiled.plan.variables.is_empty()
        && kernel.arguments.iter().all(|a| is_grid_level(&a.kind))
}

impl driver::Pipeline for Pipeline {
    fn info(&self) -> &PipelineInfo {
        &self.info
    }
}
