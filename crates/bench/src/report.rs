//! Results as a terminal table, Markdown and JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::measure::Timing;

/// One run of a suite.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    /// What was compared.
    pub(crate) title: String,
    /// The command that made it.
    pub(crate) command: String,
    /// Machine, versions.
    pub(crate) setting: Vec<(String, String)>,
    /// One row per case.
    pub(crate) rows: Vec<Comparison>,
    /// Facts that are not ratios.
    pub(crate) notes: Vec<String>,
}

/// One case, ours and the peer's in the same run.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// What was measured.
    pub(crate) case: String,
    /// Our time.
    pub(crate) ours: Timing,
    /// The peer's name and time; absent if it is not installed.
    pub(crate) peer: Option<(String, Timing)>,
    /// The goal: at least this many times the peer's speed.
    pub(crate) goal: f64,
}

impl Comparison {
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
        page.push_str("\n| case | ours (quartiles) | peer (quartiles) | our speed / peer's | goal | met |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let peer = row
                .peer
                .as_ref()
                .map_or("not installed".to_owned(), |(name, t)| {
                    format!("{name}: {}", spread(t))
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
                spread(&row.ours),
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

/// Formats a time in a suitable unit.
pub(crate) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Formats a median with its quartiles.
pub(crate) fn spread(timing: &Timing) -> String {
    format!(
        "{} ({}–{})",
        duration(timing.median),
        duration(timing.low),
        duration(timing.high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_a_suitable_unit() {
        let cases = [
            (3.21e-9, "3.21 ns"),
            (45.67e-6, "45.7 µs"),
            (0.123, "123 ms"),
            (2.0, "2.00 s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }
}
