//! Collects the findings of all workers into reports.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::report::{Report, ReportKind};
use crate::soft::runtime::image::Image;

/// Maximum number of distinct findings reported per launch.
const MAX_FINDINGS: usize = 256;

/// Identity of a finding: equal ones are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FindingKey {
    pub(super) kind: ReportKind,
    /// A canonical location of the image.
    pub(super) location: u32,
    pub(super) buffer: Option<u32>,
}

/// The thread that a finding is reported for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Witness {
    /// Number of the threadgroup: the lowest one is reported, whichever worker was first.
    pub(super) group: u64,
    pub(super) threadgroup: [u32; 3],
    pub(super) thread: [u32; 3],
}

#[derive(Debug)]
struct Finding {
    message: String,
    witness: Witness,
    count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Collector {
    findings: Mutex<HashMap<FindingKey, Finding>>,
}

impl Collector {
    /// Adds a finding; `message` is only called if its result is needed.
    pub(super) fn add(&self, key: FindingKey, witness: Witness, message: impl FnOnce() -> String) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(finding) = findings.get_mut(&key) {
            finding.count += 1;
            if witness.group < finding.witness.group {
                finding.witness = witness;
                finding.message = message();
            }
        } else if findings.len() < MAX_FINDINGS {
            let finding = Finding {
                message: message(),
                witness,
                count: 1,
            };
            findings.insert(key, finding);
        }
    }

    /// Returns the reports, in source order.
    pub(super) fn into_reports(self, image: &Image) -> Vec<Report> {
        let findings = self
            .findings
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut reports: Vec<_> = findings
            .into_iter()
            .map(|(key, finding)| {
                let location = image.location(key.location);
                Report {
                    kind: key.kind,
                    message: finding.message,
                    kernel: image.name().to_owned(),
                    file: location.map(|l| l.file.clone()).unwrap_or_default(),
                    line: location.map_or(0, |l| l.line),
                    column: location.map_or(0, |l| l.column),
                    buffer: key.buffer,
                    thread: Some(finding.witness.thread),
                    threadgroup: Some(finding.witness.threadgroup),
                    count: finding.count,
                }
            })
            .collect();
        reports.sort_by(|a, b| {
            let location = |r: &Report| (r.line == 0, r.file.clone(), r.line, r.column);
            (location(a), a.kind.as_str(), a.buffer).cmp(&(location(b), b.kind.as_str(), b.buffer))
        });
        reports
    }
}
