//! Output of `msl check`, except for the summary.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{Checked, CompileFinding};
use crate::excerpt::{Message, Sources};
use crate::failure::Outcome;
use crate::msl::diagnostic_json;
use crate::msl::finding::{self, Findings};
use crate::msl::format::{self, Format};
use crate::terminal::{Out, counted, style};

/// Writes messages with source excerpts, and one line per file.
pub(super) fn write_text(
    files: &[Checked],
    quick: bool,
    time: Duration,
    out: &mut Out,
) -> Result<()> {
    for file in files {
        let mut sources = file.source.sources();
        for finding in &file.findings {
            write_finding(finding, file.kernels, &mut sources, out)?;
        }
        for failure in &file.failures {
            let colour = style::ERROR;
            let name = &file.source.name;
            writeln!(out, "{name}: {colour}compiler failed{colour:#}: {failure}")?;
        }
        let (colour, verdict) = match (file.errors(), file.failures.len()) {
            (0, 0) => (style::GOOD, "ok".to_owned()),
            (0, _) => (style::ERROR, "not checked".to_owned()),
            (errors, _) => (style::ERROR, counted(errors, "error")),
        };
        let kernels = match file.kernels {
            // Unknown if the file as a whole is wrong.
            0 if file.outcome() != Outcome::Clean => String::new(),
            kernels => format!(" {}:", counted(kernels, "kernel")),
        };
        let name = &file.source.name;
        writeln!(out, "{name}:{kernels} {colour}{verdict}{colour:#}")?;
    }
    let colour = if files.iter().all(|f| f.outcome() == Outcome::Clean) {
        style::GOOD
    } else {
        style::ERROR
    };
    let (kernels, verdict) = closing(files, quick);
    let time = time.as_secs_f64();
    writeln!(out, "{kernels}: {colour}{verdict}{colour:#} ({time:.1} s)")?;
    out.flush()?;
    Ok(())
}

/// The number of kernels and files, and the verdict.
fn closing(files: &[Checked], quick: bool) -> (String, String) {
    let errors: usize = files.iter().map(Checked::errors).sum();
    let kernels = files.iter().map(|f| f.kernels).sum();
    let failed: usize = files.iter().map(|f| f.failed.len()).sum();
    let unknown = files.iter().filter(|f| !f.failures.is_empty()).count();
    let mut verdict = match (errors, failed) {
        (0, _) if unknown > 0 => String::new(),
        (0, _) if quick => "all correct, no code generated".to_owned(),
        (0, _) => "all compile".to_owned(),
        (_, 0) => counted(errors, "error"),
        _ => format!(
            "{} in {}",
            counted(errors, "error"),
            counted(failed, "kernel")
        ),
    };
    if unknown > 0 {
        let comma = if verdict.is_empty() { "" } else { ", " };
        verdict += &format!("{comma}the compiler failed on {}", counted(unknown, "file"));
    }
    let kernels = format!(
        "{} in {}",
        counted(kernels, "kernel"),
        counted(files.len(), "file")
    );
    (kernels, verdict)
}

fn write_finding(
    finding: &CompileFinding,
    kernels: usize,
    sources: &mut Sources,
    out: &mut Out,
) -> Result<()> {
    let CompileFinding {
        diagnostic,
        notes,
        kernels: failing,
    } = finding;
    // With one kernel, or all of them, the name adds nothing.
    let text = match &failing[..] {
        names if names.is_empty() || kernels == names.len() => diagnostic.message.clone(),
        [name] if diagnostic.message.contains(name.as_str()) => diagnostic.message.clone(),
        [name] => format!("{} (kernel `{name}`)", diagnostic.message),
        [name, rest @ ..] => format!(
            "{} (kernel `{name}` and {})",
            diagnostic.message,
            counted(rest.len(), "other")
        ),
        [] => diagnostic.message.clone(),
    };
    let text = match &diagnostic.flag {
        Some(flag) => format!("{text} [-W{flag}]"),
        None => text,
    };
    let message = Message {
        text: &text,
        ..diagnostic.into()
    };
    sources.write(out, message)?;
    for note in notes {
        sources.write(out, note.into())?;
    }
    Ok(())
}

/// Writes one JSON document.
pub(super) fn write_json(files: &[Checked], outcome: Outcome, out: &mut Out) -> Result<()> {
    let diagnostics: Vec<_> = files
        .iter()
        .flat_map(|file| &file.findings)
        .map(|finding| {
            let mut value = diagnostic_json(&finding.diagnostic);
            value["notes"] = finding.notes.iter().map(diagnostic_json).collect();
            value["kernels"] = finding.kernels.clone().into();
            value
        })
        .collect();
    let list: Vec<_> = files
        .iter()
        .map(|file| {
            json!({
                "file": file.source.name,
                "kernels": file.kernels,
                "failed": file.failed,
                "errors": file.errors(),
                "failures": file.failures,
            })
        })
        .collect();
    let value = json!({
        "files": list,
        "kernels": files.iter().map(|f| f.kernels).sum::<usize>(),
        "errors": files.iter().map(Checked::errors).sum::<usize>(),
        "diagnostics": diagnostics,
    });
    format::write_json(out, value, outcome)
}

/// Writes SARIF or annotations.
pub(super) fn write_findings(
    files: &[Checked],
    format: Format,
    outcome: Outcome,
    out: &mut Out,
) -> Result<()> {
    let mut sources = Sources::default();
    let mut findings = Vec::new();
    let mut failures = Vec::new();
    for file in files {
        let name = &file.source.name;
        sources.insert(name, &file.source.text);
        for CompileFinding {
            diagnostic, notes, ..
        } in &file.findings
        {
            findings.push(finding::Finding::from_diagnostic(diagnostic, notes));
        }
        failures.extend(file.failures.iter().map(|f| format!("{name}: {f}")));
    }
    let (kernels, verdict) = closing(files, false);
    let closing = format!("{kernels}: {verdict}");
    let findings = Findings {
        findings: &findings,
        failures: &failures,
        outcome,
    };
    format::write_findings(out, format, &findings, &mut sources, &closing)
}
