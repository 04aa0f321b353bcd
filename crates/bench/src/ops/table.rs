//! The terminal's table.

use std::io::{ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Result;

use super::case::{Entry, Family};
use super::result::{Outcome, Results, Row};

const GOOD_STYLE: Style = AnsiColor::Green.on_default();
const NEAR_STYLE: Style = AnsiColor::Yellow.on_default();
const BAD_STYLE: Style = AnsiColor::Red.on_default();
const FAINT_STYLE: Style = Style::new().dimmed();
const HEADING_STYLE: Style = Style::new().bold();

/// Prints the names of all cases. A closed pipe, as by `--list | head`, is not an error.
pub(crate) fn list(entries: &[Entry]) -> Result<()> {
    match write_list(entries) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn write_list(entries: &[Entry]) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    for e in entries {
        let family = e.family.name();
        writeln!(
            out,
            "{family:10} {:24} {:28} {}",
            e.name,
            e.size,
            e.case.op.name()
        )?;
    }
    writeln!(out, "{} cases", entries.len())?;
    out.flush()
}

/// Prints everything: one block per family, then the goals.
pub(crate) fn print(results: &Results) -> Result<()> {
    let mut out = anstream::stdout().lock();
    for family in Family::ALL {
        let rows: Vec<_> = results.rows.iter().filter(|r| r.family == family).collect();
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{HEADING_STYLE}{}{HEADING_STYLE:#}", family.title())?;
        let name = widest(rows.iter().map(|r| r.name.as_str()));
        let size = widest(rows.iter().map(|r| r.size.as_str()));
        write!(
            out,
            "{FAINT_STYLE}{:name$} {:>size$} {:>11}",
            "", "", "ours"
        )?;
        for peer in &results.contestants[1..] {
            write!(out, " {:>8}", peer.name)?;
        }
        writeln!(out, " {:>8}{FAINT_STYLE:#}", "copy")?;
        for row in rows {
            let ours = row.ours_or(|t| row.time(t));
            write!(out, "{:name$} {:>size$} {ours:>11}", row.name, row.size)?;
            for peer in 1..results.contestants.len() {
                cell(&mut out, row, peer)?;
            }
            match row.share_of_copy() {
                Some(share) => write!(out, " {}{share:>8.2}{:#}", colour(share / 0.9), GOOD_STYLE)?,
                None => write!(out, " {:>8}", "")?,
            }
            if let Some(Outcome::Failed(why)) = row.outcomes.first() {
                write!(out, " {BAD_STYLE}{why}{BAD_STYLE:#}")?;
            }
            writeln!(out)?;
        }
    }
    problems(&mut out, results)?;
    goals(&mut out, results)
}

/// Writes a ratio to a peer; the best peer's is bold, and one whose result differs is marked.
fn cell(out: &mut impl Write, row: &Row, peer: usize) -> Result<()> {
    let Some(ratio) = row.ratio(peer) else {
        let word = match &row.outcomes[peer] {
            Outcome::Failed(_) => "failed",
            _ => "·",
        };
        write!(out, " {FAINT_STYLE}{word:>8}{FAINT_STYLE:#}")?;
        return Ok(());
    };
    let mark = match row.outcomes[peer] {
        Outcome::Measured { agrees: false, .. } => "≠",
        _ => "",
    };
    let style = match row.best() {
        Some((best, _)) if best == peer => colour(ratio).bold(),
        _ => colour(ratio),
    };
    write!(out, " {style}{:>8}{style:#}", format!("{mark}{ratio:.2}"))?;
    Ok(())
}

fn colour(ratio: f64) -> Style {
    match ratio {
        r if r >= 1.0 => GOOD_STYLE,
        r if r >= 0.9 => NEAR_STYLE,
        _ => BAD_STYLE,
    }
}

fn problems(out: &mut impl Write, results: &Results) -> Result<()> {
    let lines = super::markdown::problems(results);
    if !lines.is_empty() {
        writeln!(
            out,
            "\n{HEADING_STYLE}Absent, failed or in disagreement{HEADING_STYLE:#}"
        )?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn goals(out: &mut impl Write, results: &Results) -> Result<()> {
    writeln!(out, "\n{HEADING_STYLE}Goals{HEADING_STYLE:#}")?;
    for goal in &results.goals {
        let style = match goal.word() {
            "met" => GOOD_STYLE,
            "missed" => BAD_STYLE,
            _ => FAINT_STYLE,
        };
        write!(
            out,
            "{style}{:12}{style:#} ≥ {:.1}  {}",
            goal.word(),
            goal.bound,
            goal.goal
        )?;
        match &goal.lowest {
            Some((case, ratio)) => writeln!(
                out,
                ": {} of {} cases, mean {:.2}, lowest {ratio:.2} ({case})",
                goal.met, goal.cases, goal.mean
            )?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|t| t.chars().count()).max().unwrap_or(0)
}
