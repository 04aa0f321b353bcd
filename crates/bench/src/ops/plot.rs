//! Plots of ratios as inline SVG: one row per op, with dots on a logarithmic axis.

use std::fmt::Write as _;

use super::case::{Family, SIZES};
use super::result::{Results, Row};

const LABEL_WIDTH_PX: f64 = 210.0;
const PLOT_WIDTH_PX: f64 = 640.0;
const ROW_HEIGHT_PX: f64 = 18.0;
const TOP_MARGIN_PX: f64 = 26.0;

/// The meaning of the dots of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dots {
    /// One per size, relative to the best peer.
    Sizes,
    /// One per peer.
    Peers,
}

/// The plot of one family with its legend.
pub(crate) fn family(results: &Results, family: Family, rows: &[&Row]) -> String {
    let dots = if rows.iter().all(|r| size_class(r).is_some()) {
        Dots::Sizes
    } else {
        Dots::Peers
    };
    let lines = lines(results, rows, dots);
    let (low, high) = range(lines.iter().flat_map(|l| &l.dots).map(|d| d.ratio));
    let axis = Axis { low, high };
    let height = TOP_MARGIN_PX + ROW_HEIGHT_PX * lines.len() as f64 + 8.0;
    let mut svg = legend(results, dots);
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"{}\">",
        LABEL_WIDTH_PX + PLOT_WIDTH_PX + 20.0,
        escape(family.title())
    );
    axis.draw(&mut svg, height);
    for (index, line) in lines.iter().enumerate() {
        line.draw(
            &mut svg,
            &axis,
            TOP_MARGIN_PX + ROW_HEIGHT_PX * (index as f64 + 0.5),
        );
    }
    svg.push_str("</svg>");
    svg
}

struct Dot {
    ratio: f64,
    class: String,
    title: String,
}

struct PlotRow {
    label: String,
    dots: Vec<Dot>,
}

impl PlotRow {
    fn draw(&self, svg: &mut String, axis: &Axis, y: f64) {
        let _ = write!(
            svg,
            "<line class=\"guide\" x1=\"{LABEL_WIDTH_PX}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\
             <text class=\"label\" x=\"{}\" y=\"{}\">{}</text>",
            LABEL_WIDTH_PX + PLOT_WIDTH_PX,
            LABEL_WIDTH_PX - 8.0,
            y + 4.0,
            escape(&self.label)
        );
        for dot in &self.dots {
            let _ = write!(
                svg,
                "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{y}\" r=\"5\"><title>{}</title></circle>",
                dot.class,
                axis.x(dot.ratio),
                escape(&dot.title)
            );
        }
    }
}

fn lines(results: &Results, rows: &[&Row], dots: Dots) -> Vec<PlotRow> {
    let mut lines: Vec<PlotRow> = Vec::new();
    for row in rows {
        let (label, found) = match dots {
            Dots::Sizes => (
                row.name.clone(),
                best_dot(results, row).into_iter().collect(),
            ),
            Dots::Peers => (row.title(), peer_dots(results, row)),
        };
        match lines.iter_mut().find(|l| l.label == label) {
            Some(line) => line.dots.extend(found),
            None => lines.push(PlotRow { label, dots: found }),
        }
    }
    lines
}

fn best_dot(results: &Results, row: &Row) -> Option<Dot> {
    let (peer, ratio) = row.best()?;
    Some(Dot {
        ratio,
        class: format!("s{}", size_class(row)?),
        title: describe(results, row, peer, ratio),
    })
}

fn peer_dots(results: &Results, row: &Row) -> Vec<Dot> {
    (1..results.contestants.len())
        .filter_map(|peer| {
            let ratio = row.ratio(peer)?;
            Some(Dot {
                ratio,
                class: format!("p{peer}"),
                title: describe(results, row, peer, ratio),
            })
        })
        .collect()
}

fn describe(results: &Results, row: &Row, peer: usize, ratio: f64) -> String {
    let time = |c: usize| {
        let time = row.outcomes.get(c).and_then(|o| o.time());
        time.map_or("–".to_owned(), |t| row.time(t))
    };
    format!(
        "{}: {ratio:.2} times the speed of {} (ours {}, theirs {})",
        row.title(),
        results.contestants[peer].name,
        time(0),
        time(peer)
    )
}

/// The index of a row's size among the four sizes.
fn size_class(row: &Row) -> Option<usize> {
    SIZES.iter().position(|(name, _)| *name == row.size)
}

fn legend(results: &Results, dots: Dots) -> String {
    let mut html = String::from("<p class=\"legend\">");
    let mut entry = |class: String, name: &str| {
        let _ = write!(
            html,
            "<span><svg class=\"key\" viewBox=\"0 0 12 12\"><circle class=\"{class}\" cx=\"6\" cy=\"6\" r=\"5\"/></svg>{}</span>",
            escape(name)
        );
    };
    match dots {
        Dots::Sizes => {
            for (index, (name, _)) in SIZES.iter().enumerate() {
                entry(
                    format!("s{index}"),
                    &format!("{name} elements, to the best peer"),
                );
            }
        }
        Dots::Peers => {
            for (index, peer) in results.contestants.iter().enumerate().skip(1) {
                entry(format!("p{index}"), &format!("to {}", peer.name));
            }
        }
    }
    html.push_str("</p>");
    html
}

/// Minimum and maximum ratio on the axis, which always includes the neighbourhood of 1.
fn range(ratios: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = ratios.fold((0.5_f64, 2.0_f64), |(l, h), r| (l.min(r), h.max(r)));
    (low / 1.1, high * 1.1)
}

struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn x(&self, ratio: f64) -> f64 {
        LABEL_WIDTH_PX + PLOT_WIDTH_PX * (ratio / self.low).ln() / (self.high / self.low).ln()
    }

    fn draw(&self, svg: &mut String, height: f64) {
        const MARKS: [f64; 19] = [
            0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
            500.0, 1e3, 1e4, 1e5,
        ];
        for mark in MARKS {
            if !(self.low..=self.high).contains(&mark) {
                continue;
            }
            let x = self.x(mark);
            let class = if mark == 1.0 { "one" } else { "grid" };
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{height}\"/>\
                 <text class=\"mark\" x=\"{x:.1}\" y=\"14\">{mark}×</text>",
                TOP_MARGIN_PX - 6.0
            );
        }
    }
}

/// Escapes text for HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_logarithmic_and_spans_the_plot() {
        let axis = Axis {
            low: 0.1,
            high: 10.0,
        };
        assert!((axis.x(0.1) - LABEL_WIDTH_PX).abs() < 1e-9);
        assert!((axis.x(1.0) - (LABEL_WIDTH_PX + PLOT_WIDTH_PX / 2.0)).abs() < 1e-9);
    }

    #[test]
    fn the_axis_always_includes_one() {
        let (low, high) = range([30.0, 40.0].into_iter());
        assert!(low < 1.0 && high > 40.0);
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
