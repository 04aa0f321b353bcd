//! Pipelines of the software device: a loaded image with what the front must know of it.

use super::compile::Compiled;
use super::image::{Parameter, Recipe};
use super::plan::{MAX_LANES, SIMD_WIDTH};
use super::runtime::Image;
use crate::access::Access;
use crate::driver;
use crate::info::Limits;
use crate::msl::{ArgumentKind as Kind, Builtin, Kernel, SLOTS};
use crate::pipeline::{Argument, ArgumentKind, PipelineInfo};
use crate::report::{Report, Sources};
use crate::size::Size;
use std::sync::Arc;

/// A kernel ready to run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    info: PipelineInfo,
    code: Code,
    /// The kernel cannot tell how its grid is divided into threadgroups.
    indifferent: bool,
    /// The library's source, in check mode: its comments may suppress reports.
    sources: Option<Arc<Sources>>,
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
        most_threads: usize,
        limits: &Limits,
    ) -> Self {
        let mut arguments = Vec::new();
        for (argument, parameter) in kernel.arguments.iter().zip(parameters) {
            let (kind, number) = match argument.kind {
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
                active: parameter.active && compiled.arguments >> number & 1 != 0,
            });
        }
        Self {
            info: PipelineInfo {
                name: kernel.name.clone(),
                max_total_threads_per_threadgroup: kernel
                    .max_total_threads
                    .map_or(most_threads, |n| {
                        limits.max_total_threads_per_threadgroup.min(n as usize)
                    }),
                thread_execution_width: limits.simd_width,
                static_threadgroup_memory: compiled.threadgroup_memory(),
                arguments: Some(arguments),
            },
            code,
            indifferent: is_indifferent(kernel, compiled),
            sources: None,
        }
    }

    /// The pipeline with the source of its library.
    pub(crate) fn with_sources(mut self, sources: Option<Arc<Sources>>) -> Self {
        self.sources = sources;
        self
    }

    /// Takes the reports that comments in the source suppress out of `reports`, and returns how many those are.
    pub(crate) fn suppress(&self, reports: &mut Vec<Report>) -> usize {
        let sources = self.sources.as_ref();
        sources.map_or(0, |sources| sources.suppress(reports))
    }

    /// The threadgroup to run a grid with, where only speed counts: a kernel that cannot tell the difference
    /// is run in the largest ones, so that it pays for fewer.
    pub(crate) fn threadgroup(&self, asked: Size) -> Size {
        let rows = asked.height == 1 && asked.depth == 1 && asked.width.is_multiple_of(SIMD_WIDTH);
        if self.indifferent && rows {
            Size::x(MAX_LANES)
        } else {
            asked
        }
    }

    /// The code.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }
}

/// Whether a kernel sees nothing of its threadgroup: no member waits for another, shares memory with it or
/// knows its place in the group. The lane in a SIMD-group stays the same in groups of whole SIMD-groups.
fn is_indifferent(kernel: &Kernel, compiled: &Compiled) -> bool {
    let plain = |kind: &Kind| {
        matches!(
            kind,
            Kind::Buffer { .. }
                | Kind::Builtin(Builtin::ThreadPositionInGrid | Builtin::ThreadsPerGrid)
        )
    };
    compiled.plan.sites.is_empty()
        && compiled.plan.variables.is_empty()
        && kernel.arguments.iter().all(|a| plain(&a.kind))
}

impl driver::Pipeline for Pipeline {
    fn info(&self) -> &PipelineInfo {
        &self.info
    }
}
