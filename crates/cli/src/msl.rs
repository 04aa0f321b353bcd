//! `bessemer msl`: tools for kernels.

pub(crate) mod check;
mod inputs;
pub(crate) mod kernels;
mod library;
pub(crate) mod run;
mod source;

use crate::excerpt::Message;
use crate::terminal::style;
use bessemer_hal::msl::Diagnostic;
use serde_json::{Value, json};

/// A compiler's message as JSON.
fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "severity": "error",
        "message": diagnostic.message,
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
    })
}

impl<'a> From<&'a Diagnostic> for Message<'a> {
    fn from(diagnostic: &'a Diagnostic) -> Self {
        Self {
            file: &diagnostic.file,
            line: diagnostic.line,
            column: diagnostic.column,
            kind: "error",
            style: style::ERROR,
            text: &diagnostic.message,
        }
    }
}
