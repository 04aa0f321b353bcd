//! Two builds of ours against each other, case by case (`--old`).

use super::case::Entry;
use super::result::{Outcome, Row};
use super::round::{self, Effort};
use super::worker::{self, Worker};
use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::path::Path;

/// A case in which the new build has less than this share of the old one's speed is measured again.
const BOUND: f64 = 0.97;
/// How often a case is measured at most. It counts as slower if it is below the bound every time.
const ATTEMPTS: usize = 3;

/// Measures every case with this build and with `old`, in turn, and fails if one is slower and stays so.
pub(crate) fn run(entries: &[Entry], old: &Path, effort: Effort) -> Result<()> {
    // Two processes of one program differ by several percent, with where their memory lies: every measurement has
    // processes of its own.
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
            let mark = if ratio < BOUND { " slower" } else { "" };
            writeln!(out, "{ratio:6.3}  {title}{mark}")?;
            ratios.push(first);
            if ratio < BOUND {
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
            "below {BOUND} in {ATTEMPTS} measurements: {}",
            slower.join(", ")
        );
    }
    Ok(())
}

/// The ratios of a case.
#[derive(Debug, PartialEq)]
struct Judged {
    /// Of the first measurement: repeating only what is slow would raise the mean.
    first: f64,
    /// The first that reaches the bound, or the best of all attempts.
    best: f64,
}

/// Measures a case until it reaches the bound; `None` if there is no ratio.
fn judge(mut measure: impl FnMut() -> Result<Option<f64>>) -> Result<Option<Judged>> {
    let Some(first) = measure()? else {
        return Ok(None);
    };
    let mut best = first;
    for _ in 1..ATTEMPTS {
        if best >= BOUND {
            break;
        }
        best = best.max(measure()?.unwrap_or(0.0));
    }
    Ok(Some(Judged { first, best }))
}

/// How far the results of the builds are apart, if they are.
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

    /// What `judge` makes of these ratios, and how many it asks for.
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
            (Some(Judged { first, best }), ATTEMPTS)
        );
        Ok(())
    }

    #[test]
    fn a_case_that_a_build_lacks_has_no_ratio() -> Result<()> {
        assert_eq!(judged(&[])?, (None, 1));
        Ok(())
    }
}
