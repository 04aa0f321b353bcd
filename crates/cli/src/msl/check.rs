//! `bessemer msl check`: compiles all kernels.

mod bisect;
mod output;
mod summary;

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;
use bessemer_hal::msl::{Diagnostic, DiagnosticKind, Severity};
use bessemer_hal::{Device, Error, Library, suppression_warnings};

use crate::args::CheckArgs;
use crate::failure::{Outcome, Usage};
use crate::host::{self, Setup};
use crate::msl::format::Format;
use crate::msl::library::compile;
use crate::msl::parallel::{Progress, in_parallel, jobs};
use crate::msl::source::{self, Source};
use crate::terminal::Out;

/// Maximum number of kernels that are compiled in full by default: about ten seconds on two cores.
const MAX_FULL_KERNELS: usize = 32;

/// A compiler message and the kernels whose compilation emitted it; none if it concerns the whole file.
#[derive(Debug)]
struct CompileFinding {
    diagnostic: Diagnostic,
    notes: Vec<Diagnostic>,
    kernels: Vec<String>,
}

/// The results of one file.
#[derive(Debug)]
struct Checked {
    source: Source,
    kernels: usize,
    /// Kernels known not to compile.
    failed: BTreeSet<String>,
    findings: Vec<CompileFinding>,
    /// Compiler failures: nothing is known about the file, or about some of its kernels.
    failures: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, out: &mut Out) -> Result<Outcome> {
    let start = Instant::now();
    if args.summary && matches!(args.format.get(), Format::Sarif | Format::Github) {
        return Err(Usage::error("--summary supports only text and JSON"));
    }
    let sources: Vec<Source> = source::expand(&args.files, "metal")?
        .iter()
        .map(|file| Source::read(file))
        .collect::<Result<_>>()?;
    let device = host::open(&Setup::compiling(&args.compile))?;
    let jobs = jobs(args.jobs);
    let mut files = open_all(args, &device, sources, jobs)?;
    let kernels: usize = files.iter().map(|(_, checked)| checked.kernels).sum();
    let quick = args.quick || (!args.full && kernels > MAX_FULL_KERNELS);
    if quick {
        check_kernels(&mut files, jobs)?;
    } else {
        compile_kernels(&mut files, jobs)?;
        // Errors are known by now; this adds warnings.
        check_kernels(&mut files, jobs)?;
    }
    if args.summary && quick {
        bisect::find_failing(&mut files, jobs)?;
    }

    let files: Vec<Checked> = files.into_iter().map(|(_, checked)| checked).collect();
    let outcome = files.iter().map(Checked::outcome).max();
    let outcome = outcome.unwrap_or(Outcome::Clean);
    match args.format.get() {
        format if args.summary => summary::write(&files, format, outcome, out)?,
        Format::Text => output::write_text(&files, quick, start.elapsed(), out)?,
        Format::Json => output::write_json(&files, outcome, out)?,
        format => output::write_findings(&files, format, outcome, out)?,
    }
    Ok(outcome)
}

type Opened = (Option<(Library, Vec<String>)>, Checked);

/// Reads all files and selects their kernels.
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
            failures: Vec::new(),
        };
        let comments = suppression_warnings(&checked.source.name, &checked.source.text);
        checked.add_diagnostics(None, comments);
        let library = match library {
            Ok(library) => library,
            Err(error) => {
                checked.record(None, None, error)?;
                files.push((None, checked));
                // The requested kernel may be in this file.
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

/// Generates code for the selected kernels.
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
            // It compiles, but needs values for its function constants to run.
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
        let location = kernel.map(|k| (k.file.as_str(), k.line));
        checked.record(Some(&name), location, error)?;
    }
    Ok(())
}

/// Checks the selected kernels, in chunks, with warnings.
fn check_kernels(files: &mut [Opened], jobs: usize) -> Result<()> {
    let kernels: usize = files.iter().map(|(_, checked)| checked.kernels).sum();
    // Enough chunks to keep all workers busy and to show progress; each chunk reads the source again.
    let chunk = (kernels / (4 * jobs)).clamp(16, 128);
    let tasks: Vec<(usize, &Library, Vec<&str>)> = files
        .iter()
        .enumerate()
        .filter_map(|(file, (opened, _))| Some((file, opened.as_ref()?)))
        .flat_map(|(file, (library, names))| {
            // A file without kernels is one chunk, too.
            let empty = names.is_empty().then_some(&[][..]);
            let chunks = names.chunks(chunk).chain(empty);
            chunks.map(move |c| (file, library, c.iter().map(String::as_str).collect()))
        })
        .collect();
    let progress = Progress::new("checking", kernels);
    let results = in_parallel(jobs, &tasks, |(_, library, names)| {
        let result = library.lint(names);
        progress.step(names.len());
        result
    });
    let results: Vec<_> = tasks
        .iter()
        .map(|(file, _, names)| (*file, names.iter().map(|n| (*n).to_owned()).collect()))
        .zip(results)
        .collect();
    for ((file, names), result) in results {
        let (checked, names): (_, Vec<String>) = (&mut files[file].1, names);
        match result {
            Ok(warnings) => checked.add_diagnostics(None, warnings),
            Err(error) => {
                // After a compiler failure, nothing is known about any of them. A compile error may concern only one.
                if matches!(error, Error::Toolchain { .. }) {
                    checked.failed.extend(names);
                }
                checked.record(None, None, error)?;
            }
        }
    }
    Ok(())
}

fn is_about_source(error: &Error) -> bool {
    matches!(
        error,
        Error::Compile { .. } | Error::Launch { .. } | Error::Unsupported { .. }
    )
}

impl Checked {
    /// Records a compile error, or a compiler failure if there is a compiler. All other errors end the command.
    fn record(
        &mut self,
        kernel: Option<&str>,
        location: Option<(&str, u32)>,
        error: Error,
    ) -> Result<()> {
        match error {
            Error::Toolchain { message } => {
                host::compiler()?;
                self.failed.extend(kernel.map(str::to_owned));
                if !self.failures.contains(&message) {
                    self.failures.push(message);
                }
            }
            error if is_about_source(&error) => self.add(kernel, location, error),
            error => return Err(error.into()),
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        match (self.failures.len(), self.errors()) {
            (0, 0) => Outcome::Clean,
            (0, _) => Outcome::NotCompiled,
            _ => Outcome::ToolFailed,
        }
    }

    /// Records a compile error, of a kernel at a location if known. Instantiations of a template fail alike: the same
    /// message is recorded once.
    fn add(&mut self, kernel: Option<&str>, location: Option<(&str, u32)>, error: Error) {
        let diagnostics = match error {
            Error::Compile { diagnostics, .. } => diagnostics,
            error => vec![Diagnostic {
                severity: Severity::Error,
                kind: DiagnosticKind::Unsupported,
                message: error.to_string(),
                file: location
                    .map_or(self.source.name.as_str(), |(file, _)| file)
                    .to_owned(),
                line: location.map_or(0, |(_, line)| line),
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
                // The notes of a known finding are known, too.
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
                    self.findings.push(CompileFinding {
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
