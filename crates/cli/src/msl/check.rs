//! `bessemer msl check`: does everything compile?

use crate::args::CheckArgs;
use crate::excerpt::{Message, Sources};
use crate::failure::{Outcome, Usage};
use crate::host::{self, Setup};
use crate::msl::diagnostic_json;
use crate::msl::library::compile;
use crate::msl::source::{self, Source};
use crate::terminal::{self, Out, counted, style};
use anyhow::Result;
use bessemer_hal::msl::{Diagnostic, DiagnosticKind, Severity};
use bessemer_hal::{Device, Error, Library};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Up to so many kernels are compiled in full without being asked to: about ten seconds on two cores.
const FULL: usize = 32;

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
    let sources: Vec<Source> = source::expand(&args.files)?
        .iter()
        .map(|file| Source::read(file))
        .collect::<Result<_>>()?;
    let device = host::open(&Setup::compiling(&args.compile))?;
    let jobs = args.jobs.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        cores.max(2)
    });
    let mut files = open_all(args, &device, sources, jobs)?;
    let kernels: usize = files.iter().map(|(_, checked)| checked.kernels).sum();
    let quick = args.quick || (!args.full && kernels > FULL);
    if quick {
        check_kernels(&mut files, jobs)?;
    } else {
        compile_kernels(&mut files, jobs)?;
        // What is wrong is known by now, but for warnings.
        check_kernels(&mut files, jobs)?;
    }

    let files: Vec<Checked> = files.into_iter().map(|(_, checked)| checked).collect();
    if args.json {
        terminal::write_json(out, &to_json(&files))?;
    } else {
        write_text(&files, quick, start.elapsed(), out)?;
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
    let libraries = in_parallel(jobs, &sources, |source| {
        let library = compile(device, source, &args.compile);
        progress.step(1);
        library
    });
    drop(progress);
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
            Err(error) if !is_about_source(&error) => return Err(error.into()),
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

/// Generates code for the chosen kernels.
fn compile_kernels(files: &mut [Opened], jobs: usize) -> Result<()> {
    let tasks: Vec<(usize, &Library, &str)> = files
        .iter()
        .enumerate()
        .filter_map(|(file, (opened, _))| Some((file, opened.as_ref()?)))
        .flat_map(|(file, (library, names))| names.iter().map(move |n| (file, library, n.as_str())))
        .collect();
    let progress = Progress::new("compiling", tasks.len());
    let results = in_parallel(jobs, &tasks, |(_, library, name)| {
        let result = match library.pipeline(name) {
            // It compiles, but cannot run before its function constants have values.
            Ok(_) | Err(Error::Binding { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        progress.step(1);
        result
    });
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

/// Checks the chosen kernels, many of one file at once, with warnings.
fn check_kernels(files: &mut [Opened], jobs: usize) -> Result<()> {
    let kernels: usize = files.iter().map(|(_, checked)| checked.kernels).sum();
    // Enough pieces to keep everyone busy and to show progress; each piece reads the source again.
    let piece = (kernels / (4 * jobs)).clamp(16, 128);
    let tasks: Vec<(usize, &Library, Vec<&str>)> = files
        .iter()
        .enumerate()
        .filter_map(|(file, (opened, _))| Some((file, opened.as_ref()?)))
        .flat_map(|(file, (library, names))| {
            // A file without kernels is one piece, too.
            let rest = names.is_empty().then_some(&[][..]);
            let pieces = names.chunks(piece).chain(rest);
            pieces.map(move |p| (file, library, p.iter().map(String::as_str).collect()))
        })
        .collect();
    let progress = Progress::new("checking", kernels);
    let results = in_parallel(jobs, &tasks, |(_, library, names)| {
        let result = library.lint(names);
        progress.step(names.len());
        result
    });
    let results: Vec<_> = tasks.iter().map(|(file, ..)| *file).zip(results).collect();
    for (file, result) in results {
        let checked = &mut files[file].1;
        match result {
            Ok(warnings) => checked.add_diagnostics(None, warnings),
            Err(error) if is_about_source(&error) => checked.add(None, None, error),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Applies `work` to all items, `jobs` at a time; the results are in the order of the items.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(item) = items.get(index)
            {
                done.push((index, work(item)));
            }
            done
        };
        let workers: Vec<_> = (0..jobs.min(items.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("workers do not panic"))
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
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
                flag: None,
                source_line: None,
            }],
        };
        self.failed.extend(kernel.map(str::to_owned));
        self.add_diagnostics(kernel, diagnostics);
    }

    fn add_diagnostics(&mut self, kernel: Option<&str>, diagnostics: Vec<Diagnostic>) {
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
    told: Mutex<Instant>,
}

const QUIET_TIME: Duration = Duration::from_secs(10);

impl Progress {
    fn new(what: &'static str, total: usize) -> Self {
        let bar = match total {
            // Over before it can be read.
            0 | 1 => ProgressBar::hidden(),
            _ => ProgressBar::new(total as u64),
        };
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

    fn step(&self, count: usize) {
        self.bar.inc(count as u64);
        let Ok(mut told) = self.told.lock() else {
            return;
        };
        if self.bar.is_hidden() && told.elapsed() >= QUIET_TIME {
            *told = Instant::now();
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

fn write_text(files: &[Checked], quick: bool, time: Duration, out: &mut Out) -> Result<()> {
    for file in files {
        let mut sources = file.source.sources();
        for finding in &file.findings {
            write_finding(finding, file.kernels, &mut sources, out)?;
        }
        let (colour, verdict) = match file.errors() {
            0 => (style::GOOD, "ok".to_owned()),
            errors => (style::ERROR, counted(errors, "error")),
        };
        let kernels = match file.kernels {
            // Nothing is known of them if the file as a whole is wrong.
            0 if file.errors() > 0 => String::new(),
            kernels => format!(" {}:", counted(kernels, "kernel")),
        };
        let name = &file.source.name;
        writeln!(out, "{name}:{kernels} {colour}{verdict}{colour:#}")?;
    }
    let errors: usize = files.iter().map(Checked::errors).sum();
    let kernels = files.iter().map(|f| f.kernels).sum();
    let failed: usize = files.iter().map(|f| f.failed.len()).sum();
    let verdict = match (errors, failed) {
        (0, _) if quick => "all correct, no code generated".to_owned(),
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
        [name] if diagnostic.message.contains(name.as_str()) => diagnostic.message.clone(),
        [name] => format!("{} (kernel `{name}`)", diagnostic.message),
        [name, rest @ ..] => format!(
            "{} (kernel `{name}` and {})",
            diagnostic.message,
            counted(rest.len(), "other")
        ),
        [] => diagnostic.message.clone(),
    };
    let text = match &diagnostic.flag {
        Some(flag) => format!("{text} [-W{flag}]"),
        None => text,
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
