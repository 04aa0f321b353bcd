//! Findings, the common form of results for the output formats of other tools.

use std::path::{Component, Path};

use bessemer_hal::Report;
use bessemer_hal::msl::{Diagnostic, Severity};

use crate::excerpt::Sources;
use crate::failure::Outcome;

/// A location in a file. Line and column count from 1; line 0 is the whole file, column 0 the whole line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) file: String,
    pub(crate) line: u32,
    /// In bytes.
    pub(crate) column: u32,
}

/// A result: a compiler message, a report of the checking device, a failed kernel test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `compile/refused`, `check/race`, `test/values`, …
    pub(crate) rule: String,
    pub(crate) is_error: bool,
    pub(crate) message: String,
    pub(crate) location: Location,
    /// Related locations, each with a message.
    pub(crate) related: Vec<(Location, String)>,
}

/// The results of a command.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    pub(crate) findings: &'a [Finding],
    /// Failures of the compiler or the device, or wrong usage: the results are incomplete then.
    pub(crate) failures: &'a [String],
    pub(crate) outcome: Outcome,
}

impl Finding {
    /// Converts a compiler message with its notes.
    pub(crate) fn from_diagnostic(diagnostic: &Diagnostic, notes: &[Diagnostic]) -> Self {
        // Named as in JSON.
        let kind = serde_json::to_value(diagnostic.kind).unwrap_or_default();
        let rule = match &diagnostic.flag {
            Some(flag) => format!("-W{flag}"),
            None => format!("compile/{}", kind.as_str().unwrap_or("compiler")),
        };
        Self {
            rule,
            is_error: diagnostic.severity == Severity::Error,
            message: diagnostic.message.clone(),
            location: Location::of_diagnostic(diagnostic),
            related: notes
                .iter()
                .map(|note| (Location::of_diagnostic(note), note.message.clone()))
                .collect(),
        }
    }

    /// Converts compiler messages in order: notes belong to the message before them.
    pub(crate) fn from_diagnostics(diagnostics: &[Diagnostic]) -> Vec<Self> {
        let is_note = |d: &Diagnostic| d.severity == Severity::Note;
        diagnostics
            .chunk_by(|_, next| is_note(next))
            .filter(|chunk| !is_note(&chunk[0]))
            .map(|chunk| Self::from_diagnostic(&chunk[0], &chunk[1..]))
            .collect()
    }

    /// Converts a report of the checking device.
    pub(crate) fn from_report(report: &Report) -> Self {
        Self {
            rule: format!("check/{}", report.kind),
            is_error: true,
            message: report_text(report),
            location: Location {
                file: report.file.clone(),
                line: report.line,
                column: report.column,
            },
            related: Vec::new(),
        }
    }
}

/// The message of a report, with the kernel, the thread and the count.
pub(crate) fn report_text(report: &Report) -> String {
    let mut text = format!("{} (kernel `{}`", report.message, report.kernel);
    if let Some([x, y, z]) = report.thread {
        text += &format!(", thread [{x}, {y}, {z}]");
    }
    if report.count > 1 {
        text += &format!(", {} times", report.count);
    }
    text + ")"
}

impl Location {
    fn of_diagnostic(diagnostic: &Diagnostic) -> Self {
        Self {
            file: diagnostic.file.clone(),
            line: diagnostic.line,
            column: diagnostic.column,
        }
    }

    /// The path relative to the current directory, with `/`, without `.` and, if possible, without `..`; `None` for
    /// sources that are not files.
    pub(crate) fn relative_path(&self) -> Option<String> {
        if self.file.is_empty() || self.file.starts_with('<') {
            return None;
        }
        let current = std::env::current_dir().ok();
        let path = Path::new(&self.file);
        let path = current
            .as_deref()
            .and_then(|dir| path.strip_prefix(dir).ok())
            .unwrap_or(path);
        let mut parts: Vec<String> = Vec::new();
        let mut root = "";
        for component in path.components() {
            match component {
                Component::RootDir => root = "/",
                Component::CurDir => {}
                Component::ParentDir if parts.last().is_some_and(|p| p != "..") => {
                    parts.pop();
                }
                other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
            }
        }
        Some(format!("{root}{}", parts.join("/")))
    }

    /// The column in characters instead of bytes.
    pub(crate) fn column_in_characters(&self, sources: &mut Sources) -> u32 {
        let bytes = self.column.saturating_sub(1) as usize;
        let Some(line) = sources.line(&self.file, self.line) else {
            return self.column;
        };
        let before = line
            .char_indices()
            .take_while(|(at, c)| at + c.len_utf8() <= bytes);
        match self.column {
            0 => 0,
            _ => u32::try_from(before.count() + 1).unwrap_or(self.column),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: &str, line: u32, column: u32) -> Location {
        Location {
            file: file.to_owned(),
            line,
            column,
        }
    }

    #[test]
    fn paths_are_relative_to_the_current_directory() {
        let path = |file: &str| at(file, 1, 1).relative_path();
        let here = std::env::current_dir().unwrap();
        assert_eq!(path("./a/../b/k.metal").unwrap(), "b/k.metal");
        assert_eq!(path("../k.metal").unwrap(), "../k.metal");
        assert_eq!(
            path(&format!("{}/k.metal", here.display())).unwrap(),
            "k.metal"
        );
        assert_eq!(path("/elsewhere/k.metal").unwrap(), "/elsewhere/k.metal");
        assert_eq!(path("<stdin>"), None);
        assert_eq!(path(""), None);
    }

    #[test]
    fn columns_count_characters() {
        let mut sources = Sources::default();
        sources.insert("k.metal", "/* é€ */ x");
        let column =
            |column, sources: &mut Sources| at("k.metal", 1, column).column_in_characters(sources);
        // The x is byte 13 and character 10.
        assert_eq!(column(13, &mut sources), 10);
        assert_eq!(column(1, &mut sources), 1);
        assert_eq!(column(0, &mut sources), 0);
        assert_eq!(column(99, &mut sources), 11);
        assert_eq!(at("gone.metal", 1, 7).column_in_characters(&mut sources), 7);
    }
}
