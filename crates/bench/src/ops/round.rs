//! The measurement of one case with all contestants, interleaved.

use std::time::{Duration, Instant};

use bench_protocol::Output;

use super::case::Entry;
use super::result::{Outcome, Row, Statistic, compare};
use super::worker::{Readiness, Worker};
use crate::measure::Timing;

/// Minimum duration of a sample, long relative to the cost of reading the clock.
const MIN_SAMPLE_SECONDS: f64 = 2e-3;
/// Number of rounds that run even if the time for the case is spent.
const MIN_ROUNDS: usize = 5;
/// From this many elements on, elementwise cases are compared with memory copies.
const MIN_COPY_ELEMENTS: usize = 1 << 24;

/// The measurement effort.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Time per case; rounds beyond it are skipped.
    pub(crate) budget: Duration,
    pub(crate) threads: usize,
    pub(crate) statistic: Statistic,
}

/// The state of a contestant in a case.
enum CaseState {
    Runs {
        calls: u64,
        seconds: Vec<f64>,
        output: Output,
    },
    Out(Outcome),
}

/// Measures one case.
pub(crate) fn measure(entry: &Entry, workers: &mut [Worker], effort: Effort) -> Row {
    let mut parts: Vec<CaseState> = workers
        .iter_mut()
        .map(|worker| calibrate(entry, worker, effort.budget))
        .collect();
    let mut copier = (entry.family.is_elementwise() && entry.elements >= MIN_COPY_ELEMENTS)
        .then(|| Copier::new(effort.threads));
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < effort.rounds && (rounds < MIN_ROUNDS || start.elapsed() < effort.budget) {
        // Every other round in reverse order: no contestant benefits from being first or last.
        let forward = rounds % 2 == 0;
        for k in 0..parts.len() {
            let i = if forward { k } else { parts.len() - 1 - k };
            let part = &mut parts[i];
            let CaseState::Runs { calls, seconds, .. } = part else {
                continue;
            };
            let spent = *calls as f64 * seconds.iter().sum::<f64>();
            if i > 0 && is_slow(spent, effort.budget) {
                continue;
            }
            settle(workers);
            match workers[i].run(*calls) {
                Ok(time) => seconds.push(time),
                Err(e) => *part = CaseState::Out(Outcome::Failed(format!("{e:#}"))),
            }
        }
        if let Some(copier) = &mut copier {
            copier.sample();
        }
        rounds += 1;
    }
    for worker in workers.iter_mut() {
        // A worker that does not reply fails in its next case.
        drop(worker.forget());
    }
    let ours = match parts.first() {
        Some(CaseState::Runs { output, .. }) => Some(output.clone()),
        _ => None,
    };
    Row {
        statistic: effort.statistic,
        rounds,
        levels: workers.iter().filter(|w| w.is_level()).count(),
        outcomes: parts
            .into_iter()
            .map(|part| outcome(entry, ours.as_ref(), part))
            .collect(),
        copy_bandwidth: copier.map(|c| c.bandwidth(effort.statistic)),
        ..Row::of(entry)
    }
}

/// Waits until no contestant computes any more. The threads of some libraries spin long after their last work
/// (OpenBLAS's for 25 ms and more) and would take a core from the next contestant.
pub(crate) fn settle(workers: &[Worker]) {
    const SETTLE_TIMEOUT: Duration = Duration::from_millis(200);
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < 2 && start.elapsed() < SETTLE_TIMEOUT {
        let now = workers.iter().all(Worker::is_quiet);
        quiet = if now { quiet + 1 } else { 0 };
        if quiet < 2 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Returns `true` if a peer has used its share of the time for a case: one that is a thousand times slower than the
/// others would otherwise take most of the run's time, and its figure is accurate enough.
fn is_slow(spent: f64, budget: Duration) -> bool {
    spent > budget.as_secs_f64() / 2.0
}

/// Computes the case once and determines the number of calls per sample.
fn calibrate(entry: &Entry, worker: &mut Worker, budget: Duration) -> CaseState {
    let output = match worker.prepare(&entry.case) {
        Readiness::Ready(output) => output,
        Readiness::Unsupported => return CaseState::Out(Outcome::Unsupported),
        Readiness::Failed(why) => return CaseState::Out(Outcome::Failed(why)),
    };
    let mut calls = 1;
    loop {
        match worker.run(calls) {
            Ok(time) if time * calls as f64 >= MIN_SAMPLE_SECONDS / 2.0 => {
                return CaseState::Runs {
                    calls: ((MIN_SAMPLE_SECONDS / time).round() as u64).max(1),
                    seconds: is_slow(time, budget).then_some(time).into_iter().collect(),
                    output,
                };
            }
            Ok(_) => calls *= 4,
            Err(e) => return CaseState::Out(Outcome::Failed(format!("{e:#}"))),
        }
    }
}

fn outcome(entry: &Entry, ours: Option<&Output>, part: CaseState) -> Outcome {
    match part {
        CaseState::Out(outcome) => outcome,
        CaseState::Runs {
            seconds, output, ..
        } => {
            let (difference, agrees) = ours.map_or((0.0, true), |o| compare(entry, o, &output));
            Outcome::Measured {
                time: Timing::of(seconds),
                difference: difference.min(f64::MAX),
                agrees,
            }
        }
    }
}

/// Copies between two existing buffers by all threads, to measure memory bandwidth.
struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
    threads: usize,
    seconds: Vec<f64>,
}

impl Copier {
    fn new(threads: usize) -> Self {
        let bytes = 4 * MIN_COPY_ELEMENTS;
        Self {
            from: vec![1; bytes],
            to: vec![2; bytes],
            threads,
            seconds: Vec::new(),
        }
    }

    fn sample(&mut self) {
        let piece = self.from.len().div_ceil(self.threads);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (from, to) in self.from.chunks(piece).zip(self.to.chunks_mut(piece)) {
                scope.spawn(|| to.copy_from_slice(from));
            }
        });
        self.seconds.push(start.elapsed().as_secs_f64());
    }

    /// Bytes read and written per second.
    fn bandwidth(self, statistic: Statistic) -> f64 {
        2.0 * self.from.len() as f64 / statistic.of(&Timing::of(self.seconds))
    }
}
