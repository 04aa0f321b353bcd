//! `bessemer msl run`: one kernel, on given data.

use crate::args::RunArgs;
use crate::excerpt::{Message, Sources};
use crate::failure::{Outcome, Usage};
use crate::host::{self, Setup};
use crate::msl::inputs::Input;
use crate::msl::library::{choose_kernel, compile};
use crate::msl::source::Source;
use crate::msl::{diagnostic_json, write_diagnostics};
use crate::spec::ConstantKey;
use crate::terminal::{self, Out, counted, style};
use anyhow::Result;
use bessemer_hal::{
    Access, ArgumentKind, Completed, Device, Error, Fault, FunctionConstants, Library, LogLine,
    Pipeline, Report, ReportKind, Size,
};
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// What came of a launch.
#[derive(Debug, Default)]
struct Findings {
    /// The shortest time on the device; none if the kernel did not run.
    time: Option<Duration>,
    reports: Vec<Report>,
    logs: Vec<LogLine>,
    /// Whether the buffers hold what the kernel wrote.
    readable: bool,
}

/// Runs the command.
pub(crate) fn run(args: &RunArgs, out: &mut Out) -> Result<Outcome> {
    check_indices(args)?;
    let source = Source::read(&args.file)?;
    let device = host::open(&Setup::from(args))?;
    let inputs: Vec<Input> = args
        .buffers
        .iter()
        .map(|spec| Input::load(&device, spec))
        .collect::<Result<_>>()?;
    let library = match compile(&device, &source, &args.compile) {
        Err(error) => return failed_compile(args, out, &source, error),
        Ok(library) => library,
    };
    let kernel = choose_kernel(&library, args.kernel.as_deref())?;
    let constants = constants(args, &library)?;
    let pipeline = library.function_with(&kernel, constants)?.pipeline();
    let mut findings = match pipeline {
        Ok(pipeline) => match missing_threadgroup_memory(args, &device, &pipeline) {
            Some(report) => Findings {
                reports: vec![report],
                ..Findings::default()
            },
            None => launch(args, &device, &pipeline, &inputs)?,
        },
        // The kernel alone exceeds a limit, and memory is the only one it can exceed alone.
        Err(Error::Launch { kernel, message }) => Findings {
            reports: vec![report(ReportKind::ThreadgroupMemory, &kernel, message)],
            ..Findings::default()
        },
        // A function constant without a value.
        Err(error @ Error::Binding { .. }) => return Err(Usage::error(error.to_string())),
        Err(error) => return failed_compile(args, out, &source, error),
    };
    for report in &mut findings.reports {
        place(report, &library);
    }
    if findings.readable {
        for spec in &args.outs {
            input(&inputs, spec.index)?.save(&spec.value.0)?;
        }
    }
    if args.json {
        write_json(args, out, &findings, &inputs)?;
    } else {
        write_text(args, out, &source, &kernel, &findings, &inputs)?;
    }
    Ok(if findings.reports.is_empty() {
        Outcome::Clean
    } else {
        Outcome::Found
    })
}

/// Options that speak of a buffer need that buffer.
fn check_indices(args: &RunArgs) -> Result<()> {
    let bound = |index: u32| args.buffers.iter().any(|b| b.index == index);
    let outs = args.outs.iter().map(|o| ("--out", o.index));
    let prints = args.prints.iter().map(|p| ("--print", p.index));
    let offsets = args.offsets.iter().map(|o| ("--offset", o.index));
    for (option, index) in outs.chain(prints).chain(offsets) {
        if !bound(index) {
            return Err(Usage::error(format!(
                "{option} {index}: there is no --buffer {index}"
            )));
        }
    }
    Ok(())
}

fn input(inputs: &[Input], index: u32) -> Result<&Input> {
    inputs
        .iter()
        .find(|i| i.index == index)
        .ok_or_else(|| Usage::error(format!("there is no --buffer {index}")))
}

/// Function constants by index; names are looked up in the source.
fn constants(args: &RunArgs, library: &Library) -> Result<FunctionConstants> {
    let mut constants = FunctionConstants::new();
    for spec in &args.constants {
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
            "--const {name}: names are known on the software device only; use the index"
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

fn report(kind: ReportKind, kernel: &str, message: String) -> Report {
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

/// What concerns a kernel as a whole is shown at the kernel.
fn place(report: &mut Report, library: &Library) {
    let kernel = library.reflection().and_then(|r| r.kernel(&report.kernel));
    if let Some(kernel) = kernel
        && report.line == 0
    {
        report.file.clone_from(&kernel.file);
        report.line = kernel.line;
    }
}

/// Threadgroup memory that was forgotten, or more than there is: a defect of the launch that Metal's
/// validation reports as well, so it is a report here and not wrong usage.
fn missing_threadgroup_memory(
    args: &RunArgs,
    device: &Device,
    pipeline: &Pipeline,
) -> Option<Report> {
    let given = |index: u32| args.threadgroup_memory.iter().any(|m| m.index == index);
    for argument in pipeline.arguments() {
        if let ArgumentKind::ThreadgroupMemory(index) = argument.kind
            && argument.active
            && !given(index)
        {
            let message = format!(
                "threadgroup argument `{}` has no length; give one with --threadgroup-memory {index}=BYTES",
                argument.name
            );
            return Some(report(
                ReportKind::ThreadgroupMemory,
                pipeline.name(),
                message,
            ));
        }
    }
    let most = device.info().limits.max_threadgroup_memory;
    let total = args.threadgroup_memory.iter().map(|m| m.value.0).fold(
        pipeline.static_threadgroup_memory_length(),
        usize::saturating_add,
    );
    (total > most).then(|| {
        let message =
            format!("{total} bytes of threadgroup memory are more than the {most} there are");
        report(ReportKind::ThreadgroupMemory, pipeline.name(), message)
    })
}

/// Runs the kernel as often as asked for; the first failure ends it.
fn launch(
    args: &RunArgs,
    device: &Device,
    pipeline: &Pipeline,
    inputs: &[Input],
) -> Result<Findings> {
    let mut findings = Findings::default();
    for _ in 0..args.repeat {
        for input in inputs {
            input.reset()?;
        }
        let start = Instant::now();
        match launch_once(args, device, pipeline, inputs) {
            Ok(completed) => {
                let time = completed.gpu_time();
                findings.time = Some(findings.time.map_or(time, |t| t.min(time)));
                findings.logs = completed.logs;
                findings.readable = true;
            }
            Err(error) => {
                findings.readable = matches!(error, Error::Checked { .. });
                findings.reports = reports(error, pipeline.name())?;
                findings.time = Some(start.elapsed());
                break;
            }
        }
    }
    Ok(findings)
}

fn launch_once(
    args: &RunArgs,
    device: &Device,
    pipeline: &Pipeline,
    inputs: &[Input],
) -> Result<Completed, Error> {
    let mut commands = device.commands();
    let mut dispatch = commands.dispatch(pipeline);
    for input in inputs {
        let offset = args.offsets.iter().find(|o| o.index == input.index);
        let offset = offset.map_or(0, |o| o.value.0);
        let length = input.buffer.length();
        // An offset past the end is refused with the buffer's own length.
        let slice = input.buffer.slice(offset..length.max(offset))?;
        dispatch = dispatch.bind(input.index, slice, access(pipeline, input.index));
    }
    for bytes in &args.bytes {
        dispatch = dispatch.set_bytes(bytes.index, &bytes.value.0);
    }
    for memory in &args.threadgroup_memory {
        dispatch = dispatch.threadgroup_memory(memory.index, memory.value.0);
    }
    let extent = args.grid.or(args.threadgroups).unwrap_or(Size::x(1));
    let threadgroup = args.threadgroup.unwrap_or_else(|| match extent {
        Size {
            height: 1,
            depth: 1,
            ..
        } => pipeline.optimal_thread_group_size(),
        _ => pipeline.optimal_thread_group_size_2d(),
    });
    if args.grid.is_some() {
        dispatch.threads(extent, threadgroup)?;
    } else {
        dispatch.threadgroups(extent, threadgroup)?;
    }
    commands.commit()?.wait()
}

/// What the kernel does with a buffer, as far as it is known.
fn access(pipeline: &Pipeline, index: u32) -> Access {
    pipeline
        .arguments()
        .iter()
        .find(|a| a.kind == ArgumentKind::Buffer(index))
        .map_or(Access::ReadWrite, |a| a.access)
}

/// A failed launch as reports; what is the caller's mistake or the machine's trouble stays an error.
fn reports(error: Error, kernel: &str) -> Result<Vec<Report>> {
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
            // Drivers often begin with the same words.
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

/// A kernel that does not compile has not run: diagnostics, and exit code 1.
fn failed_compile(args: &RunArgs, out: &mut Out, source: &Source, error: Error) -> Result<Outcome> {
    let Error::Compile { diagnostics, .. } = error else {
        return Err(error.into());
    };
    if args.json {
        let diagnostics: Vec<_> = diagnostics.iter().map(diagnostic_json).collect();
        terminal::write_json(
            out,
            &json!({ "time_ms": null, "reports": [], "logs": [], "diagnostics": diagnostics }),
        )?;
        return Ok(Outcome::Found);
    }
    write_diagnostics(source, &diagnostics)?;
    Ok(Outcome::Found)
}

fn report_json(report: &Report) -> Value {
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

fn write_json(args: &RunArgs, out: &mut Out, findings: &Findings, inputs: &[Input]) -> Result<()> {
    let logs: Vec<_> = findings
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
    let reports: Vec<_> = findings.reports.iter().map(report_json).collect();
    let time = findings.time.map(|t| t.as_secs_f64() * 1e3);
    let mut value = json!({ "time_ms": time, "reports": reports, "logs": logs });
    if !args.prints.is_empty() && findings.readable {
        let mut values = serde_json::Map::new();
        for spec in &args.prints {
            let array = input(inputs, spec.index)?.array()?;
            let elements = array.data.chunks_exact(array.dtype.size());
            let shown: Vec<_> = elements
                .take(spec.count)
                .map(|e| array.dtype.to_json(e))
                .collect();
            values.insert(spec.index.to_string(), shown.into());
        }
        value["values"] = values.into();
    }
    terminal::write_json(out, &value)
}

fn write_text(
    args: &RunArgs,
    out: &mut Out,
    source: &Source,
    kernel: &str,
    findings: &Findings,
    inputs: &[Input],
) -> Result<()> {
    let mut err = terminal::stderr();
    for log in &findings.logs {
        let scope = match (log.subsystem.as_str(), log.category.as_str()) {
            ("", "") => String::new(),
            (subsystem, "") => format!(" [{subsystem}]"),
            (subsystem, category) => format!(" [{subsystem}:{category}]"),
        };
        writeln!(err, "{}{scope}: {}", log.level, log.message)?;
    }
    let mut sources = source.sources();
    for report in &findings.reports {
        write_report(out, &mut sources, report)?;
    }
    if findings.readable {
        for spec in &args.prints {
            let array = input(inputs, spec.index)?.array()?;
            let elements = array.data.chunks_exact(array.dtype.size());
            let total = elements.len();
            let mut shown: Vec<_> = elements
                .take(spec.count)
                .map(|e| array.dtype.format(e))
                .collect();
            if shown.len() < total {
                shown.push("…".to_owned());
            }
            let dims: Vec<_> = array.shape.iter().map(usize::to_string).collect();
            let (bold, dtype) = (style::STRONG, array.dtype);
            let heading = format!("buffer {} ({dtype} {})", spec.index, dims.join("x"));
            writeln!(out, "{bold}{heading}{bold:#}: {}", shown.join(" "))?;
        }
    }
    let time = findings.time.map_or(String::new(), |time| {
        format!(" in {:.3} ms", time.as_secs_f64() * 1e3)
    });
    let (colour, verdict) = match findings.reports.len() {
        0 => (style::GOOD, "clean".to_owned()),
        count => (style::ERROR, counted(count, "report")),
    };
    writeln!(out, "{kernel}{time}: {colour}{verdict}{colour:#}")?;
    out.flush()?;
    Ok(())
}

fn write_report(out: &mut Out, sources: &mut Sources, report: &Report) -> Result<()> {
    let mut text = format!("{} (kernel `{}`", report.message, report.kernel);
    if let Some([x, y, z]) = report.thread {
        text += &format!(", thread [{x}, {y}, {z}]");
    }
    if report.count > 1 {
        text += &format!(", {} times", report.count);
    }
    text += ")";
    sources.write(
        out,
        Message {
            file: &report.file,
            line: report.line,
            column: report.column,
            kind: report.kind.as_str(),
            style: style::ERROR,
            text: &text,
        },
    )?;
    Ok(())
}
