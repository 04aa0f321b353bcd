//! `bessemer msl`: tools for kernels.

mod annotations;
pub(crate) mod baseline;
mod check;
mod finding;
pub(crate) mod format;
mod inputs;
mod kernels;
mod launch;
mod library;
mod parallel;
mod run;
mod sarif;
mod source;
pub(crate) mod test;

use anyhow::Result;
use bessemer_hal::msl::{Diagnostic, Severity};
use serde_json::{Value, json};

use self::format::Format;
use self::source::Source;
use crate::args::MslCommand;
use crate::excerpt::Message;
use crate::failure::Outcome;
use crate::terminal::{self, Out, style};

/// Runs a command. In all cases, standard output is one document in the requested format.
pub(crate) fn run(command: &MslCommand, out: &mut Out) -> Result<Outcome> {
    let (format, result) = match command {
        MslCommand::Kernels(args) if args.json => (Format::Json, kernels::run(args, out)),
        MslCommand::Kernels(args) => (Format::Text, kernels::run(args, out)),
        MslCommand::Check(args) => (args.format.get(), check::run(args, out)),
        MslCommand::Run(args) => (args.format.get(), run::run(args, out)),
        MslCommand::Test(args) => (args.format.get(), test::run(args, out)),
    };
    match result {
        Err(error) if !terminal::is_broken_pipe(&error) => {
            format::write_failure(out, format, &error)
        }
        result => result,
    }
}

/// Converts a compiler message to JSON.
fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "severity": diagnostic.severity.to_string(),
        "kind": diagnostic.kind,
        "message": diagnostic.message,
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "flag": diagnostic.flag,
    })
}

/// Writes the diagnostics of a source that does not compile to standard error.
fn write_diagnostics(source: &Source, diagnostics: &[Diagnostic]) -> Result<()> {
    let mut sources = source.sources();
    let mut err = terminal::stderr();
    for diagnostic in diagnostics {
        sources.write(&mut err, diagnostic.into())?;
    }
    Ok(())
}

impl<'a> From<&'a Diagnostic> for Message<'a> {
    fn from(diagnostic: &'a Diagnostic) -> Self {
        let (kind, style) = match diagnostic.severity {
            Severity::Warning => ("warning", style::WARNING),
            Severity::Note => ("note", style::STRONG),
            _ => ("error", style::ERROR),
        };
        Self {
            file: &diagnostic.file,
            line: diagnostic.line,
            column: diagnostic.column,
            kind,
            style,
            text: &diagnostic.message,
        }
    }
}
