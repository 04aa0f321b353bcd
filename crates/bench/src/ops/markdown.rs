//! The results as Markdown.

use std::fmt::Write as _;

use super::case::Family;
use super::result::{Outcome, Results, Row};
use crate::report::duration;

/// A Markdown page.
pub(crate) fn page(results: &Results) -> String {
    let mut page = format!(
        "# {}\n\n`{}`, {}\n\n",
        results.title, results.command, results.date
    );
    for (key, value) in &results.setting {
        let _ = writeln!(page, "- {key}: {value}");
    }
    for c in &results.contestants {
        let _ = writeln!(page, "- {}: {}, {} threads", c.name, c.version, c.threads);
    }
    page.push_str(
        "\nEvery figure is our speed as a multiple of the peer's: above 1, ours is faster. Times are medians \
         of interleaved rounds with quartiles. **Bold** is the fastest peer that computed the same; ≠ \
         computed something else; · has no such op.\n\n## Goals\n\n\
         | goal | bound | result | cases that meet it | mean | lowest |\n|---|---|---|---|---|---|\n",
    );
    for goal in &results.goals {
        let lowest = goal
            .lowest
            .as_ref()
            .map_or("–".to_owned(), |(case, r)| format!("{r:.2} ({case})"));
        let _ = writeln!(
            page,
            "| {} | ≥ {:.1} | {} | {} of {} | {:.2} | {lowest} |",
            goal.goal,
            goal.bound,
            goal.word(),
            goal.met,
            goal.cases,
            goal.mean
        );
    }
    for goal in results.goals.iter().filter(|g| !g.missed.is_empty()) {
        let cases: Vec<_> = goal
            .missed
            .iter()
            .map(|(case, r)| format!("{case} {r:.2}"))
            .collect();
        let _ = write!(page, "\nBelow, {}: {}.\n", goal.goal, cases.join(", "));
    }
    for family in Family::ALL {
        let rows: Vec<_> = results.rows.iter().filter(|r| r.family == family).collect();
        if !rows.is_empty() {
            table(&mut page, results, family, &rows);
        }
    }
    let problems = problems(results);
    if !problems.is_empty() {
        page.push_str("\n## Absent, failed or in disagreement\n\n");
        for line in problems {
            let _ = writeln!(page, "- {line}");
        }
    }
    page
}

fn table(page: &mut String, results: &Results, family: Family, rows: &[&Row]) {
    let _ = write!(
        page,
        "\n## {}\n\n| op | size | ours (quartiles) |",
        family.title()
    );
    for peer in &results.contestants[1..] {
        let _ = write!(page, " {} |", peer.name);
    }
    let copies = rows.iter().any(|r| r.copy_bandwidth.is_some());
    page.push_str(if copies {
        " of copy bandwidth |\n"
    } else {
        "\n"
    });
    let columns = 3 + results.contestants.len() - 1 + usize::from(copies);
    let _ = writeln!(page, "|{}", "---|".repeat(columns));
    for row in rows {
        let ours = row.ours_or(|t| row.spread(t));
        let _ = write!(page, "| {} | {} | {ours} |", row.name, row.size);
        for peer in 1..results.contestants.len() {
            let _ = write!(page, " {} |", cell(row, peer));
        }
        if copies {
            let share = row
                .share_of_copy()
                .map_or(String::new(), |s| format!("{s:.2}"));
            let _ = write!(page, " {share} |");
        }
        page.push('\n');
    }
}

fn cell(row: &Row, peer: usize) -> String {
    let Some(ratio) = row.ratio(peer) else {
        return match &row.outcomes[peer] {
            Outcome::Failed(_) => "failed".to_owned(),
            _ => "·".to_owned(),
        };
    };
    let best = row.best().is_some_and(|(best, _)| best == peer);
    match row.outcomes[peer] {
        Outcome::Measured { agrees: false, .. } => format!("≠ {ratio:.2}"),
        _ if best => format!("**{ratio:.2}**"),
        _ => format!("{ratio:.2}"),
    }
}

/// Absent peers, failed cases and differing results.
pub(crate) fn problems(results: &Results) -> Vec<String> {
    let mut lines: Vec<_> = results
        .absent
        .iter()
        .map(|a| format!("{} is absent: {}; install: `{}`", a.name, a.why, a.install))
        .collect();
    for row in &results.rows {
        for (contestant, outcome) in results.contestants.iter().zip(&row.outcomes) {
            let (name, case) = (&contestant.name, row.title());
            let family = row.family.name();
            match outcome {
                Outcome::Failed(why) => lines.push(format!("{family} {case}: {name} failed: {why}")),
                Outcome::Measured {
                    agrees: false,
                    difference,
                    time,
                } => lines.push(format!(
                    "{family} {case}: {name} differs from ours by {difference:.1e} of the largest value \
                     (it took {})",
                    duration(time.median)
                )),
                _ => {}
            }
        }
    }
    lines
}
