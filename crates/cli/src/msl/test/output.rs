//! Results of kernel tests, as text, JSON and findings.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::compare::{Difference, Differences};
use super::execute::{Failure, Tested};
use crate::dtype::Elements as _;
use crate::excerpt::Sources;
use crate::failure::Outcome;
use crate::msl::diagnostic_json;
use crate::msl::finding::{Finding, Findings};
use crate::msl::format::{self, Format};
use crate::msl::run::{report_json, write_report};
use crate::terminal::{Out, counted, style};

/// Writes the results in a format, those for humans with a closing line.
pub(super) fn write(
    tested: &[Tested<'_>],
    closing: &str,
    format: Format,
    outcome: Outcome,
    time: Duration,
    out: &mut Out,
) -> Result<()> {
    match format {
        Format::Text => {
            for test in tested {
                write_test(test, out)?;
            }
            let colour = match outcome {
                Outcome::Clean => style::GOOD,
                _ => style::ERROR,
            };
            let time = time.as_secs_f64();
            writeln!(out, "{colour}{closing}{colour:#} ({time:.1} s)")?;
            out.flush()?;
            Ok(())
        }
        Format::Json => format::write_json(out, to_json(tested), outcome),
        format => {
            let mut findings: Vec<Finding> = Vec::new();
            for finding in tested.iter().flat_map(to_findings) {
                // Tests of the same source have the same compile errors.
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
            let failures: Vec<_> = tested.iter().flat_map(tool_failures).collect();
            let findings = Findings {
                findings: &findings,
                failures: &failures,
                outcome,
            };
            format::write_findings(out, format, &findings, &mut Sources::default(), closing)
        }
    }
}

/// `2 passed, 1 failed`
pub(super) fn closing(tested: &[Tested<'_>], known: usize) -> String {
    let [passed, failed, skipped] = counts(tested);
    let mut text = format!("{passed} passed, {failed} failed");
    if skipped > 0 {
        text += &format!(", {skipped} skipped");
    }
    if known > 0 {
        text += &format!(", {}", counted(known, "known report"));
    }
    text
}

/// Passed, failed, skipped.
fn counts(tested: &[Tested<'_>]) -> [usize; 3] {
    let count = |status: &str| tested.iter().filter(|t| t.status() == status).count();
    [count("passed"), count("failed"), count("skipped")]
}

impl Tested<'_> {
    fn status(&self) -> &'static str {
        match self.failures.len() {
            0 if self.is_skipped => "skipped",
            0 => "passed",
            _ => "failed",
        }
    }
}

/// Writes one line per test, with its failures below.
fn write_test(tested: &Tested<'_>, out: &mut Out) -> Result<()> {
    let test = tested.test;
    let (colour, verdict) = match tested.status() {
        "passed" => (style::GOOD, "ok  "),
        "failed" => (style::ERROR, "FAIL"),
        _ => (style::WARNING, "skip"),
    };
    let (file, name, modes) = (&test.location.file, &test.name, &tested.modes);
    let time = tested.time.as_secs_f64();
    writeln!(
        out,
        "{colour}{verdict}{colour:#} {file}: {name} ({modes}, {time:.2} s)"
    )?;
    let mut sources = Sources::default();
    for failure in &tested.failures {
        match failure {
            Failure::Rejected(diagnostics) => {
                for diagnostic in diagnostics {
                    sources.write(out, diagnostic.into())?;
                }
            }
            Failure::Reports(reports) => {
                for report in reports {
                    write_report(out, &mut sources, report)?;
                }
            }
            Failure::Values {
                buffer,
                differences,
                ..
            } => {
                for line in difference_lines(buffer, differences) {
                    writeln!(out, "     {line}")?;
                }
            }
            Failure::NoReport(_) | Failure::Error { .. } => {
                writeln!(out, "     {}", sentence(failure))?;
            }
        }
    }
    Ok(())
}

/// The first differences, and their number.
fn difference_lines(buffer: &str, differences: &Differences) -> Vec<String> {
    let Differences {
        total,
        count,
        first,
        worst,
        ..
    } = differences;
    let shown = |d: &Difference| shown(buffer, d, differences);
    let mut lines: Vec<_> = first.iter().map(shown).collect();
    if *count > first.len() {
        lines.push(format!("worst: {}", shown(worst)));
    }
    lines.push(format!("{count} of {total} values differ"));
    lines
}

fn shown(buffer: &str, difference: &Difference, of: &Differences) -> String {
    let (got, expected) = (
        of.dtype.format(&difference.got),
        of.dtype.format(&difference.expected),
    );
    let ulp = match difference.ulp {
        Some(ulp) if of.dtype.is_float() => format!(", {ulp} ulp"),
        _ => String::new(),
    };
    let (index, error) = (&difference.index, difference.error);
    format!("{buffer}{index}: got {got}, expected {expected} (error {error:.3e}{ulp})")
}

/// A failure without a location in a kernel.
fn sentence(failure: &Failure) -> String {
    match failure {
        Failure::NoReport(kind) => format!("expected a report of kind `{kind}`, there was none"),
        Failure::Error { message, .. } => message.clone(),
        Failure::Values {
            buffer,
            differences,
            ..
        } => difference_lines(buffer, differences).join("\n"),
        Failure::Rejected(_) => "does not compile".to_owned(),
        Failure::Reports(_) => "defects were reported".to_owned(),
    }
}

fn to_findings(tested: &Tested<'_>) -> Vec<Finding> {
    let test = tested.test;
    let at_test = |rule: &str, failure: &Failure| Finding {
        rule: rule.to_owned(),
        is_error: true,
        message: format!("{} ({}): {}", test.name, tested.modes, sentence(failure)),
        location: match failure {
            Failure::Values { location, .. } => location.clone(),
            _ => test.location.clone(),
        },
        related: Vec::new(),
    };
    let findings = tested.failures.iter().flat_map(|failure| match failure {
        Failure::Rejected(diagnostics) => Finding::from_diagnostics(diagnostics),
        Failure::Reports(reports) => reports
            .iter()
            .map(|report| Finding {
                related: vec![(test.location.clone(), format!("in test `{}`", test.name))],
                ..Finding::from_report(report)
            })
            .collect(),
        Failure::NoReport(_) => vec![at_test("test/report", failure)],
        Failure::Values { .. } => vec![at_test("test/values", failure)],
        Failure::Error { outcome, .. } if *outcome == Outcome::ToolFailed => Vec::new(),
        Failure::Error { .. } => vec![at_test("test/error", failure)],
    });
    findings.collect()
}

/// Failures of the tool, which are not findings about a kernel or a test.
fn tool_failures(tested: &Tested<'_>) -> Vec<String> {
    let name = &tested.test.name;
    let failures = tested.failures.iter().filter_map(|failure| match failure {
        Failure::Error { outcome, message } if *outcome == Outcome::ToolFailed => {
            Some(format!("{name}: {message}"))
        }
        _ => None,
    });
    failures.collect()
}

fn to_json(tested: &[Tested<'_>]) -> Value {
    let [passed, failed, skipped] = counts(tested);
    let tests: Vec<_> = tested
        .iter()
        .map(|t| {
            json!({
                "file": t.test.location.file,
                "line": t.test.location.line,
                "name": t.test.name,
                "status": t.status(),
                "modes": t.modes,
                "time_ms": t.time.as_secs_f64() * 1e3,
                "failures": t.failures.iter().map(failure_json).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "tests": tests, "passed": passed, "failed": failed, "skipped": skipped })
}

fn failure_json(failure: &Failure) -> Value {
    match failure {
        Failure::Rejected(diagnostics) => {
            let diagnostics: Vec<_> = diagnostics.iter().map(diagnostic_json).collect();
            json!({ "kind": "compile", "diagnostics": diagnostics })
        }
        Failure::Reports(reports) => {
            let reports: Vec<_> = reports.iter().map(report_json).collect();
            json!({ "kind": "reports", "reports": reports })
        }
        Failure::NoReport(kind) => json!({ "kind": "no-report", "expected": kind.as_str() }),
        Failure::Values {
            buffer,
            differences,
            location,
        } => {
            let value = |d: &Difference| {
                json!({
                    "index": d.index,
                    "got": differences.dtype.to_json(&d.got),
                    "expected": differences.dtype.to_json(&d.expected),
                    "error": d.error,
                    "ulp": d.ulp,
                })
            };
            json!({
                "kind": "values",
                "buffer": buffer,
                "line": location.line,
                "differing": differences.count,
                "total": differences.total,
                "first": differences.first.iter().map(value).collect::<Vec<_>>(),
                "worst": value(&differences.worst),
            })
        }
        Failure::Error { outcome, message } => {
            json!({ "kind": "error", "error": { "kind": outcome.name(), "message": message } })
        }
    }
}
