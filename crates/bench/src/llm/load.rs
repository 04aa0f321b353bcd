//! Language models on a busy machine: `--load N` runs N busy processes.
//!
//! Every contestant runs with all threads and with one, each with and without the load, interleaved. Its speed under
//! load is divided by its own on the idle machine and by the fraction of cores that the load leaves: a contestant that
//! uses all of them has a share of 1.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;

use crate::measure::Timing;
use crate::ops::case::Entry;
use crate::ops::round::{Effort, settle};
use crate::ops::worker::{Contestant, Readiness, Worker};

/// Goal for every share.
const MIN_SHARE: f64 = 0.9;

/// Busy processes, not pinned to cores.
pub(crate) struct Load(Vec<Child>);

impl Load {
    /// Starts `count` processes, and waits until the scheduler has spread them.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(std::env::current_exe()?);
            load.0
                .push(command.arg("busy").stdin(Stdio::piped()).spawn()?);
        }
        // Gives the scheduler time to place them and the contestants' threads on cores.
        std::thread::sleep(Duration::from_millis(200));
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It has no state to save.
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// The loop of a busy process, until the parent process ends.
pub(crate) fn busy() -> ! {
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}

/// The times of a contestant with a number of threads.
#[derive(Debug, Serialize)]
struct LoadTimes {
    case: String,
    contestant: String,
    threads: usize,
    tokens: usize,
    /// Seconds of a call on the idle machine, and under load.
    quiet: Timing,
    loaded: Timing,
    /// Fraction of the remaining cores that it uses.
    share: f64,
}

#[derive(Debug, Serialize)]
struct LoadResults {
    title: &'static str,
    command: String,
    date: String,
    setting: Vec<(String, String)>,
    load: usize,
    rows: Vec<LoadTimes>,
    failures: Vec<String>,
}

/// The cases and the load.
pub(crate) struct LoadPlan<'a> {
    pub(crate) entries: &'a [Entry],
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) load: usize,
    pub(crate) effort: Effort,
    pub(crate) out: Option<PathBuf>,
}

/// Measures and reports.
pub(crate) fn run(plan: &LoadPlan<'_>, command: String) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(
        (1..cores).contains(&plan.load),
        "--load leaves at least one of the {cores} cores"
    );
    let mut results = LoadResults {
        title: "Language models on a busy machine",
        command,
        date: crate::ops::date(),
        setting: crate::ops::setting(plan.effort, &[]),
        load: plan.load,
        rows: Vec::new(),
        failures: Vec::new(),
    };
    let mut threads = vec![plan.effort.threads, 1];
    threads.dedup();
    for entry in plan.entries {
        // Started for every case, so that no memory of the previous model remains.
        let mut workers = Vec::new();
        for contestant in &plan.contestants {
            for &threads in &threads {
                match ready(contestant, threads, entry) {
                    Ok(worker) => workers.push(worker),
                    Err(e) => results.failures.push(format!(
                        "{} {}: {} with {threads} threads: {e:#}",
                        entry.name,
                        entry.family.name(),
                        contestant.title
                    )),
                }
            }
        }
        results
            .rows
            .extend(measure(plan, entry, &mut workers, cores)?);
        if let Some(out) = &plan.out {
            let file = |extension: &str| PathBuf::from(format!("{}.{extension}", out.display()));
            std::fs::write(file("json"), serde_json::to_string_pretty(&results)?)?;
            std::fs::write(file("md"), markdown(&results))?;
        }
    }
    std::io::stdout().write_all(markdown(&results).as_bytes())?;
    Ok(())
}

fn ready(contestant: &Contestant, threads: usize, entry: &Entry) -> Result<Worker> {
    let mut worker = Worker::start(contestant, threads)?;
    match worker.prepare(&entry.case) {
        Readiness::Ready(_) => Ok(worker),
        Readiness::Unsupported => bail!("has no such op"),
        Readiness::Failed(why) => bail!(why),
    }
}

fn measure(
    plan: &LoadPlan<'_>,
    entry: &Entry,
    workers: &mut [Worker],
    cores: usize,
) -> Result<Vec<LoadTimes>> {
    let mut times = vec![(Vec::new(), Vec::new()); workers.len()];
    for _ in 0..plan.effort.rounds {
        for (i, (quiet, loaded)) in times.iter_mut().enumerate() {
            settle(workers);
            quiet.push(workers[i].run(1)?);
            let load = Load::start(plan.load)?;
            loaded.push(workers[i].run(1)?);
            drop(load);
        }
    }
    let tokens = entry.tokens.context("a case of a model")?;
    let rows = workers.iter().zip(times).map(|(worker, (quiet, loaded))| {
        let (quiet, loaded) = (Timing::of(quiet), Timing::of(loaded));
        LoadTimes {
            case: format!("{} {}", entry.name, entry.family.name()),
            contestant: worker.info.name.clone(),
            threads: worker.info.threads,
            tokens,
            share: quiet.median / loaded.median / left(worker.info.threads, cores, plan.load),
            quiet,
            loaded,
        }
    });
    Ok(rows.collect())
}

/// Fraction of the cores of `threads` threads that the load leaves.
fn left(threads: usize, cores: usize, load: usize) -> f64 {
    threads.min(cores - load) as f64 / threads as f64
}

fn markdown(results: &LoadResults) -> String {
    let mut page = format!(
        "# {}\n\n`{}`, {}\n\n",
        results.title, results.command, results.date
    );
    for (key, value) in &results.setting {
        let _ = writeln!(page, "- {key}: {value}");
    }
    let _ = write!(
        page,
        "- load: {} processes that compute without pause, on any core\n\n\
         The share is the speed under load by that on the quiet machine, divided by the part of its cores that is left \
         to the contestant; the goal for ours is {MIN_SHARE}. The last column is the speed under load by that of the same \
         contestant with one thread: more threads are meant not to be slower.\n\n\
         | case | contestant | threads | quiet | under load | share of the cores left | to one thread |\n\
         |---|---|---|---|---|---|---|\n",
        results.load
    );
    for row in &results.rows {
        let speed = |time: &Timing| format!("{:.1} tok/s", row.tokens as f64 / time.median);
        let one = results.rows.iter().find(|other| {
            (&other.case, &other.contestant, other.threads) == (&row.case, &row.contestant, 1)
        });
        let to_one = one.map_or("–".to_owned(), |one| {
            format!("{:.2}", one.loaded.median / row.loaded.median)
        });
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {:.2} | {to_one} |",
            row.case,
            row.contestant,
            row.threads,
            speed(&row.quiet),
            speed(&row.loaded),
            row.share
        );
    }
    for failure in &results.failures {
        let _ = write!(page, "\n- {failure}");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_not_slowed_by_load_on_other_cores() {
        assert_eq!(left(1, 2, 1), 1.0);
        assert_eq!(left(2, 2, 1), 0.5);
        assert_eq!(left(8, 8, 2), 0.75);
    }

    #[test]
    fn the_table_compares_all_threads_with_one() {
        let time = |seconds: f64| Timing::of(vec![seconds]);
        let row = |threads: usize, loaded: f64| LoadTimes {
            case: "q4_0 decode".to_owned(),
            contestant: "Bessemer".to_owned(),
            threads,
            tokens: 64,
            quiet: time(0.5),
            loaded: time(loaded),
            share: 0.5 / loaded / left(threads, 2, 1),
        };
        let results = LoadResults {
            title: "",
            command: String::new(),
            date: String::new(),
            setting: Vec::new(),
            load: 1,
            rows: vec![row(2, 0.8), row(1, 1.0)],
            failures: Vec::new(),
        };
        let page = markdown(&results);
        assert!(page.contains("| 2 | 128.0 tok/s | 80.0 tok/s | 1.25 | 1.25 |"));
        assert!(page.contains("| 1 | 128.0 tok/s | 64.0 tok/s | 0.50 | 1.00 |"));
    }
}
