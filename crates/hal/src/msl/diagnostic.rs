//! Diagnostics of the front end, with the user's own file, line and column.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// The program is rejected.
    Error,
    /// The program is accepted, but should be looked at.
    Warning,
    /// Belongs to the diagnostic before it.
    Note,
}

/// Category of a [`Diagnostic`], for callers that do not parse the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// Malformed text: unbalanced brackets, an attribute without its argument.
    Syntax,
    /// A Metal feature that the software device does not support.
    Unsupported,
    /// Apple's compiler rejects it.
    Refused,
    /// An attribute that no Metal version has.
    UnknownAttribute,
    /// Two kernels with the same host name.
    DuplicateKernel,
    /// Two arguments of one kernel at the same index.
    DuplicateIndex,
    /// An argument index that is out of range or not a constant.
    Index,
    /// An instantiation of an unknown kernel.
    UnknownKernel,
    /// A message of the C++ compiler.
    Compiler,
    /// A comment that tries to suppress an unknown kind of report.
    Suppression,
}

/// A message of the front end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// Category.
    pub kind: DiagnosticKind,
    /// Lower case, no full stop.
    pub message: String,
    /// The file as the preprocessor named it.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// In bytes, from 1.
    pub column: u32,
    /// The warning option it belongs to, without `-W`: `unused-variable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// The line as the user wrote it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_line: Option<String>,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            message,
            file,
            line,
            column,
            ..
        } = self;
        write!(f, "{file}:{line}:{column}: {severity}: {message}")?;
        if let Some(flag) = &self.flag {
            write!(f, " [-W{flag}]")?;
        }
        if let Some(text) = &self.source_line
            && *column > 0
        {
            let until = text.get(..*column as usize - 1).unwrap_or(text);
            // Tabs stay tabs, so that the caret is under its column whatever their width.
            let blanks: String = until
                .chars()
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            write!(f, "\n{text}\n{blanks}^")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_compilers_do() {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Refused,
            message: "'double' is not supported in Metal".into(),
            file: "a.metal".into(),
            line: 3,
            column: 7,
            flag: None,
            source_line: None,
        };
        assert_eq!(
            diagnostic.to_string(),
            "a.metal:3:7: error: 'double' is not supported in Metal"
        );
        let flagged = Diagnostic {
            flag: Some("double".into()),
            ..diagnostic.clone()
        };
        assert!(flagged.to_string().ends_with("Metal [-Wdouble]"));
        let shown = Diagnostic {
            source_line: Some("  \tint   x = 1.0;".into()),
            ..diagnostic
        };
        assert!(
            shown
                .to_string()
                .ends_with("Metal\n  \tint   x = 1.0;\n  \t   ^"),
            "{shown}"
        );
    }
}
