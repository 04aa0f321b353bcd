//! Latency of cancelling a model, as Ctrl-C does: `--interrupt`.
//!
//! Another thread cancels prefill or decode at moments that are spread over the whole call. The time from there until
//! the call returns is measured.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench_protocol::Model;
use serde::Serialize;

use super::ours::Sequence;
use crate::measure::Timing;
use crate::ops::case::{Entry, Family};

/// Goal for the longest delay, in seconds.
const MAX_DELAY_SECONDS: f64 = 0.1;

/// A case with the delays of all rounds.
#[derive(Debug, Serialize)]
struct Delays {
    case: String,
    /// Seconds of a whole call that is not cancelled.
    whole: f64,
    delay: Timing,
    longest: f64,
}

#[derive(Debug, Serialize)]
struct InterruptResults {
    title: &'static str,
    command: String,
    date: String,
    setting: Vec<(String, String)>,
    rows: Vec<Delays>,
}

/// Measures and reports; `setting` describes the machine.
pub(crate) fn run(
    entries: &[Entry],
    rounds: usize,
    setting: Vec<(String, String)>,
    out: Option<PathBuf>,
    command: String,
) -> Result<()> {
    let mut results = InterruptResults {
        title: "Interrupted language models",
        command,
        date: crate::ops::date(),
        setting,
        rows: Vec::new(),
    };
    for entry in entries {
        let model = entry.case.model.as_ref().context("a case of a model")?;
        results.rows.push(measure(entry, model, rounds)?);
        if let Some(out) = &out {
            let file = |extension: &str| PathBuf::from(format!("{}.{extension}", out.display()));
            std::fs::write(file("json"), serde_json::to_string_pretty(&results)?)?;
            std::fs::write(file("md"), markdown(&results))?;
        }
    }
    std::io::stdout().write_all(markdown(&results).as_bytes())?;
    Ok(())
}

fn measure(entry: &Entry, model: &Model, rounds: usize) -> Result<Delays> {
    let mut sequence = Sequence::open(model, false)?;
    let flag = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&flag);
    sequence.cancel_when(move || watched.load(Ordering::Relaxed));
    if entry.family == Family::Decode {
        sequence.prefill()?;
    }
    let mut call = || match entry.family {
        Family::Prefill => sequence.prefill(),
        _ => sequence.decode(model.next.len()),
    };
    let start = Instant::now();
    call()?;
    let whole = start.elapsed();
    let mut delays = Vec::new();
    for round in 0..rounds {
        let wait = whole.mul_f64((round as f64 + 0.5) / rounds as f64 * 0.9);
        delays.extend(delay(&flag, wait, &mut call).map(|d| d.as_secs_f64()));
    }
    ensure!(!delays.is_empty(), "no call lasted until it was cancelled");
    Ok(Delays {
        case: format!("{} {}", entry.name, entry.family.name()),
        whole: whole.as_secs_f64(),
        longest: delays.iter().copied().fold(0.0, f64::max),
        delay: Timing::of(delays),
    })
}

/// The time from cancelling a call, `wait` after its start, until it returns; `None` if it ended before.
fn delay(
    flag: &AtomicBool,
    wait: Duration,
    call: &mut dyn FnMut() -> Result<()>,
) -> Option<Duration> {
    flag.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let cancelled = scope.spawn(|| {
            std::thread::sleep(wait);
            flag.store(true, Ordering::Relaxed);
            Instant::now()
        });
        let result = call();
        let end = Instant::now();
        let start = cancelled.join().expect("the thread only sleeps");
        result
            .is_err()
            .then(|| end.saturating_duration_since(start))
    })
}

fn markdown(results: &InterruptResults) -> String {
    let mut page = format!(
        "# {}\n\n`{}`, {}\n\n",
        results.title, results.command, results.date
    );
    for (key, value) in &results.setting {
        let _ = writeln!(page, "- {key}: {value}");
    }
    let _ = write!(
        page,
        "\nThe time from the moment a call is cancelled until it has returned; the longest is meant to stay below {} ms.\n\n\
         | case | whole call | median delay | longest delay | |\n|---|---|---|---|---|\n",
        1e3 * MAX_DELAY_SECONDS
    );
    for row in &results.rows {
        let word = if row.longest <= MAX_DELAY_SECONDS {
            "met"
        } else {
            "missed"
        };
        let _ = writeln!(
            page,
            "| {} | {:.2} s | {:.1} ms | {:.1} ms | {word} |",
            row.case,
            row.whole,
            1e3 * row.delay.median,
            1e3 * row.longest
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_begins_when_the_call_is_cancelled() {
        let flag = AtomicBool::new(false);
        let (wait, late) = (Duration::from_millis(20), Duration::from_millis(30));
        let mut call = || {
            while !flag.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            std::thread::sleep(late);
            anyhow::bail!("cancelled")
        };
        assert!(delay(&flag, wait, &mut call).unwrap() >= late);
        assert!(delay(&flag, Duration::ZERO, &mut || Ok(())).is_none());
    }
}
