//! One case, all contestants, in turn.

use super::case::Entry;
use super::result::{Outcome, Row, Statistic, compare};
use super::worker::{Readiness, Worker};
use crate::measure::Timing;
use bench_protocol::Output;
use std::time::{Duration, Instant};

/// A sample lasts at least this long: the clock's own cost vanishes in it.
const SAMPLE: f64 = 2e-3;
/// Rounds that are run even where the time for the case is spent.
const LEAST_ROUNDS: usize = 5;
/// Elements from which elementwise cases are held against plain copies.
const COPY_FROM: usize = 1 << 24;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Time for one case; rounds beyond it are dropped.
    pub(crate) budget: Duration,
    pub(crate) threads: usize,
    pub(crate) statistic: Statistic,
}

/// A contestant's part in a case.
enum Part {
    Runs {
        calls: u64,
        seconds: Vec<f64>,
        output: Output,
    },
    Out(Outcome),
}

/// Measures one case.
pub(crate) fn measure(entry: &Entry, workers: &mut [Worker], effort: Effort) -> Row {
    let mut parts: Vec<Part> = workers
        .iter_mut()
        .map(|worker| calibrate(entry, worker, effort.budget))
        .collect();
    let mut copier = (entry.family.is_elementwise() && entry.elements >= COPY_FROM)
        .then(|| Copier::new(effort.threads));
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < effort.rounds && (rounds < LEAST_ROUNDS || start.elapsed() < effort.budget) {
        // Every other round in reverse: what comes first or last gains nothing by it.
        let forward = rounds % 2 == 0;
        for k in 0..parts.len() {
            let i = if forward { k } else { parts.len() - 1 - k };
            let part = &mut parts[i];
            let Part::Runs { calls, seconds, .. } = part else {
                continue;
            };
            let spent = *calls as f64 * seconds.iter().sum::<f64>();
            if i > 0 && is_slow(spent, effort.budget) {
                continue;
            }
            settle(workers);
            match workers[i].run(*calls) {
                Ok(time) => seconds.push(time),
                Err(e) => *part = Part::Out(Outcome::Failed(format!("{e:#}"))),
            }
        }
        if let Some(copier) = &mut copier {
            copier.sample();
        }
        rounds += 1;
    }
    for worker in workers.iter_mut() {
        // A worker that cannot answer is found out by its next case.
        drop(worker.forget());
    }
    let ours = match parts.first() {
        Some(Part::Runs { output, .. }) => Some(output.clone()),
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

/// Waits until no contestant computes any more. The threads of some libraries watch for more work long after
/// the last of it (OpenBLAS's for 25 ms and more) and would take a core from whoever is next.
pub(crate) fn settle(workers: &[Worker]) {
    const PATIENCE: Duration = Duration::from_millis(200);
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < 2 && start.elapsed() < PATIENCE {
        let now = workers.iter().all(Worker::is_quiet);
        quiet = if now { quiet + 1 } else { 0 };
        if quiet < 2 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Whether a peer has had its share of the time for a case: one that takes seconds for what others do in
/// milliseconds would otherwise take most of a run's time, and its figure is known well enough.
fn is_slow(spent: f64, budget: Duration) -> bool {
    spent > budget.as_secs_f64() / 2.0
}

/// Computes the case once and finds out how many calls make a sample.
fn calibrate(entry: &Entry, worker: &mut Worker, budget: Duration) -> Part {
    let output = match worker.prepare(&entry.case) {
        Readiness::Ready(output) => output,
        Readiness::Unsupported => return Part::Out(Outcome::Unsupported),
        Readiness::Failed(why) => return Part::Out(Outcome::Failed(why)),
    };
    let mut calls = 1;
    loop {
        match worker.run(calls) {
            Ok(time) if time * calls as f64 >= SAMPLE / 2.0 => {
                return Part::Runs {
                    calls: ((SAMPLE / time).round() as u64).max(1),
                    seconds: is_slow(time, budget).then_some(time).into_iter().collect(),
                    output,
                };
            }
            Ok(_) => calls *= 4,
            Err(e) => return Part::Out(Outcome::Failed(format!("{e:#}"))),
        }
    }
}

fn outcome(entry: &Entry, ours: Option<&Output>, part: Part) -> Outcome {
    match part {
        Part::Out(outcome) => outcome,
        Part::Runs {
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

/// Plain copies between two buffers that exist already, by all threads: what the memory gives.
struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
    threads: usize,
    seconds: Vec<f64>,
}

impl Copier {
    fn new(threads: usize) -> Self {
        let bytes = 4 * COPY_FROM;
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

    /// Bytes read and written in a second.
    fn bandwidth(self, statistic: Statistic) -> f64 {
        2.0 * self.from.len() as f64 / statistic.of(&Timing::of(self.seconds))
    }
}
