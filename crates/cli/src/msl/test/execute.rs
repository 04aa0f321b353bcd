//! Running a kernel test.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bessemer::DType;
use bessemer::npy::Array;
use bessemer_hal::msl::Diagnostic;
use bessemer_hal::{ArgumentKind, Device, Error, Library, Pipeline, Report, ReportKind};

use super::compare::{Differences, compare};
use super::literal;
use super::plan::{ArgumentKey, Expectation, Expected, KernelTest, PlannedDispatch};
use crate::args::ModeArg;
use crate::array;
use crate::dtype::{self, Elements as _, Number};
use crate::failure::{Outcome, Usage};
use crate::host::{self, Setup};
use crate::msl::baseline::KnownReports;
use crate::msl::finding::Location;
use crate::msl::inputs::Input;
use crate::msl::launch::{self, BoundInput, Built, Launch};
use crate::msl::library::compile;
use crate::msl::source::Source;
use crate::terminal;

/// A failure of a test.
#[derive(Debug)]
pub(super) enum Failure {
    /// The source does not compile.
    Rejected(Vec<Diagnostic>),
    /// The device reports defects that were not expected.
    Reports(Vec<Report>),
    /// The expected report is missing.
    NoReport(ReportKind),
    /// The values of a buffer differ from the expected ones.
    Values {
        buffer: String,
        location: Location,
        differences: Differences,
    },
    /// The test itself is wrong, or the tool failed.
    Error { outcome: Outcome, message: String },
}

impl Failure {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Rejected(_) => Outcome::NotCompiled,
            Self::Reports(_) | Self::NoReport(_) | Self::Values { .. } => Outcome::Defect,
            Self::Error { outcome, .. } => *outcome,
        }
    }
}

/// The result of a test.
#[derive(Debug)]
pub(super) struct Tested<'a> {
    pub(super) test: &'a KernelTest,
    /// It needs the software device, which this system does not have.
    pub(super) is_skipped: bool,
    /// The mode and seed of the run that failed, or all modes.
    pub(super) modes: String,
    pub(super) failures: Vec<Failure>,
    pub(super) time: Duration,
}

/// Runs a test in all its modes, up to the first that fails.
pub(super) fn execute<'a>(test: &'a KernelTest, known: &KnownReports) -> Tested<'a> {
    let start = Instant::now();
    let has_modes = cfg!(target_os = "linux");
    let mut tested = Tested {
        test,
        is_skipped: test.expected_report.is_some() && !has_modes,
        modes: String::new(),
        failures: Vec::new(),
        time: Duration::ZERO,
    };
    if tested.is_skipped {
        return tested;
    }
    let mut passed: Vec<&str> = Vec::new();
    for (mode, seed) in &test.runs {
        let setup = if has_modes {
            Setup {
                mode: Some(*mode),
                seed: *seed,
                timeout: test.timeout,
                ..Setup::compiling(&test.compile)
            }
        } else {
            // The GPU has no modes.
            Setup::default()
        };
        let result = run_once(test, &setup, known);
        tested.failures = result.unwrap_or_else(|error| {
            vec![Failure::Error {
                outcome: Outcome::of_kernel(&error),
                message: terminal::error_text(&error),
            }]
        });
        if !tested.failures.is_empty() {
            let seed = seed.map_or(String::new(), |seed| format!(", seed {seed}"));
            tested.modes = format!("{}{seed}", mode_name(*mode));
            break;
        }
        if !passed.contains(&mode_name(*mode)) {
            passed.push(mode_name(*mode));
        }
        tested.modes = passed.join(", ");
    }
    tested.time = start.elapsed();
    tested
}

fn mode_name(mode: ModeArg) -> &'static str {
    match mode {
        ModeArg::Fast => "fast",
        ModeArg::Check => "check",
        ModeArg::Fuzz => "fuzz",
        ModeArg::Isolated => "isolated",
    }
}

/// Runs a test once, on a new device.
fn run_once(test: &KernelTest, setup: &Setup, known: &KnownReports) -> Result<Vec<Failure>> {
    let source = Source::read(&test.source)?;
    let device = host::open(setup)?;
    let library = match compile(&device, &source, &test.compile) {
        Err(Error::Compile { diagnostics, .. }) => return Ok(vec![Failure::Rejected(diagnostics)]),
        library => library?,
    };
    let inputs: Vec<Input> = test
        .buffers
        .iter()
        .map(|(name, spec)| Input::load(&device, name, spec))
        .collect::<Result<_>>()?;
    for input in &inputs {
        input.reset()?;
    }
    let (mut reports, is_readable) = match dispatch_all(test, &device, &library, &inputs)? {
        Dispatched::Done => (Vec::new(), true),
        Dispatched::Reports {
            reports,
            is_readable,
        } => (reports, is_readable),
        Dispatched::Rejected(diagnostics) => return Ok(vec![Failure::Rejected(diagnostics)]),
    };
    for report in &mut reports {
        launch::locate(report, &library);
    }
    let found = reports.len();
    if let Some(kind) = test.expected_report {
        reports.retain(|report| report.kind != kind);
        if found == 0 {
            return Ok(vec![Failure::NoReport(kind)]);
        }
    }
    // If a kernel could not complete, there is nothing to accept.
    if is_readable {
        reports = known.filter(reports, &source);
    }
    if !reports.is_empty() {
        return Ok(vec![Failure::Reports(reports)]);
    }
    let mut failures = Vec::new();
    for expectation in &test.expectations {
        failures.extend(check(expectation, test, &inputs, &device)?);
    }
    Ok(failures)
}

/// The result of the dispatches of a test.
#[derive(Debug)]
enum Dispatched {
    Done,
    Reports {
        reports: Vec<Report>,
        /// Whether the buffers contain the kernels' results.
        is_readable: bool,
    },
    /// A kernel does not compile.
    Rejected(Vec<Diagnostic>),
}

impl Dispatched {
    /// Launches that were rejected, or failed.
    fn failed(reports: Vec<Report>) -> Self {
        Self::Reports {
            reports,
            is_readable: false,
        }
    }
}

/// Runs all dispatches in one command buffer.
fn dispatch_all(
    test: &KernelTest,
    device: &Device,
    library: &Library,
    inputs: &[Input],
) -> Result<Dispatched> {
    let mut commands = device.commands();
    for dispatch in &test.dispatches {
        let kernel = &dispatch.kernel;
        let known = library.function(kernel);
        known.map_err(|error| Usage::error(error.to_string()))?;
        let pipeline = match launch::build(library, kernel, &dispatch.constants)? {
            Built::Pipeline(pipeline) => pipeline,
            Built::Report(report) => return Ok(Dispatched::failed(vec![report])),
            Built::Rejected(diagnostics) => return Ok(Dispatched::Rejected(diagnostics)),
        };
        let launch = prepare(dispatch, &pipeline, inputs)?;
        if let Some(report) = launch.missing_threadgroup_memory(device, &pipeline) {
            return Ok(Dispatched::failed(vec![report]));
        }
        if let Err(error) = launch.encode(&mut commands, &pipeline) {
            return Ok(Dispatched::failed(launch::reports(error, kernel)?));
        }
    }
    let last = test.dispatches.last().map_or("", |d| &d.kernel);
    let done = commands.commit().and_then(|submission| submission.wait());
    match done {
        Ok(_) => Ok(Dispatched::Done),
        Err(error) => Ok(Dispatched::Reports {
            is_readable: matches!(error, Error::Checked { .. }),
            reports: launch::reports(error, last)?,
        }),
    }
}

/// Resolves the arguments of a dispatch to indices.
fn prepare<'a>(
    dispatch: &'a PlannedDispatch,
    pipeline: &Pipeline,
    inputs: &'a [Input],
) -> Result<Launch<'a>> {
    let buffer_index = |key: &ArgumentKey| {
        argument_index(key, pipeline, "buffer", |kind| match kind {
            ArgumentKind::Buffer(index) => Some(index),
            ArgumentKind::ThreadgroupMemory(_) => None,
        })
    };
    let memory_index = |key: &ArgumentKey| {
        argument_index(key, pipeline, "threadgroup", |kind| match kind {
            ArgumentKind::ThreadgroupMemory(index) => Some(index),
            ArgumentKind::Buffer(_) => None,
        })
    };
    let buffers = dispatch.buffers.iter().map(|(key, buffer, offset)| {
        Ok(BoundInput {
            index: buffer_index(key)?,
            input: &inputs[*buffer],
            offset: *offset,
        })
    });
    let bytes = dispatch.bytes.iter();
    let bytes = bytes.map(|(key, bytes)| Ok((buffer_index(key)?, &**bytes)));
    let memory = dispatch.threadgroup_memory.iter();
    let memory = memory.map(|(key, length)| Ok((memory_index(key)?, *length)));
    Ok(Launch {
        buffers: buffers.collect::<Result<_>>()?,
        bytes: bytes.collect::<Result<_>>()?,
        threadgroup_memory: memory.collect::<Result<_>>()?,
        extent: dispatch.extent,
        threadgroup: dispatch.threadgroup,
    })
}

fn argument_index(
    key: &ArgumentKey,
    pipeline: &Pipeline,
    what: &str,
    index: impl Fn(ArgumentKind) -> Option<u32>,
) -> Result<u32> {
    let name = match key {
        ArgumentKey::Index(index) => return Ok(*index),
        ArgumentKey::Name(name) => name,
    };
    let arguments = pipeline.arguments().iter();
    let known: Vec<_> = arguments
        .filter_map(|a| Some((&*a.name, index(a.kind)?)))
        .collect();
    if let Some((_, index)) = known.iter().find(|(n, _)| n == name) {
        return Ok(*index);
    }
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    let has = match &names[..] {
        [] => "it has none".to_owned(),
        names => format!("it has {}", names.join(", ")),
    };
    let kernel = pipeline.name();
    Err(Usage::error(format!(
        "kernel `{kernel}` has no {what} argument `{name}`; {has}"
    )))
}

/// Compares a buffer with its expected values.
fn check(
    expectation: &Expectation,
    test: &KernelTest,
    inputs: &[Input],
    device: &Device,
) -> Result<Option<Failure>> {
    let (name, _) = &test.buffers[expectation.buffer];
    let got = inputs[expectation.buffer].array()?;
    let expected = match &expectation.expected {
        Expected::Literal(value) => literal::array(value, got.dtype),
        Expected::Buffer(other) => convert(inputs[*other].array()?, got.dtype),
        // A file may hold f64.
        Expected::From(spec) => array::load(spec, device.info().limits.max_buffer_length)
            .and_then(|array| convert(array, got.dtype)),
    };
    let context = || format!("expected values of `{name}`");
    let expected = expected
        .map_err(|error| Usage::error(format!("{error:#}")))
        .with_context(context)?;
    let count = |array: &Array| array.data.len() / array.dtype.size();
    if count(&got) != count(&expected) {
        let message = format!(
            "expected values of `{name}`: {} for the {} values of the buffer",
            count(&expected),
            count(&got)
        );
        return Err(Usage::error(message));
    }
    let differences = compare(&got, &expected, expectation.tolerance);
    Ok(differences.map(|differences| Failure::Values {
        buffer: name.clone(),
        location: expectation.location.clone(),
        differences,
    }))
}

/// Converts expected values to the type of the buffer. Floats are rounded; an integer out of range is an error.
fn convert(array: Array, dtype: DType) -> Result<Array> {
    let from = array.dtype;
    let converted = dtype::convert(array.clone(), dtype);
    if dtype.is_float() || from == dtype {
        return Ok(converted);
    }
    let elements = array.data.chunks_exact(from.size());
    let mut pairs = elements.zip(converted.data.chunks_exact(dtype.size()));
    let is_same = |(old, new): &(&[u8], &[u8])| match (from.load(old), dtype.load(new)) {
        (Number::Int(old), Number::Int(new)) => old == new,
        (Number::Float(old), Number::Int(new)) => old == new as f64,
        _ => false,
    };
    match pairs.find(|pair| !is_same(pair)) {
        Some((old, _)) => Err(Usage::error(format!(
            "{} is not a value of type {dtype}",
            from.format(old)
        ))),
        None => Ok(converted),
    }
}
