//! Every op of the engine against NumPy, candle, ndarray, JAX and MLX on the CPU.

pub(crate) mod case;
mod compare;
pub(crate) mod goal;
mod markdown;
mod ours;
mod page;
mod plot;
pub(crate) mod result;
pub(crate) mod round;
mod table;
pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bessemer::simd::{self, Level};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use self::result::{Absent, Participant, Results, Statistic};
use self::worker::{Contestant, Worker};

/// Options of the ops suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only these ops or families (unary, binary, matmul, softmax, …).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measure only these sizes: 1K, 10K, 1M, 16M, or a shape as the table names it.
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Options common to the suites.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Compare only with these peers, by their names in lower case.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Also measure these SIMD levels, as further contestants: scalar, avx2, avx512 or neon.
    #[arg(long, value_delimiter = ',', value_parser = level)]
    simd: Vec<Level>,
    /// Number of threads of every contestant [default: all cores].
    #[arg(long)]
    threads: Option<usize>,
    /// Seconds per case; rounds beyond the fifth are skipped once they are spent [default: 4, for models 120].
    #[arg(long)]
    budget: Option<f64>,
    /// Compare minimum times instead of medians: for busy machines, not for reports.
    #[arg(long)]
    least: bool,
    /// Write OUT.json, OUT.md and OUT.html, again after every case.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Compare with an older build of this program instead of the peers, and fail if a case stays below 0.97
    /// of its speed (scripts/bench-compare).
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["peers", "simd", "out", "build_peers"])]
    old: Option<PathBuf>,
    /// First build the peers that are crates.
    #[arg(long)]
    build_peers: bool,
    /// List the cases and exit.
    #[arg(long)]
    pub(crate) list: bool,
}

impl Common {
    /// Filters the contestants: ours, and the selected peers.
    pub(crate) fn selected(&self, mut contestants: Vec<Contestant>) -> Result<Vec<Contestant>> {
        let keys: Vec<&str> = contestants.iter().map(|c| c.key).collect();
        for peer in &self.peers {
            ensure!(
                peer == "none" || keys.contains(&peer.as_str()),
                "--peers {peer}: unknown peer; one of {} or none",
                keys[1..].join(", ")
            );
        }
        contestants.retain(|c| {
            c.key == "bessemer" || self.peers.is_empty() || self.peers.iter().any(|p| p == c.key)
        });
        Ok(contestants)
    }

    /// The measurement effort, with these defaults.
    pub(crate) fn effort(&self, rounds: usize, budget: f64) -> Result<round::Effort> {
        let cores = std::thread::available_parallelism()?.get();
        Ok(round::Effort {
            rounds: rounds.max(1),
            budget: Duration::try_from_secs_f64(self.budget.unwrap_or(budget))
                .context("--budget")?,
            threads: self.threads.unwrap_or(cores).clamp(1, cores),
            statistic: if self.least {
                Statistic::Least
            } else {
                Statistic::Median
            },
        })
    }
}

/// A suite's cases, contestants and goals.
pub(crate) struct Plan {
    /// The headline.
    pub(crate) title: &'static str,
    pub(crate) entries: Vec<case::Entry>,
    /// Ours first.
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) goals: fn(&Results) -> Vec<goal::Verdict>,
    /// Default number of rounds, and of seconds per case.
    pub(crate) rounds: usize,
    pub(crate) budget: f64,
}

/// Answers requests as our contestant.
pub(crate) fn serve(exact: bool) -> Result<()> {
    let mut engine = ours::Ours { exact };
    bench_protocol::serve(&mut engine, std::io::stdin().lock(), std::io::stdout())?;
    Ok(())
}

/// Measures and reports the ops.
pub(crate) fn run(options: &Options, rounds: Option<usize>, command: String) -> Result<()> {
    let plan = Plan {
        title: "The CPU engine against NumPy, candle, ndarray, JAX and MLX",
        entries: case::selected(&options.only, &options.sizes),
        contestants: worker::of_ops()?,
        goals: goal::verdicts,
        rounds: 21,
        budget: 4.0,
    };
    measure(&plan, &options.common, rounds, command)
}

/// Measures and reports.
pub(crate) fn measure(
    plan: &Plan,
    options: &Common,
    rounds: Option<usize>,
    command: String,
) -> Result<()> {
    let entries = &plan.entries;
    ensure!(
        !entries.is_empty(),
        "no case has such a name and size; see --list"
    );
    if options.list {
        return table::list(entries);
    }
    if options.build_peers {
        worker::build_peers()?;
    }
    let effort = options.effort(rounds.unwrap_or(plan.rounds), plan.budget)?;
    if let Some(old) = &options.old {
        return compare::run(entries, old, effort);
    }
    let mut contestants = plan.contestants.clone();
    let mut levels = options.simd.clone();
    levels.sort();
    levels.dedup();
    for &level in &levels {
        contestants.push(worker::at_level(level)?);
    }
    let (mut workers, absent) = start(&options.selected(contestants)?, effort.threads)?;
    let bar = ProgressBar::new(entries.len() as u64).with_style(ProgressStyle::with_template(
        "{pos}/{len} {bar:30} {elapsed_precise}, left {eta} {msg}",
    )?);
    let mut results = Results {
        title: plan.title,
        command,
        date: date(),
        statistic: effort.statistic,
        setting: setting(effort, &levels),
        contestants: workers
            .iter()
            .map(|w| Participant {
                name: w.info.name.clone(),
                version: w.info.version.clone(),
                threads: w.info.threads,
            })
            .collect(),
        absent,
        rows: Vec::new(),
        goals: Vec::new(),
    };
    for entry in entries {
        bar.set_message(format!("{} {}", entry.name, entry.size));
        results
            .rows
            .push(round::measure(entry, &mut workers, effort));
        bar.inc(1);
        // After every case, so that an interrupted run keeps its results.
        if let Some(out) = &options.out {
            results.goals = goals(plan, &results);
            write(&results, out)?;
        }
    }
    bar.finish_and_clear();
    results.goals = goals(plan, &results);
    table::print(&results)
}

fn goals(plan: &Plan, results: &Results) -> Vec<goal::Verdict> {
    let mut goals = (plan.goals)(results);
    goals.extend(goal::of_levels(results));
    goals
}

/// Parses the name of a SIMD level.
fn level(name: &str) -> Result<Level, String> {
    Level::ALL
        .into_iter()
        .find(|l| l.name() == name)
        .ok_or_else(|| {
            let names = Level::ALL.map(Level::name).join(", ");
            format!("not a SIMD level; one of {names}")
        })
}

fn start(contestants: &[Contestant], threads: usize) -> Result<(Vec<Worker>, Vec<Absent>)> {
    let (mut workers, mut absent) = (Vec::new(), Vec::new());
    for contestant in contestants {
        let ours = contestant.install.is_empty();
        match Worker::start(contestant, threads) {
            Ok(worker) => workers.push(worker),
            Err(e) if ours => return Err(e).context("our own worker does not start"),
            Err(e) => absent.push(Absent {
                name: contestant.name(),
                why: format!("{e:#}"),
                install: contestant.install.to_owned(),
            }),
        }
    }
    Ok((workers, absent))
}

fn write(results: &Results, out: &Path) -> Result<()> {
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Not `with_extension`: the prefix may contain a dot.
    let file = |extension: &str| PathBuf::from(format!("{}.{extension}", out.display()));
    std::fs::write(file("json"), serde_json::to_string_pretty(results)?)?;
    std::fs::write(file("md"), markdown::page(results))?;
    std::fs::write(file("html"), page::page(results))?;
    Ok(())
}

pub(crate) fn setting(effort: round::Effort, levels: &[Level]) -> Vec<(String, String)> {
    let pair = |key: &str, value: String| (key.to_owned(), value);
    let mut measured = vec![simd::level()];
    measured.extend(levels.iter().filter(|l| l.is_available()));
    measured.sort();
    measured.dedup();
    let measured: Vec<_> = measured.into_iter().map(Level::name).collect();
    vec![
        pair("processor", processor()),
        pair(
            "instruction sets of the processor",
            simd::detected().join(", "),
        ),
        pair("instruction sets measured", measured.join(", ")),
        pair("SIMD of ours", simd::level().name().to_owned()),
        pair("system", output("uname", &["-srm"])),
        pair("threads of every contestant", effort.threads.to_string()),
        pair(
            "rounds",
            format!(
                "{} at most, {} s a case",
                effort.rounds,
                effort.budget.as_secs_f64()
            ),
        ),
        pair("compiler", output("rustc", &["--version"])),
    ]
}

pub(crate) fn processor() -> String {
    let linux = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let name = linux.unwrap_or_else(|| output("sysctl", &["-n", "machdep.cpu.brand_string"]));
    format!("{name}, {cores} cores")
}

pub(crate) fn date() -> String {
    output("date", &["-u", "+%Y-%m-%d"])
}

/// The output of a command; a question mark if the command does not exist.
fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .and_then(|o| String::from_utf8(o.stdout).ok())
        .map_or("?".to_owned(), |text| text.trim().to_owned())
}
