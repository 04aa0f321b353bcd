//! Comments in kernels that suppress reports: `// bessemer: allow(race) both threads write the same value`.
//!
//! A comment applies to its own line and, if it is alone on it, to the line below. Several kinds are separated by commas;
//! a reason may follow. `crash` and `timeout` abort the submission and cannot be suppressed.

#[cfg(any(target_os = "linux", test))]
use std::collections::HashMap;
#[cfg(any(target_os = "linux", test))]
use std::sync::{Mutex, PoisonError};

#[cfg(any(target_os = "linux", test))]
use super::Report;
use super::ReportKind;
#[cfg(any(target_os = "linux", test))]
use crate::msl::SourceLines;
use crate::msl::{Diagnostic, DiagnosticKind, Severity};

/// Prefix of suppression comments.
const COMMENT_PREFIX: &str = "bessemer:";

/// The lines of a library's source and of its included files.
#[cfg(any(target_os = "linux", test))]
#[derive(Debug)]
pub(crate) struct Sources {
    lines: SourceLines,
    /// Included files, read on demand; `None` if they cannot be read.
    others: Mutex<HashMap<String, Option<Vec<String>>>>,
}

#[cfg(any(target_os = "linux", test))]
impl Sources {
    /// Creates the sources of a text with its file name in reports.
    pub(crate) fn new(file: &str, text: &str) -> Self {
        Self {
            lines: SourceLines::new(file, text),
            others: Mutex::default(),
        }
    }

    fn line(&self, file: &str, line: u32) -> Option<String> {
        if self.lines.has_file(file) {
            return self.lines.get(file, line).map(str::to_owned);
        }
        let index = (line as usize).checked_sub(1)?;
        let read = || {
            let text = std::fs::read_to_string(file).ok()?;
            Some(text.lines().map(str::to_owned).collect())
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let other = others.entry(file.to_owned()).or_insert_with(read);
        other.as_ref()?.get(index).cloned()
    }

    /// Removes the reports that comments allow, and returns their number. A report that stays despite a
    /// comment explains why.
    pub(crate) fn suppress(&self, reports: &mut Vec<Report>) -> usize {
        let before = reports.len();
        reports.retain_mut(|report| {
            let unknown = match self.allowance(report) {
                Allowance::Yes => return false,
                Allowance::No(unknown) => unknown,
            };
            if let Some(name) = unknown {
                report.message += &format!("; the comment there allows `{name}`, {}", why(&name));
            }
            true
        });
        before - reports.len()
    }

    fn allowance(&self, report: &Report) -> Allowance {
        let own = self.line(&report.file, report.line);
        let above = self
            .line(&report.file, report.line.wrapping_sub(1))
            .filter(|line| is_comment(line));
        let mut unknown = None;
        for line in own.iter().chain(&above) {
            for name in allowed(line) {
                match suppressible(name) {
                    Some(kind) if kind == report.kind => return Allowance::Yes,
                    Some(_) => {}
                    None => unknown = unknown.or_else(|| Some(name.to_owned())),
                }
            }
        }
        Allowance::No(unknown)
    }
}

#[cfg(any(target_os = "linux", test))]
enum Allowance {
    Yes,
    /// With the unknown kind that the comment names.
    No(Option<String>),
}

/// Parses a kind whose reports can be suppressed.
fn suppressible(name: &str) -> Option<ReportKind> {
    let kind: ReportKind = name.parse().ok()?;
    (!matches!(kind, ReportKind::Crash | ReportKind::Timeout)).then_some(kind)
}

fn why(name: &str) -> &'static str {
    match name.parse::<ReportKind>() {
        Ok(_) => "which ends the work and cannot be suppressed",
        Err(_) => "which is not a kind of report",
    }
}

/// Returns whether a line consists of a comment only.
#[cfg(any(target_os = "linux", test))]
fn is_comment(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"))
}

/// The names in the `allow(…)` of a line's comment.
fn allowed(line: &str) -> impl Iterator<Item = &str> {
    let comment = ["//", "/*"]
        .iter()
        .filter_map(|start| line.find(start))
        .min()
        .map_or("", |at| &line[at..]);
    let list = comment
        .split_once(COMMENT_PREFIX)
        .and_then(|(_, rest)| rest.trim_start().strip_prefix("allow("))
        .and_then(|rest| rest.split_once(')'))
        .map_or("", |(list, _)| list);
    list.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// Returns warnings about suppression comments that do not name a kind of report.
pub fn suppression_warnings(file: &str, text: &str) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for name in allowed(line).filter(|name| suppressible(name).is_none()) {
            let column = line.find(name).map_or(1, |at| at + 1);
            warnings.push(Diagnostic {
                severity: Severity::Warning,
                kind: DiagnosticKind::Suppression,
                message: format!("the comment allows `{name}`, {}", why(name)),
                file: file.to_owned(),
                line: number,
                column: u32::try_from(column).unwrap_or(1),
                flag: None,
                source_line: Some(line.to_owned()),
            });
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: ReportKind, file: &str, line: u32) -> Report {
        Report {
            kind,
            message: "m".into(),
            kernel: "k".into(),
            file: file.into(),
            line,
            column: 1,
            buffer: None,
            thread: None,
            threadgroup: None,
            count: 1,
        }
    }

    const TEXT: &str = "a[0] = 1;  // bessemer: allow(race) the same value
a[1] = 1;
// bessemer: allow(race, bounds)
a[2] = 1;
  /* bessemer: allow( uninitialised ) */
a[3] = 1;
a[4] = 1;  // bessemer: allow(rase)
a[5] = 1;  // bessemer: allow(timeout)
puts(\"bessemer: allow(race)\");
";

    #[test]
    fn comments_suppress_their_kinds_on_their_line_and_the_next() {
        let sources = Sources::new("a.metal", TEXT);
        let mut reports: Vec<_> = (0..10)
            .map(|line| report(ReportKind::Race, "a.metal", line))
            .collect();
        assert_eq!(sources.suppress(&mut reports), 3);
        let left: Vec<u32> = reports.iter().map(|r| r.line).collect();
        assert_eq!(left, [0, 2, 5, 6, 7, 8, 9]);
        assert_eq!(
            reports[4].message,
            "m; the comment there allows `rase`, which is not a kind of report"
        );
        assert_eq!(reports[0].message, "m");
        let mut reports = vec![
            report(ReportKind::Bounds, "a.metal", 1),
            report(ReportKind::Bounds, "a.metal", 4),
            report(ReportKind::Uninitialised, "a.metal", 6),
            report(ReportKind::Timeout, "a.metal", 8),
            report(ReportKind::Race, "no such file", 1),
        ];
        assert_eq!(sources.suppress(&mut reports), 2);
        assert_eq!(reports.len(), 3);
        assert!(reports[1].message.ends_with("cannot be suppressed"));
    }

    #[test]
    fn comments_of_included_files_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TEXT).unwrap();
        let sources = Sources::new("a.metal", "");
        let path = file.path().to_str().unwrap();
        let mut reports = vec![
            report(ReportKind::Race, path, 1),
            report(ReportKind::Race, path, 2),
        ];
        assert_eq!(sources.suppress(&mut reports), 1);
        assert_eq!(reports[0].line, 2);
    }

    #[test]
    fn unknown_kinds_are_warned_of() {
        let warnings = suppression_warnings("a.metal", TEXT);
        let locations: Vec<_> = warnings.iter().map(|w| (w.line, w.column)).collect();
        assert_eq!(locations, [(7, 31), (8, 31)]);
        assert_eq!(
            warnings[0].message,
            "the comment allows `rase`, which is not a kind of report"
        );
    }
}
