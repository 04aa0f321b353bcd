//! `bessemer msl`: tools for kernels.

pub(crate) mod check;
mod inputs;
pub(crate) mod kernels;
mod library;
pub(crate) mod run;
mod source;

use crate::excerpt::Message;
use crate::terminal::{self, style};
use bessemer_hal::msl::{Diagnostic, Severity};
use serde_json::{Value, json};
use source::Source;

/// A compiler's message as JSON.
fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "severity": diagnostic.severity.to_string(),
        "message": diagnostic.message,
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "flag": diagnostic.flag,
    })
}

/// Shows why a source does not compile, where that keeps a command from its work.
fn write_diagnostics(source: &Source, diagnostics: &[Diagnostic]) -> anyhow::Result<()> {
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
