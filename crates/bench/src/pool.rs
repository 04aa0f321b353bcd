//! The engine's thread pool against rayon's: the same chunks of the same data, split by each.
//!
//! All contestants run in this process, one at a time. A sample is many jobs back to back, like the ops of a graph, and
//! starts after the threads of the previous contestant have parked.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use rayon::prelude::*;

use crate::llm::load::Load;
use crate::measure::Timing;
use crate::report::duration;

/// Options of the pool suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also write the results as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// A way to split the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolContestant {
    Ours,
    /// Called from a thread of the program, which blocks until the job is done: what a caller of a library gets.
    Rayon,
    /// Called from a thread of rayon's pool, which participates: as if the whole program ran inside `install`.
    RayonInstalled,
    /// One thread.
    Serial,
}

impl PoolContestant {
    const ALL: [Self; 4] = [Self::Ours, Self::Rayon, Self::RayonInstalled, Self::Serial];

    /// Calls `body` with the index of every chunk of `len` elements and the chunk.
    fn for_each_chunk(
        self,
        data: &mut [f32],
        len: usize,
        body: impl Fn(usize, &mut [f32]) + Sync + Send,
    ) {
        match self {
            Self::Ours => bessemer::pool::for_each_chunk(data, len, body),
            Self::Rayon | Self::RayonInstalled => data
                .par_chunks_mut(len)
                .enumerate()
                .with_max_len(1)
                .for_each(|(i, chunk)| body(i, chunk)),
            Self::Serial => data
                .chunks_mut(len)
                .enumerate()
                .for_each(|(i, chunk)| body(i, chunk)),
        }
    }

    /// Mean seconds per call over `calls`.
    fn sample(self, case: &PoolCase, data: &mut Data, calls: usize) -> f64 {
        let mut timed = || {
            let start = Instant::now();
            for _ in 0..calls {
                (case.work)(self, data);
            }
            start.elapsed().as_secs_f64() / calls as f64
        };
        if self == Self::RayonInstalled {
            // A scope runs on a thread of the pool.
            rayon::scope(|_| timed())
        } else {
            timed()
        }
    }
}

/// The data of the jobs.
struct Data {
    input: Vec<f32>,
    output: Vec<f32>,
}

struct PoolCase {
    name: &'static str,
    work: fn(PoolContestant, &mut Data),
}

/// Elements of the elementwise jobs.
const ELEMENTS: usize = 10_000;
/// Side of the square matrices.
const SIDE: usize = 256;
/// Rows of a GEMM task.
const TASK_ROWS: usize = 16;
/// Columns and rows of a decode job's matrix, and the number of tasks it is split into.
const COLUMNS: usize = 576;
const ROWS: usize = 512;
const DECODE_TASKS: usize = 8;
/// Jobs per decoded token.
const JOBS_PER_TOKEN: usize = 120;

const CASES: [PoolCase; 6] = [
    PoolCase {
        name: "empty job of 2 tasks",
        work: |pool, data| {
            pool.for_each_chunk(&mut data.output[..2], 1, |i, chunk| {
                black_box((i, chunk));
            });
        },
    },
    PoolCase {
        name: "`x * 2 + 1`, 10K elements in 2 tasks",
        work: |pool, data| elementwise(pool, data, |x| x * 2.0 + 1.0),
    },
    PoolCase {
        name: "`exp(x)`, 10K elements in 2 tasks",
        work: |pool, data| elementwise(pool, data, f32::exp),
    },
    PoolCase {
        name: "matmul 256 × 256 × 256 in 16 tasks",
        work: matmul,
    },
    PoolCase {
        name: "decode: 120 GEMVs of 8 tasks, a norm between them",
        work: |pool, data| decode(pool, data, Duration::ZERO),
    },
    PoolCase {
        name: "the same, 200 µs of serial work between them",
        work: |pool, data| decode(pool, data, Duration::from_micros(200)),
    },
];

fn elementwise(pool: PoolContestant, data: &mut Data, f: impl Fn(f32) -> f32 + Sync + Send) {
    let len = ELEMENTS / 2;
    let input = &data.input;
    pool.for_each_chunk(&mut data.output[..ELEMENTS], len, |i, chunk| {
        for (y, &x) in chunk.iter_mut().zip(&input[i * len..]) {
            *y = f(x);
        }
    });
}

fn matmul(pool: PoolContestant, data: &mut Data) {
    let (a, b) = data.input.split_at(SIDE * SIDE);
    let len = TASK_ROWS * SIDE;
    pool.for_each_chunk(&mut data.output[..SIDE * SIDE], len, |i, chunk| {
        let rows = &a[i * len..];
        chunk.fill(0.0);
        for (y, a) in chunk.chunks_mut(SIDE).zip(rows.chunks(SIDE)) {
            for (&a, b) in a.iter().zip(b.chunks(SIDE)) {
                for (y, &b) in y.iter_mut().zip(b) {
                    *y += a * b;
                }
            }
        }
    });
}

/// The jobs of a token: each is too short to wake a thread for, and follows the previous one immediately or after
/// `pause`.
fn decode(pool: PoolContestant, data: &mut Data, pause: Duration) {
    let len = ROWS / DECODE_TASKS;
    let mut x = vec![1.0; COLUMNS];
    for _ in 0..JOBS_PER_TOKEN {
        let start = Instant::now();
        let squares: f32 = x.iter().map(|v| v * v).sum();
        let scale = 1.0 / (squares / COLUMNS as f32 + 1e-6).sqrt();
        x.iter_mut().for_each(|v| *v *= scale);
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
        let weights = &data.input;
        pool.for_each_chunk(&mut data.output[..ROWS], len, |i, chunk| {
            let rows = weights[i * len * COLUMNS..].chunks_exact(COLUMNS);
            for (y, row) in chunk.iter_mut().zip(rows) {
                *y = dot(row, &x);
            }
        });
        x[..ROWS].copy_from_slice(&data.output[..ROWS]);
    }
}

/// A dot product that the compiler vectorises.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}

/// A case's times, in the order of [`PoolContestant::ALL`].
struct PoolTimes {
    case: &'static str,
    load: usize,
    times: Vec<Timing>,
}

impl PoolTimes {
    /// Our speed as a multiple of a contestant's.
    fn ratio(&self, other: usize) -> f64 {
        self.times[other].median / self.times[0].median
    }
}

/// Measures and reports.
pub(crate) fn run(options: &Options, rounds: usize, command: &str) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores > 1, "with one core there is nothing to split");
    let threads = bessemer::pool::threads();
    let theirs = rayon::current_num_threads();
    ensure!(
        threads == theirs,
        "{threads} threads of ours against {theirs} of rayon's: set BESSEMER_THREADS and RAYON_NUM_THREADS alike"
    );
    let mut rows = Vec::new();
    for load in [0, 1, cores] {
        for case in &CASES {
            rows.push(measure(case, load, rounds)?);
        }
    }
    let page = markdown(&rows, threads, rounds, command);
    if let Some(path) = &options.markdown {
        std::fs::write(path, &page)?;
    }
    use std::io::Write as _;
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

/// Measures all contestants interleaved, next to `load` busy processes.
fn measure(case: &PoolCase, load: usize, rounds: usize) -> Result<PoolTimes> {
    let mut data = Data {
        input: (0..COLUMNS * ROWS)
            .map(|i| (i % 17) as f32 / 16.0 - 0.5)
            .collect(),
        output: vec![0.0; SIDE * SIDE],
    };
    let mut results = Vec::new();
    for contestant in PoolContestant::ALL {
        data.output.fill(0.0);
        contestant.sample(case, &mut data, 1);
        results.push(data.output.clone());
    }
    ensure!(
        results.iter().all(|r| *r == results[0]),
        "{}: results differ",
        case.name
    );
    // On a busy machine a sample spans several time slices of the scheduler.
    let length = if load == 0 { 2e-3 } else { 40e-3 };
    let calls = PoolContestant::ALL.map(|contestant| {
        let mut calls = 1;
        loop {
            let time = contestant.sample(case, &mut data, calls);
            if time * calls as f64 >= length / 2.0 {
                return ((length / time).round() as usize).max(1);
            }
            calls *= 4;
        }
    });
    let _load = (load > 0).then(|| Load::start(load)).transpose()?;
    let mut times = vec![Vec::new(); PoolContestant::ALL.len()];
    for _ in 0..rounds.max(1) {
        for (i, contestant) in PoolContestant::ALL.into_iter().enumerate() {
            // Idle threads spin briefly before they park.
            std::thread::sleep(Duration::from_millis(1));
            times[i].push(contestant.sample(case, &mut data, calls[i]));
        }
    }
    Ok(PoolTimes {
        case: case.name,
        load,
        times: times.into_iter().map(Timing::of).collect(),
    })
}

fn markdown(rows: &[PoolTimes], threads: usize, rounds: usize, command: &str) -> String {
    let mut page = format!(
        "# The engine's thread pool against rayon\n\n`{command}`, {}\n\n\
         - processor: {}\n- threads of each pool: {threads}\n- rounds: {rounds}\n\n\
         Medians of one interleaved run. \"rayon\" is called from a thread outside its pool, as a library calls it; \
         \"rayon, installed\" from a thread of its pool. Ratios are our speed by theirs. Load is the number of \
         processes that compute without pause beside the contestant.\n",
        crate::ops::date(),
        crate::ops::processor(),
    );
    let mut last = None;
    for row in rows {
        if last.replace(row.load) != Some(row.load) {
            let _ = write!(
                page,
                "\n## Load: {}\n\n\
                 | job | ours | rayon | rayon, installed | one thread | to rayon | to rayon, installed |\n\
                 |---|---|---|---|---|---|---|\n",
                row.load
            );
        }
        let _ = write!(page, "| {} |", row.case);
        for time in &row.times {
            let _ = write!(page, " {} |", duration(time.median));
        }
        let _ = writeln!(page, " {:.2} | {:.2} |", row.ratio(1), row.ratio(2));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_computes_the_same() -> Result<()> {
        for case in &CASES {
            measure(case, 0, 1)?;
        }
        Ok(())
    }
}
