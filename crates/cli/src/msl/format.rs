//! Output formats of the `msl` commands.

use std::io::Write as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::excerpt::Sources;
use crate::failure::Outcome;
use crate::msl::finding::Findings;
use crate::msl::{annotations, sarif};
use crate::terminal::{self, Out};

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For humans: messages with source excerpts
    Text,
    /// One JSON document
    Json,
    /// One SARIF 2.1.0 document, for code scanning
    Sarif,
    /// GitHub annotations, for the log of a workflow
    Github,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct FormatArgs {
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write JSON; same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormatArgs {
    pub(crate) fn get(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Writes a JSON document that includes the exit code.
pub(crate) fn write_json(out: &mut Out, mut value: Value, outcome: Outcome) -> Result<()> {
    value["exit_code"] = outcome.code().into();
    terminal::write_json(out, &value)
}

/// Writes findings as SARIF or as annotations, the latter with a closing line for humans.
pub(crate) fn write_findings(
    out: &mut Out,
    format: Format,
    findings: &Findings<'_>,
    sources: &mut Sources,
    closing: &str,
) -> Result<()> {
    if format == Format::Sarif {
        return terminal::write_json(out, &sarif::document(findings, sources));
    }
    annotations::write(out, findings, sources)?;
    if !closing.is_empty() {
        writeln!(out, "{closing}")?;
    }
    out.flush()?;
    Ok(())
}

/// Writes the error of a failed command in the requested format.
pub(crate) fn write_failure(
    out: &mut Out,
    format: Format,
    error: &anyhow::Error,
) -> Result<Outcome> {
    let outcome = Outcome::of_kernel(error);
    let message = terminal::error_text(error);
    terminal::write_message("error", terminal::style::ERROR, &message);
    match format {
        Format::Text => {}
        Format::Json => {
            let value = json!({ "error": { "kind": outcome.name(), "message": message } });
            write_json(out, value, outcome)?;
        }
        Format::Sarif | Format::Github => {
            let findings = Findings {
                findings: &[],
                failures: &[message],
                outcome,
            };
            write_findings(out, format, &findings, &mut Sources::default(), "")?;
        }
    }
    Ok(outcome)
}
