//! Known reports: those of a baseline do not fail `msl run` and `msl test`.

use crate::excerpt::Sources;
use crate::failure::Usage;
use crate::msl::source::Source;
use crate::terminal::{self, style};
use anyhow::{Context as _, Result};
use bessemer_hal::{Baseline, Report};
use clap::{Args, ValueHint};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Args)]
pub(crate) struct BaselineArgs {
    /// Accept the reports of check mode that this file lists
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    baseline: Option<PathBuf>,
    /// Write the reports of this run to the baseline instead of failing
    #[arg(long, requires = "baseline")]
    update_baseline: bool,
}

/// The baseline of a command, and the reports it was asked about.
#[derive(Debug)]
pub(crate) struct KnownReports {
    path: Option<PathBuf>,
    /// None while it is being written: then everything is known.
    baseline: Option<Baseline>,
    known: Mutex<Seen>,
}

/// Reports that are known, and the baseline of them.
#[derive(Debug, Default)]
struct Seen {
    reports: Vec<Report>,
    lines: Vec<Option<String>>,
}

impl KnownReports {
    /// Reads the baseline, if there is to be one.
    pub(crate) fn load(args: &BaselineArgs) -> Result<Self> {
        let baseline = match &args.baseline {
            Some(_) if args.update_baseline => None,
            None => Some(Baseline::default()),
            Some(path) => {
                let shown = path.display();
                let text = std::fs::read_to_string(path)
                    .with_context(|| Usage::context(format!("cannot read {shown}")))?;
                let baseline = Baseline::parse(&text);
                Some(baseline.map_err(|error| Usage::error(format!("{shown}: {error}")))?)
            }
        };
        Ok(Self {
            path: args.baseline.clone(),
            baseline,
            known: Mutex::default(),
        })
    }

    /// The reports of one run that are not known.
    pub(crate) fn judge(&self, reports: Vec<Report>, source: &Source) -> Vec<Report> {
        let sources = RefCell::new(source.sources());
        let (known, new) = match &self.baseline {
            None => (reports, Vec::new()),
            Some(baseline) => {
                let judged = baseline.filter(reports, |report| line(&sources, report));
                (judged.known, judged.new)
            }
        };
        let mut seen = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for report in known {
            seen.lines.push(line(&sources, &report));
            seen.reports.push(report);
        }
        new
    }

    /// How many reports were known.
    pub(crate) fn count(&self) -> usize {
        let seen = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        seen.reports.len()
    }

    /// Writes the baseline if that was asked for; otherwise, after a run of everything, names entries that are not
    /// needed any more.
    pub(crate) fn finish(&self, is_complete: bool) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let shown = path.display();
        let mut seen = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { reports, lines } = std::mem::take(&mut *seen);
        // The lines are asked for in the order of the reports, each once.
        let lines = RefCell::new(lines.into_iter());
        let line = |_: &Report| lines.borrow_mut().next().flatten();
        match &self.baseline {
            None => {
                let text = Baseline::of(&reports, line).to_text();
                std::fs::write(path, text).with_context(|| format!("cannot write {shown}"))?;
            }
            Some(baseline) if is_complete => {
                for entry in baseline.filter(reports, line).stale {
                    let (kind, kernel, file) = (entry.kind, &entry.kernel, &entry.file);
                    let text = format!(
                        "{shown}: {kind} in kernel `{kernel}` of {file} is not reported any more"
                    );
                    terminal::complain("note", style::STRONG, &text);
                }
            }
            Some(_) => {}
        }
        Ok(())
    }
}

fn line(sources: &RefCell<Sources>, report: &Report) -> Option<String> {
    let mut sources = sources.borrow_mut();
    sources.line(&report.file, report.line).map(str::to_owned)
}
