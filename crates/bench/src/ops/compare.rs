//! Two builds of Bessemer against each other, case by case (`--old`).

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::case::Entry;
use super::result::{Outcome, Row};
use super::round::{self, Effort};
use super::worker::{self, Worker};

/// A case in which the new build has less than this fraction of the old one's speed is measured again.
const MIN_SPEED_RATIO: f64 = 0.97;
/// Maximum number of measurements of a case. It counts as slower if it is below the bound every time.
const MAX_ATTEMPTS: usize = 3;

/// Measures every case with this build and with `old`, interleaved, and fails if a case is slower every time.
pub(crate) fn run(entries: &[Entry], old: &Path, effort: Effort) -> Result<()> {
    // Two processes of the same program differ by several percent, depending on their memory layout: every measurement
    // uses new processes.
    let start = || -> Result<[Worker; 2]> {
        Ok([
            Worker::start(&worker::ours()?, effort.threads)
                .context("this build's worker does not start")?,
            Worker::start(&worker::old_build(old)?, effort.threads)
                .with_context(|| format!("the worker of {} does not start", old.display()))?,
        ])
    };
    let mut out = anstream::stdout().lock();
    writeln!(out, "speed of this build by that of {}", old.display())?;
    let mut ratios = Vec::new();
    let (mut slower, mut failed, mut different) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        let title = format!("{} {} {}", entry.family.name(), entry.name, entry.size);
        let mut last = None;
        let judged = judge(|| {
            let row = round::measure(entry, &mut start()?, effort);
            let ratio = row.ratio(1);
            last = Some(row);
            Ok(ratio)
        })?;
        let Some(row) = last else { continue };
        if let Some(Judged { first, best: ratio }) = judged {
            let mark = if ratio < MIN_SPEED_RATIO {
                " slower"
            } else {
                ""
            };
            writeln!(out, "{ratio:6.3}  {title}{mark}")?;
            ratios.push(first);
            if ratio < MIN_SPEED_RATIO {
                slower.push(format!("{title} {ratio:.3}"));
            }
            if let Some(difference) = difference(&row) {
                different.push(format!("{title} by {difference:.1e}"));
            }
        } else {
            writeln!(out, "     –  {title}: {}", reason(&row))?;
            if !matches!(row.outcomes[0], Outcome::Measured { .. }) {
                failed.push(title);
            }
        }
        out.flush()?;
    }
    let mean = ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64;
    writeln!(
        out,
        "{} cases, geometric mean of the first measurements {:.3}",
        ratios.len(),
        mean.exp()
    )?;
    if !different.is_empty() {
        writeln!(out, "results differ: {}", different.join(", "))?;
    }
    if !failed.is_empty() {
        bail!("failed in this build: {}", failed.join(", "));
    }
    if !slower.is_empty() {
        bail!(
            "below {MIN_SPEED_RATIO} in {MAX_ATTEMPTS} measurements: {}",
            slower.join(", ")
        );
    }
    Ok(())
}

/// The ratios of a case.
#[derive(Debug, PartialEq)]
struct Judged {
    /// Ratio of the first measurement: repeating only slow cases would bias the mean.
    first: f64,
    /// The first ratio that reaches the bound, or the best of all attempts.
    best: f64,
}

/// Measures a case until it reaches the bound; `None` if there is no ratio.
fn judge(mut measure: impl FnMut() -> Result<Option<f64>>) -> Result<Option<Judged>> {
    let Some(first) = measure()? else {
        return Ok(None);
    };
    let mut best = first;
    for _ in 1..MAX_ATTEMPTS {
        if best >= MIN_SPEED_RATIO {
            break;
        }
        best = best.max(measure()?.unwrap_or(0.0));
    }
    Ok(Some(Judged { first, best }))
}

/// The difference between the results of the builds, if any.
fn difference(row: &Row) -> Option<f64> {
    match row.outcomes[1] {
        Outcome::Measured { difference, .. } if difference > 0.0 => Some(difference),
        _ => None,
    }
}

fn reason(row: &Row) -> String {
    let of = |build: &str, outcome: &Outcome| match outcome {
        Outcome::Measured { .. } => None,
        Outcome::Unsupported => Some(format!("unsupported by the {build} build")),
        Outcome::Failed(why) => Some(format!("failed in the {build} build: {why}")),
    };
    of("new", &row.outcomes[0])
        .or_else(|| of("old", &row.outcomes[1]))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict of `judge` on these ratios, and how many it measured.
    fn judged(ratios: &[f64]) -> Result<(Option<Judged>, usize)> {
        let mut taken = 0;
        let judged = judge(|| {
            taken += 1;
            Ok(ratios.get(taken - 1).copied())
        })?;
        Ok((judged, taken))
    }

    #[test]
    fn a_case_is_repeated_until_it_reaches_the_bound() -> Result<()> {
        let of = |first, best| Some(Judged { first, best });
        assert_eq!(judged(&[0.98, 0.5])?, (of(0.98, 0.98), 1));
        assert_eq!(judged(&[0.9, 1.01, 0.5])?, (of(0.9, 1.01), 2));
        Ok(())
    }

    #[test]
    fn a_case_that_stays_below_the_bound_is_reported_with_its_best() -> Result<()> {
        let (first, best) = (0.9, 0.96);
        assert_eq!(
            judged(&[first, best, 0.94, 1.0])?,
            (Some(Judged { first, best }), MAX_ATTEMPTS)
        );
        Ok(())
    }

    #[test]
    fn a_case_that_a_build_lacks_has_no_ratio() -> Result<()> {
        assert_eq!(judged(&[])?, (None, 1));
        Ok(())
    }
}
