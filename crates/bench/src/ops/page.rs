//! The results as a self-contained HTML page.

use std::fmt::Write as _;

use super::case::Family;
use super::goal::{Verdict, geometric_mean};
use super::markdown;
use super::plot::{self, escape};
use super::result::{Outcome, Results, Row};

const STYLE: &str = include_str!("page.css");

/// The page.
pub(crate) fn page(results: &Results) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style>\
         <main><h1>{0}</h1><p><code>{1}</code></p><p class=\"faint\">{2}</p>",
        results.title,
        escape(&results.command),
        results.date
    );
    html.push_str(
        "<p>Every figure is our speed as a multiple of a peer’s: right of 1, ours is faster. All contestants \
         computed the same data with the same number of threads, in turns within one run; times are medians \
         with quartiles. A peer whose result differs from ours is marked ≠ and does not count as the best \
         one.</p>",
    );
    tiles(&mut html, results);
    goals(&mut html, &results.goals);
    setting(&mut html, results);
    html.push_str("<nav>");
    let families: Vec<(Family, Vec<&Row>)> = Family::ALL
        .into_iter()
        .map(|f| (f, results.rows.iter().filter(|r| r.family == f).collect()))
        .filter(|(_, rows): &(_, Vec<_>)| !rows.is_empty())
        .collect();
    for (family, _) in &families {
        let _ = write!(
            html,
            "<a href=\"#{}\">{}</a> ",
            family.name(),
            family.title()
        );
    }
    html.push_str("</nav>");
    for (family, rows) in &families {
        let _ = write!(
            html,
            "<section id=\"{}\"><h2>{}</h2>{}",
            family.name(),
            family.title(),
            plot::family(results, *family, rows)
        );
        table(&mut html, results, rows);
        html.push_str("</section>");
    }
    let problems = markdown::problems(results);
    if !problems.is_empty() {
        html.push_str("<section><h2>Absent, failed or in disagreement</h2><ul>");
        for line in problems {
            let _ = write!(html, "<li>{}</li>", escape(&line));
        }
        html.push_str("</ul></section>");
    }
    html.push_str("</main></html>\n");
    html
}

/// The headline figures: the mean ratio to every peer.
fn tiles(html: &mut String, results: &Results) {
    html.push_str("<div class=\"tiles\">");
    let mut tile = |name: &str, ratios: Vec<f64>| {
        if ratios.is_empty() {
            return;
        }
        let won = ratios.iter().filter(|r| **r >= 1.0).count();
        let _ = write!(
            html,
            "<div><b>{:.2}×</b><span>{}</span><small>faster in {won} of {} cases</small></div>",
            geometric_mean(ratios.iter().copied()),
            escape(name),
            ratios.len()
        );
    };
    let best = results.rows.iter().filter_map(|r| Some(r.best()?.1));
    tile("the best peer", best.collect());
    for (index, peer) in results.contestants.iter().enumerate().skip(1) {
        let ratios = results.rows.iter().filter_map(|r| r.ratio(index));
        tile(&peer.name, ratios.collect());
    }
    html.push_str("</div>");
}

fn goals(html: &mut String, goals: &[Verdict]) {
    html.push_str(
        "<h2>Goals</h2><table><tr><th>goal<th>bound<th>result<th class=\"number\">cases<th class=\"number\">mean\
         <th>lowest</tr>",
    );
    for goal in goals {
        let class = match goal.word() {
            "met" => "good",
            "missed" => "bad",
            _ => "faint",
        };
        let lowest = goal.lowest.as_ref().map_or("–".to_owned(), |(case, r)| {
            format!("{r:.2} ({})", escape(case))
        });
        let _ = write!(
            html,
            "<tr><td>{}<td>≥ {:.1}<td class=\"{class}\">{}<td class=\"number\">{} of {}<td class=\"number\">{:.2}\
             <td>{lowest}</tr>",
            escape(&goal.goal),
            goal.bound,
            goal.word(),
            goal.met,
            goal.cases,
            goal.mean
        );
    }
    html.push_str("</table>");
    for goal in goals.iter().filter(|g| !g.missed.is_empty()) {
        let cases: Vec<_> = goal
            .missed
            .iter()
            .map(|(case, r)| format!("{} {r:.2}", escape(case)))
            .collect();
        let _ = write!(
            html,
            "<details><summary>{} below: {}</summary><p>{}</p></details>",
            goal.missed.len(),
            escape(&goal.goal),
            cases.join(", ")
        );
    }
}

fn setting(html: &mut String, results: &Results) {
    html.push_str("<h2>Machine and versions</h2><table>");
    let mut pair = |key: &str, value: &str| {
        let _ = write!(html, "<tr><th>{}<td>{}</tr>", escape(key), escape(value));
    };
    for (key, value) in &results.setting {
        pair(key, value);
    }
    for c in &results.contestants {
        pair(&c.name, &format!("{}, {} threads", c.version, c.threads));
    }
    html.push_str("</table>");
}

fn table(html: &mut String, results: &Results, rows: &[&Row]) {
    html.push_str("<details><summary>Numbers</summary><div class=\"wide\"><table><tr><th>op<th>size<th>ours (quartiles)");
    for peer in &results.contestants[1..] {
        let _ = write!(html, "<th class=\"number\">{}", escape(&peer.name));
    }
    let copies = rows.iter().any(|r| r.copy_bandwidth.is_some());
    html.push_str(if copies {
        "<th class=\"number\">of copy bandwidth</tr>"
    } else {
        "</tr>"
    });
    for row in rows {
        let ours = row.ours_or(|t| row.spread(t));
        let (name, size) = (escape(&row.name), escape(&row.size));
        let _ = write!(html, "<tr><td>{name}<td>{size}<td>{ours}");
        for peer in 1..results.contestants.len() {
            cell(html, row, peer);
        }
        if copies {
            let share = row
                .share_of_copy()
                .map_or(String::new(), |s| format!("{s:.2}"));
            let _ = write!(html, "<td class=\"number\">{share}");
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div></details>");
}

fn cell(html: &mut String, row: &Row, peer: usize) {
    let Some(ratio) = row.ratio(peer) else {
        let word = match &row.outcomes[peer] {
            Outcome::Failed(_) => "failed",
            _ => "·",
        };
        let _ = write!(html, "<td class=\"number faint\">{word}");
        return;
    };
    let class = if ratio >= 1.0 { "good" } else { "bad" };
    let best = row.best().is_some_and(|(best, _)| best == peer);
    let mark = match row.outcomes[peer] {
        Outcome::Measured { agrees: false, .. } => "≠ ",
        _ => "",
    };
    let (open, close) = if best { ("<b>", "</b>") } else { ("", "") };
    let time = row.outcomes[peer]
        .time()
        .map_or(String::new(), |t| row.spread(t));
    let _ = write!(
        html,
        "<td class=\"number {class}\" title=\"{time}\">{open}{mark}{ratio:.2}{close}"
    );
}
