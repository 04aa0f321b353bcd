//! The goals, and whether they are met.

use bench_protocol::DType;
use serde::Serialize;

use super::case::Family;
use super::result::{Results, Row};

/// One goal with its result.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    /// The goal.
    pub(crate) goal: String,
    /// Minimum ratio.
    pub(crate) bound: f64,
    /// Number of cases it applies to.
    pub(crate) cases: usize,
    /// Number of cases that meet it.
    pub(crate) met: usize,
    /// Geometric mean of the ratios.
    pub(crate) mean: f64,
    /// Cases below the bound with their ratios, the lowest first.
    pub(crate) missed: Vec<(String, f64)>,
    /// The lowest ratio of all.
    pub(crate) lowest: Option<(String, f64)>,
}

impl Verdict {
    /// `met`, `missed`, or that nothing was measured.
    pub(crate) fn word(&self) -> &'static str {
        match (self.cases, self.missed.is_empty()) {
            (0, _) => "not measured",
            (_, true) => "met",
            (_, false) => "missed",
        }
    }
}

/// The goals, as ratios within the run.
pub(crate) fn verdicts(results: &Results) -> Vec<Verdict> {
    let peer = |name: &str| results.contestants.iter().position(|c| c.name == name);
    let best = |row: &Row| Some(row.best()?.1);
    let against = |name: &str| {
        let peer = peer(name);
        move |row: &Row| row.ratio(peer?)
    };
    let rows = |pick: &dyn Fn(&Row) -> bool| -> Vec<&Row> {
        results.rows.iter().filter(|r| pick(r)).collect()
    };
    let from_10k = |r: &Row| r.family.is_elementwise() && r.elements >= 10_000;
    let norms = |r: &Row| matches!(r.family, Family::Softmax | Family::Norm | Family::Rope);
    vec![
        verdict(
            "matmul f32 from 128 up, to the best peer",
            1.0,
            &rows(&|r| r.family == Family::Matmul && r.dtype == DType::F32 && r.size != "64"),
            best,
        ),
        verdict(
            "elementwise from 10K up, to the best peer",
            1.0,
            &rows(&from_10k),
            best,
        ),
        verdict(
            "elementwise at 16M, to plain copies",
            0.9,
            &rows(&|r| r.family.is_elementwise()),
            Row::share_of_copy,
        ),
        verdict(
            "softmax, layer_norm, rms_norm, rope, to the best peer",
            1.5,
            &rows(&norms),
            best,
        ),
        verdict(
            "chain of eight elementwise ops, to NumPy",
            3.0,
            &rows(&|r| r.family == Family::Chain),
            against("NumPy"),
        ),
        verdict(
            "chain of eight elementwise ops, to JAX",
            1.0,
            &rows(&|r| r.family == Family::Chain),
            against("JAX"),
        ),
        verdict(
            "overhead of a tiny op, to NumPy",
            1.0,
            &rows(&|r| r.family == Family::Overhead),
            against("NumPy"),
        ),
    ]
}

/// Tolerated loss of a SIMD level to a lower one: two measurements of the same code differ by that much.
const NOISE_RATIO: f64 = 0.05;

/// Checks that no SIMD level is slower than a lower one that was measured; the default counts as the highest.
pub(crate) fn of_levels(results: &Results) -> Vec<Verdict> {
    let levels = results.rows.first().map_or(0, |r| r.levels);
    let rows: Vec<&Row> = results.rows.iter().collect();
    let first = results.contestants.len() - levels;
    let mut verdicts = Vec::new();
    for low in first..results.contestants.len() {
        for high in (low + 1..results.contestants.len()).chain([0]) {
            let name = |i: usize| match i {
                0 => "the default",
                _ => results.contestants[i].name.as_str(),
            };
            verdicts.push(verdict(
                &format!("{}, to {}", name(high), name(low)),
                1.0 - NOISE_RATIO,
                &rows,
                |row| Some(row.ratio(low)? / row.ratio(high)?),
            ));
        }
    }
    verdicts
}

/// Evaluates a goal on these rows.
pub(crate) fn verdict(
    goal: &str,
    bound: f64,
    rows: &[&Row],
    ratio: impl Fn(&Row) -> Option<f64>,
) -> Verdict {
    let mut ratios: Vec<(String, f64)> = rows
        .iter()
        .filter_map(|r| Some((r.title(), ratio(r)?)))
        .collect();
    ratios.sort_by(|a, b| a.1.total_cmp(&b.1));
    let missed: Vec<_> = ratios.iter().filter(|r| r.1 < bound).cloned().collect();
    Verdict {
        goal: goal.to_owned(),
        bound,
        cases: ratios.len(),
        met: ratios.len() - missed.len(),
        mean: geometric_mean(ratios.iter().map(|r| r.1)),
        missed,
        lowest: ratios.into_iter().next(),
    }
}

/// Geometric mean; 1 for no ratios.
pub(crate) fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0_usize), |(s, n), r| (s + r.ln(), n + 1));
    (sum / count.max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_slower_than_a_lower_one_is_a_missed_goal() {
        use super::super::result::{Outcome, Participant, Statistic};
        use crate::measure::Timing;

        let measured = |seconds: f64| Outcome::Measured {
            time: Timing::of(vec![seconds]),
            difference: 0.0,
            agrees: true,
        };
        let participant = |name: &str| Participant {
            name: name.to_owned(),
            version: String::new(),
            threads: 1,
        };
        let row = Row {
            levels: 2,
            // Ours, a peer, AVX2, AVX-512.
            outcomes: [1.0, 9.0, 2.0, 3.0].map(measured).into(),
            ..Row::of(&super::super::case::all()[0])
        };
        let results = Results {
            title: "",
            command: String::new(),
            date: String::new(),
            statistic: Statistic::Median,
            setting: Vec::new(),
            contestants: ["Bessemer", "NumPy", "Bessemer avx2", "Bessemer avx512"]
                .map(participant)
                .into(),
            absent: Vec::new(),
            rows: vec![row],
            goals: Vec::new(),
        };
        let found: Vec<_> = of_levels(&results)
            .into_iter()
            .map(|v| (v.goal.clone(), v.mean, v.word()))
            .collect();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].0, "Bessemer avx512, to Bessemer avx2");
        assert!(near(found[0].1, 2.0 / 3.0) && found[0].2 == "missed");
        assert_eq!(found[1].0, "the default, to Bessemer avx2");
        assert!(near(found[1].1, 2.0) && found[1].2 == "met");
        assert!(near(found[2].1, 3.0));
    }

    #[test]
    fn the_mean_of_ratios_is_geometric() {
        assert!((geometric_mean([0.5, 2.0].into_iter()) - 1.0).abs() < 1e-12);
    }
}
