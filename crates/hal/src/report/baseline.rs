//! Baselines: files of known reports, which are not reported as new.
//!
//! An entry is a kind, a kernel, the name of the file and a hash of the source line, so that it survives moved lines,
//! reworded messages and another source directory. It counts the reports it stands for.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Report, ReportKind};

/// Version of the file format.
const FORMAT_VERSION: u32 = 1;

/// A set of known reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    version: u32,
    reports: Vec<BaselineEntry>,
}

/// Known reports of one kind about one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineEntry {
    /// File name without its directory; empty if the location is unknown.
    pub file: String,
    /// The kernel's host name.
    pub kernel: String,
    /// Kind of the reports.
    pub kind: ReportKind,
    /// Hash of the source line, ignoring white space; empty if unknown.
    pub line: String,
    /// Number of reports.
    pub times: usize,
}

/// An error from parsing a baseline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// Not JSON, or without the fields of a baseline.
    #[error("the baseline cannot be read: {message}")]
    Syntax {
        /// The parser's message.
        message: String,
    },
    /// An unknown format version.
    #[error("the baseline is of version {found}; this program reads version {FORMAT_VERSION}")]
    Version {
        /// The version in the text.
        found: u32,
    },
}

/// Reports compared with a baseline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BaselineDiff {
    /// Reports that are not in the baseline.
    pub new: Vec<Report>,
    /// Reports that are in the baseline.
    pub known: Vec<Report>,
    /// Entries that no report matches any more, with the number of missing reports.
    pub stale: Vec<BaselineEntry>,
}

impl Default for Baseline {
    fn default() -> Self {
        Self {
            version: FORMAT_VERSION,
            reports: Vec::new(),
        }
    }
}

impl Baseline {
    /// Parses a baseline.
    ///
    /// # Errors
    /// The text is not a baseline, or has another format version.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let syntax = |error: serde_json::Error| BaselineError::Syntax {
            message: error.to_string(),
        };
        let Version { version: found } = serde_json::from_str(text).map_err(syntax)?;
        if found != FORMAT_VERSION {
            return Err(BaselineError::Version { found });
        }
        serde_json::from_str(text).map_err(syntax)
    }

    /// Builds the baseline of these reports; `line` returns the source line of a report.
    pub fn of(reports: &[Report], line: impl Fn(&Report) -> Option<String>) -> Self {
        let mut baseline = Self::default();
        for report in reports {
            let entry = entry(report, &line);
            match baseline.reports.iter_mut().find(|e| same(e, &entry)) {
                Some(known) => known.times += 1,
                None => baseline.reports.push(entry),
            }
        }
        baseline.reports.sort();
        baseline
    }

    /// Serialises the baseline. Equal baselines have equal texts.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings and numbers are JSON");
        text.push('\n');
        text
    }

    /// The entries, in file order.
    pub fn entries(&self) -> &[BaselineEntry] {
        &self.reports
    }

    /// Splits `reports` into new and known ones; `line` returns the source line of a report.
    pub fn filter(
        &self,
        reports: Vec<Report>,
        line: impl Fn(&Report) -> Option<String>,
    ) -> BaselineDiff {
        let mut diff = BaselineDiff::default();
        let mut remaining = self.reports.clone();
        for report in reports {
            let entry = entry(&report, &line);
            let mut open = remaining.iter_mut();
            match open.find(|e| e.times > 0 && same(e, &entry)) {
                Some(known) => {
                    known.times -= 1;
                    diff.known.push(report);
                }
                None => diff.new.push(report),
            }
        }
        remaining.retain(|entry| entry.times > 0);
        diff.stale = remaining;
        diff
    }
}

fn same(one: &BaselineEntry, other: &BaselineEntry) -> bool {
    (&one.file, &one.kernel, one.kind, &one.line)
        == (&other.file, &other.kernel, other.kind, &other.line)
}

fn entry(report: &Report, line: impl Fn(&Report) -> Option<String>) -> BaselineEntry {
    let name = report.file.rsplit(['/', '\\']).next().unwrap_or_default();
    BaselineEntry {
        file: name.to_owned(),
        kernel: report.kernel.clone(),
        kind: report.kind,
        line: line(report).as_deref().map(hash).unwrap_or_default(),
        times: 1,
    }
}

/// The first half of a SHA-256 of the line's words.
fn hash(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let digest = Sha256::digest(words.join(" "));
    digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "first\n  a[i] = 1;\n  b[i] = a[i];\n  a[i] = 1;";

    fn report(kind: ReportKind, line: u32) -> Report {
        Report {
            kind,
            message: format!("on line {line}"),
            kernel: "k".into(),
            file: "kernels/a.metal".into(),
            line,
            column: 3,
            buffer: Some(0),
            thread: None,
            threadgroup: None,
            count: 7,
        }
    }

    fn line_of(text: &str) -> impl Fn(&Report) -> Option<String> {
        move |report| {
            text.lines()
                .nth(report.line as usize - 1)
                .map(str::to_owned)
        }
    }

    #[test]
    fn known_reports_are_known_when_lines_move_and_new_ones_are_new() {
        let reports = [report(ReportKind::Race, 2), report(ReportKind::Bounds, 3)];
        let baseline = Baseline::of(&reports, line_of(TEXT));
        let baseline = Baseline::parse(&baseline.to_text()).unwrap();
        let moved = "another\nfirst\n\ta[i]  = 1;\n  b[i] = a[i];";
        let mut elsewhere = report(ReportKind::Race, 3);
        elsewhere.file = "/home/ci/a.metal".into();
        elsewhere.message = "worded differently".into();
        let diff = baseline.filter(
            vec![elsewhere.clone(), report(ReportKind::Race, 4)],
            line_of(moved),
        );
        assert_eq!(diff.known, [elsewhere]);
        assert_eq!(diff.new, [report(ReportKind::Race, 4)]);
        assert_eq!(diff.stale.len(), 1);
        assert_eq!(diff.stale[0].kind, ReportKind::Bounds);
    }

    #[test]
    fn equal_lines_are_counted() {
        let race = |line| report(ReportKind::Race, line);
        let baseline = Baseline::of(&[race(2)], line_of(TEXT));
        let diff = baseline.filter(vec![race(2), race(4)], line_of(TEXT));
        assert_eq!((diff.known, diff.new), (vec![race(2)], vec![race(4)]));
        let baseline = Baseline::of(&[race(2), race(4)], line_of(TEXT));
        assert_eq!(baseline.entries()[0].times, 2);
        let diff = baseline.filter(vec![race(4)], line_of(TEXT));
        assert_eq!((diff.stale[0].times, diff.new.len()), (1, 0));
    }

    #[test]
    fn reports_without_a_location_have_entries_too() {
        let mut lost = report(ReportKind::Timeout, 0);
        lost.file.clear();
        let baseline = Baseline::of(&[lost.clone()], |_| None);
        let diff = baseline.filter(vec![lost], |_| None);
        assert_eq!((diff.known.len(), diff.stale.len()), (1, 0));
    }

    #[test]
    fn invalid_baselines_are_rejected() {
        assert!(matches!(
            Baseline::parse("not json"),
            Err(BaselineError::Syntax { .. })
        ));
        assert!(matches!(
            Baseline::parse("{\"version\": 1, \"reports\": [{\"kind\": \"rase\"}]}"),
            Err(BaselineError::Syntax { .. })
        ));
        let newer = Baseline::parse("{\"version\": 2, \"entries\": []}");
        assert_eq!(newer, Err(BaselineError::Version { found: 2 }));
        assert_eq!(
            Baseline::parse("{\"version\": 1, \"reports\": []}"),
            Ok(Baseline::default())
        );
    }
}
