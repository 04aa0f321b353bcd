//! `bessemer models`: the models that can be fetched by name.

use std::io::Write as _;

use anyhow::Result;
use bessemer_llm::pull::{self, Listed, MODELS, State};
use clap::Args;
use serde_json::json;

use crate::failure::Outcome;
use crate::table::Table;
use crate::terminal::{self, Out, bytes, style};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ModelsArgs {
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer models
  bessemer models --json | jq -r '.models[] | select(.state == \"ready\") | .path'";

fn state(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Incomplete => "incomplete",
        State::Absent => "not pulled",
    }
}

/// Runs the command.
pub(crate) fn run(args: &ModelsArgs, out: &mut Out) -> Result<Outcome> {
    let models = pull::directory()?;
    if args.json {
        let entry = |model: &Listed| {
            json!({
                "name": model.name,
                "about": model.about,
                "license": model.license,
                "state": state(model.state(&models)),
                "bytes": model.bytes(),
                "path": model.path(&models).display().to_string(),
            })
        };
        let all: Vec<_> = MODELS.iter().map(entry).collect();
        terminal::write_json(
            out,
            &json!({ "directory": models.display().to_string(), "models": all }),
        )?;
        return Ok(Outcome::Clean);
    }
    let mut table = Table::new(["name", "state", "size", "licence", "description"]);
    for model in MODELS {
        table.row([
            model.name.to_owned(),
            state(model.state(&models)).to_owned(),
            bytes(usize::try_from(model.bytes()).unwrap_or(usize::MAX)),
            model.license.to_owned(),
            model.about.to_owned(),
        ]);
    }
    table.write(out, style::STRONG)?;
    writeln!(
        out,
        "{}in {}{:#}",
        style::QUIET,
        models.display(),
        style::QUIET
    )?;
    out.flush()?;
    Ok(Outcome::Clean)
}
