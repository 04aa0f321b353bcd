//! The results of a run.

use bench_protocol::{DType, Output};
use serde::Serialize;

use super::case::{Entry, Family};
use crate::measure::Timing;
use crate::report::{duration, spread};

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    /// What was compared.
    pub(crate) title: &'static str,
    /// The command that made it.
    pub(crate) command: String,
    /// Day of the run.
    pub(crate) date: String,
    /// The statistic of the times that is compared.
    pub(crate) statistic: Statistic,
    /// Machine and settings.
    pub(crate) setting: Vec<(String, String)>,
    /// Ours first; then the participating peers.
    pub(crate) contestants: Vec<Participant>,
    /// Absent peers.
    pub(crate) absent: Vec<Absent>,
    /// One row per case.
    pub(crate) rows: Vec<Row>,
    /// The goals, and whether they are met.
    pub(crate) goals: Vec<super::goal::Verdict>,
}

/// The statistic that represents a contestant's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Statistic {
    /// The median, for reports.
    Median,
    /// The minimum, which is most robust on a busy machine.
    Least,
}

impl Statistic {
    /// The time that is compared.
    pub(crate) fn of(self, time: &Timing) -> f64 {
        match self {
            Self::Median => time.median,
            Self::Least => time.least,
        }
    }
}

/// A participating contestant.
#[derive(Debug, Serialize)]
pub(crate) struct Participant {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) threads: usize,
}

/// An absent peer.
#[derive(Debug, Serialize)]
pub(crate) struct Absent {
    pub(crate) name: String,
    pub(crate) why: String,
    pub(crate) install: String,
}

/// One case.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) family: Family,
    pub(crate) name: String,
    pub(crate) size: String,
    pub(crate) op: String,
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
    pub(crate) flops: Option<f64>,
    /// Tokens per call of a language model.
    pub(crate) tokens: Option<usize>,
    /// What of the times is compared.
    #[serde(skip)]
    pub(crate) statistic: Statistic,
    /// Number of measured rounds.
    pub(crate) rounds: usize,
    /// In the order of the contestants.
    pub(crate) outcomes: Vec<Outcome>,
    /// Number of contestants at the end of the list that are ours at another SIMD level.
    #[serde(skip)]
    pub(crate) levels: usize,
    /// Copy bandwidth in bytes per second in the same rounds, if it was measured.
    pub(crate) copy_bandwidth: Option<f64>,
}

/// The outcome of a case for a contestant.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Time of one call, and the difference of the result from ours, relative to the largest value.
    Measured {
        time: Timing,
        difference: f64,
        agrees: bool,
    },
    /// The library has no such op.
    Unsupported,
    /// It failed.
    Failed(String),
}

impl Outcome {
    /// The time, if it was measured.
    pub(crate) fn time(&self) -> Option<&Timing> {
        match self {
            Self::Measured { time, .. } => Some(time),
            _ => None,
        }
    }

    fn agrees(&self) -> bool {
        matches!(self, Self::Measured { agrees: true, .. })
    }
}

impl Row {
    /// A row without outcomes yet.
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            family: entry.family,
            name: entry.name.clone(),
            size: entry.size.clone(),
            op: entry.case.op.name(),
            dtype: entry.case.inputs.first().map_or(DType::F32, |i| i.dtype),
            elements: entry.elements,
            bytes: entry.bytes,
            flops: entry.flops,
            tokens: entry.tokens,
            statistic: Statistic::Median,
            rounds: 0,
            outcomes: Vec::new(),
            levels: 0,
            copy_bandwidth: None,
        }
    }

    /// Name and size.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.size)
    }

    /// Our time.
    pub(crate) fn ours(&self) -> Option<&Timing> {
        self.outcomes.first()?.time()
    }

    /// Formats our time, or the reason why there is none.
    pub(crate) fn ours_or(&self, text: impl Fn(&Timing) -> String) -> String {
        match self.outcomes.first() {
            Some(Outcome::Measured { time, .. }) => text(time),
            Some(Outcome::Failed(_)) => "failed".to_owned(),
            _ => "none".to_owned(),
        }
    }

    /// Formats a time, or the tokens per second for a language model.
    pub(crate) fn time(&self, time: &Timing) -> String {
        match self.tokens {
            Some(tokens) => format!("{:.1} tok/s", tokens as f64 / time.median),
            None => duration(time.median),
        }
    }

    /// As [`Row::time`], with quartiles.
    pub(crate) fn spread(&self, time: &Timing) -> String {
        match self.tokens {
            Some(tokens) => format!(
                "{} ({:.1}–{:.1})",
                self.time(time),
                tokens as f64 / time.high,
                tokens as f64 / time.low
            ),
            None => spread(time),
        }
    }

    /// Our speed as a multiple of contestant `peer`'s.
    pub(crate) fn ratio(&self, peer: usize) -> Option<f64> {
        let time = |of: &Timing| self.statistic.of(of);
        Some(time(self.outcomes.get(peer)?.time()?) / time(self.ours()?))
    }

    /// The fastest peer whose result agrees with ours, and the ratio to it.
    pub(crate) fn best(&self) -> Option<(usize, f64)> {
        (1..self.outcomes.len() - self.levels)
            .filter(|&p| self.outcomes[p].agrees())
            .filter_map(|p| Some((p, self.ratio(p)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Our fraction of the copy bandwidth.
    pub(crate) fn share_of_copy(&self) -> Option<f64> {
        Some(self.bytes as f64 / self.statistic.of(self.ours()?) / self.copy_bandwidth?)
    }
}

/// Tolerance between two results, relative to the largest value: a hundred times the rounding error of the type, so
/// that another order of summation passes and another function does not.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-2,
        DType::Bf16 => 1e-1,
        DType::F64 => 1e-9,
        _ => 1e-4,
    }
}

/// The difference of a peer's result from ours, and whether it is within the tolerance.
pub(crate) fn compare(entry: &Entry, ours: &Output, theirs: &Output) -> (f64, bool) {
    if ours.count != theirs.count || ours.sample.len() != theirs.sample.len() {
        return (f64::INFINITY, false);
    }
    let both = ours.sample.iter().zip(&theirs.sample);
    let largest = ours
        .sample
        .iter()
        .flatten()
        .fold(0.0_f64, |m, v| m.max(v.abs()));
    let scale = largest.max(1e-30);
    let mut worst = (ours.mean - theirs.mean).abs() / scale;
    for pair in both {
        worst = worst.max(match pair {
            (Some(a), Some(b)) => (a - b).abs() / scale,
            (None, None) => 0.0,
            _ => f64::INFINITY,
        });
    }
    let tolerance = |dtype| match entry.case.model {
        // Each library quantises activations to 8 bits in its own way, and has 16-bit caches: logits differ by some
        // hundredths.
        Some(_) => 0.15,
        None => tolerance(dtype),
    };
    let narrowest = entry
        .case
        .inputs
        .iter()
        .map(|i| i.dtype)
        .chain(entry.case.to)
        .chain(entry.case.model.as_ref().map(|_| DType::F32))
        .map(tolerance)
        .fold(0.0, f64::max);
    (worst, worst <= narrowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(median: f64, agrees: bool) -> Outcome {
        Outcome::Measured {
            time: Timing::of(vec![median]),
            difference: 0.0,
            agrees,
        }
    }

    fn row(outcomes: Vec<Outcome>) -> Row {
        let entry = &super::super::case::all()[0];
        Row {
            outcomes,
            ..Row::of(entry)
        }
    }

    #[test]
    fn a_ratio_above_one_means_that_ours_is_faster() {
        assert_eq!(
            row(vec![measured(1.0, true), measured(2.0, true)]).ratio(1),
            Some(2.0)
        );
    }

    #[test]
    fn the_best_peer_is_the_fastest_of_those_that_computed_the_same() {
        let row = row(vec![
            measured(1.0, true),
            measured(0.1, false),
            Outcome::Unsupported,
            measured(3.0, true),
            measured(2.0, true),
        ]);
        assert_eq!(row.best(), Some((4, 2.0)));
    }

    #[test]
    fn our_own_simd_levels_are_not_peers() {
        let row = Row {
            levels: 1,
            ..row(vec![
                measured(1.0, true),
                measured(2.0, true),
                measured(0.5, true),
            ])
        };
        assert_eq!(row.best(), Some((1, 2.0)));
        assert_eq!(row.ratio(2), Some(0.5));
    }

    #[test]
    fn differing_results_are_detected() {
        let entry = &super::super::case::all()[0];
        let output = |v: f64| Output::of(&[1.0, v], |v| v);
        assert!(compare(entry, &output(2.0), &output(2.0)).1);
        assert!(!compare(entry, &output(2.0), &output(2.1)).1);
        assert!(!compare(entry, &output(2.0), &output(f64::NAN)).1);
    }
}
