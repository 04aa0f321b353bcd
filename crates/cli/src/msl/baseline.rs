//! Baselines: known reports do not fail `msl run` and `msl test`.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use bessemer_hal::{Baseline, Report};
use clap::{Args, ValueHint};

use crate::excerpt::Sources;
use crate::failure::Usage;
use crate::msl::source::Source;
use crate::terminal::{self, style};

#[derive(Debug, Args)]
pub(crate) struct BaselineArgs {
    /// Accept the reports of check mode that this file lists
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    baseline: Option<PathBuf>,
    /// Write the reports of this run to the baseline instead of failing
    #[arg(long, requires = "baseline")]
    update_baseline: bool,
}

/// The baseline of a command, and the known reports so far.
#[derive(Debug)]
pub(crate) struct KnownReports {
    path: Option<PathBuf>,
    /// `None` while it is being written: then every report is known.
    baseline: Option<Baseline>,
    known: Mutex<KnownList>,
}

/// Known reports with their source lines.
#[derive(Debug, Default)]
struct KnownList {
    reports: Vec<Report>,
    lines: Vec<Option<String>>,
}

impl KnownReports {
    /// Reads the baseline, if one is given.
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

    /// Returns the reports of one run that are not known.
    pub(crate) fn filter(&self, reports: Vec<Report>, source: &Source) -> Vec<Report> {
        let sources = RefCell::new(source.sources());
        let (known, new) = match &self.baseline {
            None => (reports, Vec::new()),
            Some(baseline) => {
                let diff = baseline.filter(reports, |report| line(&sources, report));
                (diff.known, diff.new)
            }
        };
        let mut list = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for report in known {
            list.lines.push(line(&sources, &report));
            list.reports.push(report);
        }
        new
    }

    /// Number of known reports.
    pub(crate) fn count(&self) -> usize {
        let list = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        list.reports.len()
    }

    /// Writes the baseline if requested; otherwise, after a complete run, notes entries that are not needed any more.
    pub(crate) fn finish(&self, is_complete: bool) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let shown = path.display();
        let mut list = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let KnownList { reports, lines } = std::mem::take(&mut *list);
        // Each line is requested once, in the order of the reports.
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
                    terminal::write_message("note", style::STRONG, &text);
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
