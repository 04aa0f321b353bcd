//! Results as a terminal table, Markdown and JSON.

use crate::measure::Timing;
use serde::Serialize;
use std::fmt::Write as _;

/// One run of a suite.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    /// What was compared.
    pub(crate) title: String,
    /// The command that made it.
    pub(crate) command: String,
    /// Machine, versions.
    pub(crate) setting: Vec<(String, String)>,
    /// One row a case.
    pub(crate) rows: Vec<Row>,
    /// Facts that are not ratios.
    pub(crate) notes: Vec<String>,
}

/// One case, ours and the peer's in the same run.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) case: String,
    /// Our time.
    pub(crate) ours: Timing,
    /// The peer's name and time; absent where it is not installed.
    pub(crate) peer: Option<(String, Timing)>,
    /// What we aim at: at least this many times the peer's speed.
    pub(crate) goal: f64,
}

impl Row {
    /// Our speed as a multiple of the peer's.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.peer.as_ref()?.1.median / self.ours.median)
    }
}

impl Run {
    /// A Markdown page.
    pub(crate) fn markdown(&self) -> String {
        let mut page = format!("# {}\n\n`{}`\n\n", self.title, self.command);
        for (key, value) in &self.setting {
            let _ = writeln!(page, "- {key}: {value}");
        }
        page.push_str("\n| case | ours, ms (quartiles) | peer, ms (quartiles) | our speed / peer's | goal | met |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let peer = row
                .peer
                .as_ref()
                .map_or("not installed".to_owned(), |(name, t)| {
                    format!("{name}: {}", milliseconds(t))
                });
            let (ratio, met) = match row.ratio() {
                Some(r) => (
                    format!("{r:.2}"),
                    if r >= row.goal { "yes" } else { "**no**" },
                ),
                None => ("–".to_owned(), "–"),
            };
            let _ = writeln!(
                page,
                "| {} | {} | {peer} | {ratio} | ≥ {} | {met} |",
                row.case,
                milliseconds(&row.ours),
                row.goal
            );
        }
        page.push('\n');
        for note in &self.notes {
            let _ = writeln!(page, "- {note}");
        }
        page
    }
}

fn milliseconds(timing: &Timing) -> String {
    let ms = |seconds: f64| format!("{:.3}", seconds * 1e3);
    format!(
        "{} ({}–{})",
        ms(timing.median),
        ms(timing.low),
        ms(timing.high)
    )
}
