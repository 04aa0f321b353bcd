//! `bessemer msl check`: does everything compile?

use crate::args::CheckArgs;
use crate::excerpt::{Message, Sources};
use crate::failure::{Outcome, Usage};
use crate::host::{self, Setup};
use crate::msl::diagnostic_json;
use crate::msl::library::compile;
use crate::msl::source::Source;
use crate::terminal::{self, Out, counted, style};
use anyhow::Result;
use bessemer_hal::msl::{Diagnostic, DiagnosticKind, Severity};
use bessemer_hal::{Device, Error, Library};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A message and the kernels whose compilation brought it up: none if it was the file as a whole.
#[derive(Debug)]
struct Finding {
    diagnostic: Diagnostic,
    notes: Vec<Diagnostic>,
    kernels: Vec<String>,
}

/// What was found in one file.
#[derive(Debug)]
struct Checked {
    source: Source,
    kernels: usize,
    failed: BTreeSet<String>,
    findings: Vec<Finding>,
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, out: &mut Out) -> Result<Outcome> {
    let start = Instant::now();
    let sources: Vec<Source> = args
        .files
        .iter()
        .map(|file| Source::read(file))
        .collect::<Result<_>>()?;
    let device = host::open(&Setup::compiling(&args.compile))?;
    let jobs = args.jobs.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        cores.max(2)
    });
    let mut files = open_all(args, &device, sources, jobs)?;
    check_kernels(&mut files, jobs)?;

    let files: Vec<Checked> = files.into_iter().map(|(_, checked)| checked).collect();
    if args.json {
        terminal::write_json(out, &to_json(&files))?;
    } else {
        write_text(&files, start.elapsed(), out)?;
    }
    Ok(if files.iter().all(|f| f.errors() == 0) {
        Outcome::Clean
    } else {
        Outcome::Found
    })
}

type Opened = (Option<(Library, Vec<String>)>, Checked);

/// Reads all files and chooses their kernels.
fn open_all(
    args: &CheckArgs,
    device: &Device,
    sources: Vec<Source>,
    jobs: usize,
) -> Result<Vec<Opened>> {
    let progress = Progress::new("reading", sources.len());
    let libraries = in_parallel(jobs, &sources, &progress, |source| {
        compile(device, source, &args.compile)
    })?;
    let mut unknown: Vec<_> = args.kernels.iter().map(|name| (name, None)).collect();
    let mut files = Vec::new();
    for (source, library) in sources.into_iter().zip(libraries) {
        let mut checked = Checked {
            source,
            kernels: 0,
            failed: BTreeSet::new(),
            findings: Vec::new(),
        };
        let library = match library {
            Ok(library) => library,
            Err(error) => {
                checked.add(None, None, error);
                files.push((None, checked));
                // The kernel asked for may be in here.
                unknown.clear();
                continue;
            }
        };
        let mut names = library.function_names();
        if !args.kernels.is_empty() {
            names.retain(|name| args.kernels.contains(name));
            unknown.retain_mut(|(name, why)| match library.function(name) {
                Ok(_) => false,
                Err(error) => {
                    *why = Some(error.to_string());
                    true
                }
            });
        }
        checked.kernels = names.len();
        files.push((Some((library, names)), checked));
    }
    if let Some((name, why)) = unknown.into_iter().next() {
        let why = why.filter(|_| files.len() == 1);
        return Err(Usage::error(why.unwrap_or_else(|| {
            format!("no kernel `{name}` in any of the files")
        })));
    }
    Ok(files)
}

/// Compiles the chosen kernels.
fn check_kernels(files: &mut [Opened], jobs: usize) -> Result<()> {
    let tasks: Vec<(usize, &Library, &str)> = files
        .iter()
        .enumerate()
        .filter_map(|(file, (opened, _))| Some((file, opened.as_ref()?)))
        .flat_map(|(file, (library, names))| names.iter().map(move |n| (file, library, n.as_str())))
        .collect();
    let progress = Progress::new("compiling", tasks.len());
    let results = in_parallel(jobs, &tasks, &progress, |(_, library, name)| {
        match library.pipeline(name) {
            // It compiles, but cannot run before its function constants have values.
            Ok(_) | Err(Error::Binding { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    })?;
    let failures: Vec<_> = tasks
        .iter()
        .zip(results)
        .filter_map(|((file, _, name), result)| Some((*file, (*name).to_owned(), result.err()?)))
        .collect();
    for (file, name, error) in failures {
        let (opened, checked) = &mut files[file];
        let reflection = opened
            .as_ref()
            .and_then(|(library, _)| library.reflection());
        let kernel = reflection.and_then(|r| r.kernel(&name));
        let place = kernel.map(|k| (k.file.as_str(), k.line));
        checked.add(Some(&name), place, error);
    }
    Ok(())
}

/// Applies `work` to all items, `jobs` at a time; the results are in the order of the items. An error that
/// is not about the user's source ends it.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    progress: &Progress,
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<Result<R, Error>>> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let mut results: Vec<_> = items.iter().map(|_| None).collect();
    let mut fatal = None;
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs.min(items.len()) {
            let (sender, next, stop, work) = (sender.clone(), &next, &stop, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    if sender.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            progress.step();
            match result {
                Err(error) if !is_about_source(&error) => {
                    stop.store(true, Ordering::Relaxed);
                    fatal.get_or_insert(error);
                }
                result => results[index] = Some(result),
            }
        }
    });
    match fatal {
        Some(error) => Err(error.into()),
        None => Ok(results.into_iter().flatten().collect()),
    }
}

fn is_about_source(error: &Error) -> bool {
    matches!(
        error,
        Error::Compile { .. } | Error::Launch { .. } | Error::Unsupported { .. }
    )
}

impl Checked {
    /// Notes a failure, of a kernel at a place if that is known. The instantiations of a template fail alike: the same message is kept once.
    fn add(&mut self, kernel: Option<&str>, place: Option<(&str, u32)>, error: Error) {
        let diagnostics = match error {
            Error::Compile { diagnostics, .. } => diagnostics,
            error => vec![Diagnostic {
                severity: Severity::Error,
                kind: DiagnosticKind::Unsupported,
                message: error.to_string(),
                file: place
                    .map_or(self.source.name.as_str(), |(file, _)| file)
                    .to_owned(),
                line: place.map_or(0, |(_, line)| line),
                column: 0,
                source_line: None,
            }],
        };
        self.failed.extend(kernel.map(str::to_owned));
        let mut current = None;
        for diagnostic in diagnostics {
            if diagnostic.severity == Severity::Note {
                // Notes of a finding that is known already are known, too.
                if let Some(finding) = current.and_then(|at: usize| self.findings.get_mut(at)) {
                    finding.notes.push(diagnostic);
                }
                continue;
            }
            let known = self
                .findings
                .iter_mut()
                .find(|f| f.diagnostic == diagnostic);
            match known {
                Some(finding) => {
                    finding.kernels.extend(kernel.map(str::to_owned));
                    current = None;
                }
                None => {
                    current = Some(self.findings.len());
                    self.findings.push(Finding {
                        diagnostic,
                        notes: Vec::new(),
                        kernels: kernel.map(str::to_owned).into_iter().collect(),
                    });
                }
            }
        }
    }

    fn errors(&self) -> usize {
        let errors = self.findings.iter();
        errors
            .filter(|f| f.diagnostic.severity == Severity::Error)
            .count()
    }
}

/// A bar on a terminal; elsewhere a line now and then, so that a log shows life.
#[derive(Debug)]
struct Progress {
    bar: ProgressBar,
    what: &'static str,
    told: std::cell::Cell<Instant>,
}

const QUIET_TIME: Duration = Duration::from_secs(10);

impl Progress {
    fn new(what: &'static str, total: usize) -> Self {
        let bar = ProgressBar::new(total as u64);
        let template = "{msg} {pos}/{len} [{bar:30}] {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        Self {
            bar,
            what,
            told: Instant::now().into(),
        }
    }

    fn step(&self) {
        self.bar.inc(1);
        if self.bar.is_hidden() && self.told.get().elapsed() >= QUIET_TIME {
            self.told.set(Instant::now());
            let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
            let _ = writeln!(terminal::stderr(), "{}: {done} of {total}", self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn write_text(files: &[Checked], time: Duration, out: &mut Out) -> Result<()> {
    for file in files {
        let mut sources = file.source.sources();
        for finding in &file.findings {
            write_finding(finding, file.kernels, &mut sources, out)?;
        }
        let (colour, verdict) = match file.errors() {
            0 => (style::GOOD, "ok".to_owned()),
            errors => (style::ERROR, counted(errors, "error")),
        };
        writeln!(
            out,
            "{}: {}: {colour}{verdict}{colour:#}",
            file.source.name,
            counted(file.kernels, "kernel"),
        )?;
    }
    let errors: usize = files.iter().map(Checked::errors).sum();
    let kernels = files.iter().map(|f| f.kernels).sum();
    let failed: usize = files.iter().map(|f| f.failed.len()).sum();
    let verdict = match (errors, failed) {
        (0, _) => "all compile".to_owned(),
        (_, 0) => counted(errors, "error"),
        _ => format!(
            "{} in {}",
            counted(errors, "error"),
            counted(failed, "kernel")
        ),
    };
    let colour = if errors == 0 {
        style::GOOD
    } else {
        style::ERROR
    };
    writeln!(
        out,
        "{} in {}: {colour}{verdict}{colour:#} ({:.1} s)",
        counted(kernels, "kernel"),
        counted(files.len(), "file"),
        time.as_secs_f64()
    )?;
    out.flush()?;
    Ok(())
}

fn write_finding(
    finding: &Finding,
    kernels: usize,
    sources: &mut Sources,
    out: &mut Out,
) -> Result<()> {
    let Finding {
        diagnostic,
        notes,
        kernels: failing,
    } = finding;
    // With one kernel, or all of them, the name adds nothing.
    let text = match &failing[..] {
        names if names.is_empty() || kernels == names.len() => diagnostic.message.clone(),
        [name] => format!("{} (kernel `{name}`)", diagnostic.message),
        [name, rest @ ..] => format!(
            "{} (kernel `{name}` and {})",
            diagnostic.message,
            counted(rest.len(), "other")
        ),
        [] => diagnostic.message.clone(),
    };
    let message = Message {
        text: &text,
        ..diagnostic.into()
    };
    sources.write(out, message)?;
    for note in notes {
        sources.write(out, note.into())?;
    }
    Ok(())
}

fn to_json(files: &[Checked]) -> Value {
    let diagnostics: Vec<_> = files
        .iter()
        .flat_map(|file| &file.findings)
        .map(|finding| {
            let mut value = diagnostic_json(&finding.diagnostic);
            value["notes"] = finding.notes.iter().map(diagnostic_json).collect();
            value["kernels"] = finding.kernels.clone().into();
            value
        })
        .collect();
    let list: Vec<_> = files
        .iter()
        .map(|file| {
            json!({
                "file": file.source.name,
                "kernels": file.kernels,
                "failed": file.failed,
                "errors": file.errors(),
            })
        })
        .collect();
    json!({
        "files": list,
        "kernels": files.iter().map(|f| f.kernels).sum::<usize>(),
        "errors": files.iter().map(Checked::errors).sum::<usize>(),
        "diagnostics": diagnostics,
    })
}
