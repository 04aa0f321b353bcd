//! `bessemer msl run`: runs one kernel on given data.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use bessemer_hal::msl::Diagnostic;
use bessemer_hal::{Completed, Device, Error, LogLine, Pipeline, Report, Size};
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::excerpt::{Message, Sources};
use crate::failure::{Outcome, Usage};
use crate::host::{self, Setup};
use crate::msl::baseline::KnownReports;
use crate::msl::finding::{Finding, Findings, report_text};
use crate::msl::format::{self, Format};
use crate::msl::inputs::Input;
use crate::msl::launch::{self, BoundInput, Built, Extent, Launch};
use crate::msl::library::{choose_kernel, compile};
use crate::msl::source::Source;
use crate::msl::{diagnostic_json, write_diagnostics};
use crate::terminal::{self, Out, counted, style};

/// The result of a launch.
#[derive(Debug, Default)]
struct LaunchResult {
    /// The shortest time on the device; `None` if the kernel did not run.
    time: Option<Duration>,
    reports: Vec<Report>,
    /// Number of further reports that are in the baseline.
    known: usize,
    logs: Vec<LogLine>,
    /// Whether the buffers contain the kernel's results.
    readable: bool,
}

/// The buffers of the command line with their indices.
type Inputs = Vec<(u32, Input)>;

/// Runs the command.
pub(crate) fn run(args: &RunArgs, out: &mut Out) -> Result<Outcome> {
    check_indices(args)?;
    let known = KnownReports::load(&args.baseline)?;
    let source = Source::read(&args.file)?;
    let device = host::open(&Setup::from(args))?;
    let inputs: Inputs = args
        .buffers
        .inputs
        .iter()
        .map(|spec| {
            let name = spec.index.to_string();
            Ok((spec.index, Input::load(&device, &name, &spec.value)?))
        })
        .collect::<Result<_>>()?;
    let library = match compile(&device, &source, &args.compile) {
        Err(Error::Compile { diagnostics, .. }) => {
            return write_rejection(args, out, &source, &diagnostics);
        }
        library => library?,
    };
    let kernel = choose_kernel(&library, args.kernel.as_deref())?;
    let mut result = match launch::build(&library, &kernel, &args.constants)? {
        Built::Pipeline(pipeline) => {
            let launch = prepare(args, &inputs);
            match launch.missing_threadgroup_memory(&device, &pipeline) {
                Some(report) => LaunchResult::report(report),
                None => repeat(args.repeat, &device, &pipeline, &launch)?,
            }
        }
        Built::Report(report) => LaunchResult::report(report),
        Built::Rejected(diagnostics) => return write_rejection(args, out, &source, &diagnostics),
    };
    for report in &mut result.reports {
        launch::locate(report, &library);
    }
    // If the kernel could not complete, there is nothing to accept.
    if result.readable {
        result.reports = known.filter(result.reports, &source);
        result.known = known.count();
    }
    known.finish(result.readable)?;
    if result.readable {
        args.buffers.save(|index| input(&inputs, index)?.array())?;
    }
    let outcome = if result.reports.is_empty() {
        Outcome::Clean
    } else {
        Outcome::Defect
    };
    match args.format.get() {
        Format::Text => write_text(args, out, &source, &kernel, &result, &inputs)?,
        Format::Json => format::write_json(out, to_json(args, &result, &inputs)?, outcome)?,
        format => {
            let findings: Vec<_> = result.reports.iter().map(Finding::from_report).collect();
            write_logs(&result.logs)?;
            write_findings(out, format, &source, &findings, outcome)?;
        }
    }
    Ok(outcome)
}

/// Rejects options for buffers that are not bound.
fn check_indices(args: &RunArgs) -> Result<()> {
    args.buffers.check_indices()?;
    args.offsets
        .iter()
        .try_for_each(|o| args.buffers.check_index("--offset", o.index))
}

fn input(inputs: &Inputs, index: u32) -> Result<&Input> {
    inputs
        .iter()
        .find(|(i, _)| *i == index)
        .map(|(_, input)| input)
        .ok_or_else(|| Usage::error(format!("there is no --buffer {index}")))
}

/// The launch described by the command line.
fn prepare<'a>(args: &'a RunArgs, inputs: &'a Inputs) -> Launch<'a> {
    let offset = |index: u32| {
        let offset = args.offsets.iter().find(|o| o.index == index);
        offset.map_or(0, |o| o.value.0)
    };
    Launch {
        buffers: inputs
            .iter()
            .map(|(index, input)| BoundInput {
                index: *index,
                input,
                offset: offset(*index),
            })
            .collect(),
        bytes: args.bytes.iter().map(|b| (b.index, &*b.value.0)).collect(),
        threadgroup_memory: args
            .threadgroup_memory
            .iter()
            .map(|m| (m.index, m.value.0))
            .collect(),
        extent: match (args.grid, args.threadgroups) {
            (Some(threads), _) => Extent::Threads(threads),
            (None, groups) => Extent::Threadgroups(groups.unwrap_or(Size::x(1))),
        },
        threadgroup: args.threadgroup,
    }
}

impl LaunchResult {
    /// A launch that was rejected.
    fn report(report: Report) -> Self {
        Self {
            reports: vec![report],
            ..Self::default()
        }
    }
}

/// Runs the kernel `count` times, up to the first failure.
fn repeat(
    count: usize,
    device: &Device,
    pipeline: &Pipeline,
    launch: &Launch<'_>,
) -> Result<LaunchResult> {
    let mut result = LaunchResult::default();
    let once = || -> Result<Completed, Error> {
        let mut commands = device.commands();
        launch.encode(&mut commands, pipeline)?;
        commands.commit()?.wait()
    };
    for _ in 0..count {
        for bound in &launch.buffers {
            bound.input.reset()?;
        }
        let start = Instant::now();
        match once() {
            Ok(completed) => {
                let time = completed.gpu_time();
                result.time = Some(result.time.map_or(time, |t| t.min(time)));
                result.logs = completed.logs;
                result.readable = true;
            }
            Err(error) => {
                result.readable = matches!(error, Error::Checked { .. });
                result.reports = launch::reports(error, pipeline.name())?;
                result.time = Some(start.elapsed());
                break;
            }
        }
    }
    Ok(result)
}

/// Writes the diagnostics of a kernel that does not compile.
fn write_rejection(
    args: &RunArgs,
    out: &mut Out,
    source: &Source,
    diagnostics: &[Diagnostic],
) -> Result<Outcome> {
    let outcome = Outcome::NotCompiled;
    match args.format.get() {
        Format::Text => write_diagnostics(source, diagnostics)?,
        Format::Json => {
            let diagnostics: Vec<_> = diagnostics.iter().map(diagnostic_json).collect();
            let value =
                json!({ "time_ms": null, "reports": [], "logs": [], "diagnostics": diagnostics });
            format::write_json(out, value, outcome)?;
        }
        format => {
            let findings = Finding::from_diagnostics(diagnostics);
            write_findings(out, format, source, &findings, outcome)?;
        }
    }
    Ok(outcome)
}

fn write_findings(
    out: &mut Out,
    format: Format,
    source: &Source,
    findings: &[Finding],
    outcome: Outcome,
) -> Result<()> {
    let closing = counted(findings.len(), "finding");
    let findings = Findings {
        findings,
        failures: &[],
        outcome,
    };
    format::write_findings(out, format, &findings, &mut source.sources(), &closing)
}

pub(crate) fn report_json(report: &Report) -> Value {
    json!({
        "kind": report.kind.as_str(),
        "message": report.message,
        "kernel": report.kernel,
        "file": report.file,
        "line": report.line,
        "column": report.column,
        "buffer": report.buffer,
        "thread": report.thread,
        "threadgroup": report.threadgroup,
        "count": report.count,
    })
}

fn to_json(args: &RunArgs, result: &LaunchResult, inputs: &Inputs) -> Result<Value> {
    let logs: Vec<_> = result
        .logs
        .iter()
        .map(|log| {
            json!({
                "level": log.level,
                "subsystem": log.subsystem,
                "category": log.category,
                "message": log.message,
            })
        })
        .collect();
    let reports: Vec<_> = result.reports.iter().map(report_json).collect();
    let time = result.time.map(|t| t.as_secs_f64() * 1e3);
    let mut value =
        json!({ "time_ms": time, "reports": reports, "known": result.known, "logs": logs });
    if result.readable
        && let Some(values) = args.buffers.values(|index| input(inputs, index)?.array())?
    {
        value["values"] = values;
    }
    Ok(value)
}

fn write_logs(logs: &[LogLine]) -> Result<()> {
    let mut err = terminal::stderr();
    for log in logs {
        let scope = match (log.subsystem.as_str(), log.category.as_str()) {
            ("", "") => String::new(),
            (subsystem, "") => format!(" [{subsystem}]"),
            (subsystem, category) => format!(" [{subsystem}:{category}]"),
        };
        writeln!(err, "{}{scope}: {}", log.level, log.message)?;
    }
    Ok(())
}

fn write_text(
    args: &RunArgs,
    out: &mut Out,
    source: &Source,
    kernel: &str,
    result: &LaunchResult,
    inputs: &Inputs,
) -> Result<()> {
    write_logs(&result.logs)?;
    let mut sources = source.sources();
    for report in &result.reports {
        write_report(out, &mut sources, report)?;
    }
    if result.readable {
        args.buffers
            .print(out, |index| input(inputs, index)?.array())?;
    }
    let time = result.time.map_or(String::new(), |time| {
        format!(" in {:.3} ms", time.as_secs_f64() * 1e3)
    });
    let (colour, mut verdict) = match result.reports.len() {
        0 => (style::GOOD, "clean".to_owned()),
        count => (style::ERROR, counted(count, "report")),
    };
    if result.known > 0 {
        verdict += &format!(", {}", counted(result.known, "known report"));
    }
    writeln!(out, "{kernel}{time}: {colour}{verdict}{colour:#}")?;
    out.flush()?;
    Ok(())
}

/// Writes a report with a source excerpt.
pub(crate) fn write_report(
    out: &mut impl std::io::Write,
    sources: &mut Sources,
    report: &Report,
) -> Result<()> {
    let message = Message {
        file: &report.file,
        line: report.line,
        column: report.column,
        kind: report.kind.as_str(),
        style: style::ERROR,
        text: &report_text(report),
    };
    sources.write(out, message)?;
    Ok(())
}
