//! A dispatch with its arguments, for `msl run` and `msl test`.

use anyhow::Result;
use bessemer_hal::msl::Diagnostic;
use bessemer_hal::{
    Access, ArgumentKind, Commands, Device, Error, Fault, FunctionConstants, Library, Pipeline,
    Report, ReportKind, Size,
};

use crate::failure::Usage;
use crate::msl::inputs::Input;
use crate::spec::{ConstantKey, ConstantSpec};

/// The grid, in threads or in threadgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Threads(Size),
    Threadgroups(Size),
}

/// A buffer bound at a byte offset.
#[derive(Debug)]
pub(crate) struct BoundInput<'a> {
    pub(crate) index: u32,
    pub(crate) input: &'a Input,
    pub(crate) offset: usize,
}

/// A dispatch: arguments by index and the size of the grid.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) buffers: Vec<BoundInput<'a>>,
    pub(crate) bytes: Vec<(u32, &'a [u8])>,
    pub(crate) threadgroup_memory: Vec<(u32, usize)>,
    pub(crate) extent: Extent,
    /// Threads in a threadgroup; by default, chosen for the kernel.
    pub(crate) threadgroup: Option<Size>,
}

impl Launch<'_> {
    /// Records the dispatch.
    pub(crate) fn encode(&self, commands: &mut Commands, pipeline: &Pipeline) -> Result<(), Error> {
        let mut dispatch = commands.dispatch(pipeline);
        for bound in &self.buffers {
            let buffer = &bound.input.buffer;
            // An offset past the end is rejected with the buffer's own length.
            let slice = buffer.slice(bound.offset..buffer.length().max(bound.offset))?;
            dispatch = dispatch.bind(bound.index, slice, access(pipeline, bound.index));
        }
        for (index, bytes) in &self.bytes {
            dispatch = dispatch.set_bytes(*index, bytes);
        }
        for (index, length) in &self.threadgroup_memory {
            dispatch = dispatch.threadgroup_memory(*index, *length);
        }
        let (Extent::Threads(size) | Extent::Threadgroups(size)) = self.extent;
        let threadgroup = self.threadgroup.unwrap_or_else(|| match size {
            Size {
                height: 1,
                depth: 1,
                ..
            } => pipeline.optimal_thread_group_size(),
            _ => pipeline.optimal_thread_group_size_2d(),
        });
        match self.extent {
            Extent::Threads(threads) => dispatch.threads(threads, threadgroup),
            Extent::Threadgroups(groups) => dispatch.threadgroups(groups, threadgroup),
        }
    }

    /// Reports threadgroup memory that is missing or exceeds the limit: Metal's validation reports this defect as well,
    /// so it is a report here and not wrong usage.
    pub(crate) fn missing_threadgroup_memory(
        &self,
        device: &Device,
        pipeline: &Pipeline,
    ) -> Option<Report> {
        let report = |message| report(ReportKind::ThreadgroupMemory, pipeline.name(), message);
        for argument in pipeline.arguments() {
            if let ArgumentKind::ThreadgroupMemory(index) = argument.kind
                && argument.active
                && !self.threadgroup_memory.iter().any(|(i, _)| *i == index)
            {
                return Some(report(format!(
                    "threadgroup argument `{}` has no length; set threadgroup-memory {index}",
                    argument.name
                )));
            }
        }
        let limit = device.info().limits.max_threadgroup_memory;
        let total = self
            .threadgroup_memory
            .iter()
            .map(|(_, length)| *length)
            .fold(
                pipeline.static_threadgroup_memory_length(),
                usize::saturating_add,
            );
        (total > limit).then(|| {
            report(format!(
                "{total} bytes of threadgroup memory are more than the maximum of {limit}"
            ))
        })
    }
}

/// The kernel's access to a buffer, if known.
fn access(pipeline: &Pipeline, index: u32) -> Access {
    pipeline
        .arguments()
        .iter()
        .find(|a| a.kind == ArgumentKind::Buffer(index))
        .map_or(Access::ReadWrite, |a| a.access)
}

/// The result of building a kernel.
#[derive(Debug)]
pub(crate) enum Built {
    Pipeline(Pipeline),
    /// It compiles but cannot be launched.
    Report(Report),
    /// It does not compile.
    Rejected(Vec<Diagnostic>),
}

/// Compiles a kernel.
pub(crate) fn build(library: &Library, kernel: &str, constants: &[ConstantSpec]) -> Result<Built> {
    let constants = function_constants(library, constants)?;
    match library.function_with(kernel, constants)?.pipeline() {
        Ok(pipeline) => Ok(Built::Pipeline(pipeline)),
        // Memory is the only limit that a kernel alone can exceed.
        Err(Error::Launch { kernel, message }) => Ok(Built::Report(report(
            ReportKind::ThreadgroupMemory,
            &kernel,
            message,
        ))),
        // A function constant without a value.
        Err(error @ Error::Binding { .. }) => Err(Usage::error(error.to_string())),
        Err(Error::Compile { diagnostics, .. }) => Ok(Built::Rejected(diagnostics)),
        Err(error) => Err(error.into()),
    }
}

/// Function constants by index; names are looked up in the source.
fn function_constants(library: &Library, specs: &[ConstantSpec]) -> Result<FunctionConstants> {
    let mut constants = FunctionConstants::new();
    for spec in specs {
        let index = match &spec.key {
            ConstantKey::Index(index) => *index,
            ConstantKey::Name(name) => constant_index(library, name)?,
        };
        constants.set(index, spec.value);
    }
    Ok(constants)
}

fn constant_index(library: &Library, name: &str) -> Result<u32> {
    let Some(reflection) = library.reflection() else {
        return Err(Usage::error(format!(
            "function constant `{name}`: names are known on the software device only; use the index"
        )));
    };
    let constants = &reflection.constants;
    match constants.iter().find(|c| c.name == name) {
        Some(constant) => Ok(constant.index),
        None => {
            let names: Vec<_> = constants.iter().map(|c| c.name.as_str()).collect();
            let known = match names[..] {
                [] => "it has none".to_owned(),
                _ => format!("it has {}", names.join(", ")),
            };
            Err(Usage::error(format!(
                "no function constant `{name}` in {}; {known}",
                library.label()
            )))
        }
    }
}

pub(crate) fn report(kind: ReportKind, kernel: &str, message: String) -> Report {
    Report {
        kind,
        message,
        kernel: kernel.to_owned(),
        file: String::new(),
        line: 0,
        column: 0,
        buffer: None,
        thread: None,
        threadgroup: None,
        count: 1,
    }
}

/// Sets the location of a report that concerns a whole kernel.
pub(crate) fn locate(report: &mut Report, library: &Library) {
    let kernel = library.reflection().and_then(|r| r.kernel(&report.kernel));
    if let Some(kernel) = kernel
        && report.line == 0
    {
        report.file.clone_from(&kernel.file);
        report.line = kernel.line;
    }
}

/// Converts a failed launch to reports; usage errors and failures of the machine stay errors.
pub(crate) fn reports(error: Error, kernel: &str) -> Result<Vec<Report>> {
    match error {
        Error::Checked { reports } => Ok(reports),
        Error::Execution {
            fault:
                fault @ (Fault::Timeout | Fault::PageFault | Fault::DivisionByZero | Fault::Crash),
            kernel: at,
            message,
        } => {
            let kind = if fault == Fault::Timeout {
                ReportKind::Timeout
            } else {
                ReportKind::Crash
            };
            // The driver's message often starts with the same words.
            let text = match fault.to_string() {
                fault if message.is_empty() => fault,
                fault if message.starts_with(&fault) => message,
                fault => format!("{fault}: {message}"),
            };
            Ok(vec![report(kind, at.as_deref().unwrap_or(kernel), text)])
        }
        error @ (Error::Binding { .. }
        | Error::Launch { .. }
        | Error::Misaligned { .. }
        | Error::OutOfBounds { .. }) => Err(Usage::error(error.to_string())),
        error => Err(error.into()),
    }
}
