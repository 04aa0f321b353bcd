//! `msl check --summary`: counts over a directory of kernels.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use bessemer_hal::msl::{Diagnostic, DiagnosticKind, Severity};
use serde_json::{Value, json};

use super::Checked;
use crate::failure::Outcome;
use crate::msl::format::{self, Format};
use crate::table::Table;
use crate::terminal::{Out, style};

/// Writes the counts as text or JSON.
pub(super) fn write(
    files: &[Checked],
    format: Format,
    outcome: Outcome,
    out: &mut Out,
) -> Result<()> {
    let summary = Summary::new(files);
    match format {
        Format::Json => format::write_json(out, summary.to_json(), outcome),
        _ => summary.write_text(out),
    }
}

/// A total, and the number accepted.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    total: usize,
    accepted: usize,
}

/// A file that does not compile as a whole.
#[derive(Debug)]
struct Rejected<'a> {
    file: &'a str,
    reason: String,
    message: String,
    line: u32,
    kernels: usize,
}

#[derive(Debug)]
struct Summary<'a> {
    files: Count,
    /// Kernels of the files that could be read.
    kernels: Count,
    rejected: Vec<Rejected<'a>>,
}

impl<'a> Summary<'a> {
    fn new(files: &'a [Checked]) -> Self {
        let mut summary = Self {
            files: Count::default(),
            kernels: Count::default(),
            rejected: Vec::new(),
        };
        for file in files {
            let is_accepted = file.outcome() == Outcome::Clean;
            summary.files.total += 1;
            summary.files.accepted += usize::from(is_accepted);
            summary.kernels.total += file.kernels;
            summary.kernels.accepted += file.kernels.saturating_sub(file.failed.len());
            if !is_accepted {
                summary.rejected.push(rejected(file));
            }
        }
        summary
    }

    /// Files and kernels by reason, the most frequent first.
    fn reasons(&self) -> Vec<(&str, usize, usize)> {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for rejected in &self.rejected {
            let (files, kernels) = counts.entry(&rejected.reason).or_default();
            *files += 1;
            *kernels += rejected.kernels;
        }
        let mut reasons: Vec<_> = counts
            .into_iter()
            .map(|(reason, (files, kernels))| (reason, files, kernels))
            .collect();
        reasons.sort_by_key(|(_, files, _)| std::cmp::Reverse(*files));
        reasons
    }

    fn write_text(&self, out: &mut Out) -> Result<()> {
        let mut table = Table::new(["", "total", "accepted", "rejected"]);
        for (name, count) in [("files", self.files), ("kernels", self.kernels)] {
            table.row([
                name.to_owned(),
                count.total.to_string(),
                count.accepted.to_string(),
                (count.total - count.accepted).to_string(),
            ]);
        }
        table.write(out, style::STRONG)?;
        if !self.rejected.is_empty() {
            writeln!(out)?;
            let mut table = Table::new(["reason", "files", "kernels"]);
            for (reason, files, kernels) in self.reasons() {
                table.row([reason.to_owned(), files.to_string(), kernels.to_string()]);
            }
            table.write(out, style::STRONG)?;
            writeln!(out)?;
        }
        for Rejected {
            file,
            line,
            message,
            ..
        } in &self.rejected
        {
            let position = match line {
                0 => String::new(),
                line => format!(":{line}"),
            };
            let first = message.lines().next().unwrap_or_default();
            writeln!(out, "{file}{position}: {first}")?;
        }
        out.flush()?;
        Ok(())
    }

    fn to_json(&self) -> Value {
        let count = |count: Count| {
            json!({
                "total": count.total,
                "accepted": count.accepted,
                "rejected": count.total - count.accepted,
            })
        };
        let reasons: Vec<_> = self
            .reasons()
            .into_iter()
            .map(|(reason, files, kernels)| {
                json!({ "reason": reason, "files": files, "kernels": kernels })
            })
            .collect();
        let rejected: Vec<_> = self
            .rejected
            .iter()
            .map(|r| {
                json!({
                    "file": r.file,
                    "reason": r.reason,
                    "message": r.message,
                    "line": r.line,
                    "kernels": r.kernels,
                })
            })
            .collect();
        json!({
            "files": count(self.files),
            "kernels": count(self.kernels),
            "reasons": reasons,
            "rejected": rejected,
        })
    }
}

fn rejected(file: &Checked) -> Rejected<'_> {
    let errors: Vec<&Diagnostic> = file
        .findings
        .iter()
        .map(|f| &f.diagnostic)
        .filter(|d| d.severity == Severity::Error)
        .collect();
    let (reason, message, line) = match (file.failures.first(), deciding(&errors)) {
        (Some(failure), _) => (failure_reason(failure).to_owned(), failure.clone(), 0),
        (None, Some(error)) => (error_reason(error), error.message.clone(), error.line),
        (None, None) => ("error".to_owned(), String::new(), 0),
    };
    Rejected {
        file: &file.source.name,
        reason,
        message,
        line,
        kernels: file.failed.len(),
    }
}

/// The error that determines the reason of a file: a mistake before an unsupported feature, since only the former is
/// rejected everywhere.
fn deciding<'a>(errors: &[&'a Diagnostic]) -> Option<&'a Diagnostic> {
    let is_mistake = |d: &&&Diagnostic| d.kind != DiagnosticKind::Unsupported;
    errors.iter().find(is_mistake).or(errors.first()).copied()
}

fn error_reason(error: &Diagnostic) -> String {
    match error.kind {
        // It compiles, but exceeds a limit of the family.
        _ if error.message.contains(" cannot be launched: ") => "exceeded limit".to_owned(),
        DiagnosticKind::Unsupported => {
            let end = [" are not supported", " is not supported"]
                .iter()
                .find_map(|text| error.message.find(text));
            format!(
                "unsupported: {}",
                &error.message[..end.unwrap_or(error.message.len())]
            )
        }
        _ if error.message.ends_with("file not found") => "missing include".to_owned(),
        DiagnosticKind::Refused => "error: rejected by Apple's compiler".to_owned(),
        _ => "error".to_owned(),
    }
}

/// The reason of a compiler failure: a limit of wall-clock or processor time (SIGXCPU), or anything else.
fn failure_reason(message: &str) -> &'static str {
    let is_timeout = ["not finished after", "killed by signal 24"];
    if is_timeout.iter().any(|text| message.contains(text)) {
        "time limit of the compiler"
    } else {
        "compiler failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostic(kind: DiagnosticKind, message: &str) -> Diagnostic {
        let kind = serde_json::to_value(kind).unwrap();
        let value = json!({
            "severity": "error", "kind": kind, "message": message, "file": "k.metal", "line": 1, "column": 1,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn reasons_name_the_feature_or_the_kind_of_error() {
        struct Case(DiagnosticKind, &'static str, &'static str);
        let cases = [
            Case(
                DiagnosticKind::Unsupported,
                "textures are not supported by the software device: 'texture2d'",
                "unsupported: textures",
            ),
            Case(
                DiagnosticKind::Unsupported,
                "ray tracing is not supported by the software device: 'x'",
                "unsupported: ray tracing",
            ),
            Case(
                DiagnosticKind::Compiler,
                "'utils.h' file not found",
                "missing include",
            ),
            Case(
                DiagnosticKind::Refused,
                "'double' is not supported in Metal",
                "error: rejected by Apple's compiler",
            ),
            Case(DiagnosticKind::Compiler, "expected ';'", "error"),
            Case(
                DiagnosticKind::Unsupported,
                "kernel `k` cannot be launched: 40000 bytes of threadgroup memory",
                "exceeded limit",
            ),
        ];
        for Case(kind, message, expected) in cases {
            assert_eq!(error_reason(&diagnostic(kind, message)), expected);
        }
        let missing = diagnostic(DiagnosticKind::Unsupported, "textures are not supported");
        let mistake = diagnostic(DiagnosticKind::Compiler, "expected ';'");
        assert_eq!(deciding(&[&missing, &mistake]), Some(&mistake));
        assert_eq!(deciding(&[&missing]), Some(&missing));
    }

    #[test]
    fn both_time_limits_of_the_compiler_are_recognised() {
        let limit = "time limit of the compiler";
        assert_eq!(
            failure_reason("`clang++` failed: not finished after 240 s"),
            limit
        );
        assert_eq!(failure_reason("`clang++` was killed by signal 24"), limit);
        assert_eq!(
            failure_reason("`clang++` was killed by signal 9"),
            "compiler failed"
        );
    }
}
