//! Benchmarks of Bessemer against its peers.
//!
//! Every figure is a ratio against a named peer in the same, interleaved run. A peer that is not
//! installed is reported as absent.

mod llm;
mod measure;
mod metal;
#[cfg(target_os = "linux")]
mod opencl;
mod ops;
mod pool;
mod program;
mod replay;
mod report;
#[cfg(target_os = "linux")]
mod soft;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Measure Bessemer against its peers, interleaved in one run, as ratios.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
    /// Number of rounds; every contestant runs once per round [default: 51, for ops 21, for models 7].
    #[arg(long, global = true)]
    rounds: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Compare the software Metal device with PoCL (Debian package pocl-opencl-icd).
    Soft {
        /// Also write the results as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Also write the results as Markdown.
        #[arg(long)]
        markdown: Option<PathBuf>,
    },
    /// Compare the CPU engine's ops with NumPy, candle, ndarray, JAX and MLX (scripts/bench-peers).
    Ops(ops::Options),
    /// Compare language models on the CPU with llama.cpp and candle (scripts/bench-peers).
    Llm(llm::Options),
    /// Compare a Metal device with the CPU of the same machine: ops, launches, bandwidth.
    Metal(metal::Options),
    /// Compare the engine's thread pool with rayon's, on an idle and on a busy machine.
    Pool(pool::Options),
    /// Compare replays of compiled functions with evaluations: host time per launch, small functions on the CPU.
    Replay(replay::Options),
    /// Compare programs on the CPU with the same chain of tensor ops and with the interpreter.
    Program(program::Options),
    /// Run our side of `ops` and `llm`: answer requests on standard input.
    #[command(hide = true)]
    Worker {
        /// Run language models as with `--exact`.
        #[arg(long)]
        exact: bool,
    },
    /// Run the load of `llm --load`: compute until the parent process ends.
    #[command(hide = true)]
    Busy,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let command = format!("cargo run --release -p bessemer-bench -- {command}");
    match arguments.suite {
        Suite::Soft { json, markdown } => {
            let run = software_metal(arguments.rounds.unwrap_or(51), command)?;
            publish(&run, json, markdown)
        }
        Suite::Metal(options) => {
            let run = metal::run(&options, arguments.rounds.unwrap_or(51), command)?;
            publish(&run, options.json, options.markdown)
        }
        Suite::Replay(options) => {
            let run = replay::run(arguments.rounds.unwrap_or(51), command)?;
            publish(&run, options.json, options.markdown)
        }
        Suite::Ops(options) => ops::run(&options, arguments.rounds, command),
        Suite::Llm(options) => llm::run(&options, arguments.rounds, command),
        Suite::Pool(options) => pool::run(&options, arguments.rounds.unwrap_or(51), &command),
        Suite::Program(options) => program::run(&options, arguments.rounds.unwrap_or(51), &command),
        Suite::Worker { exact } => ops::serve(exact),
        Suite::Busy => llm::load::busy(),
    }
}

#[cfg(target_os = "linux")]
fn software_metal(rounds: usize, command: String) -> anyhow::Result<report::Run> {
    soft::run(rounds, command)
}

#[cfg(not(target_os = "linux"))]
fn software_metal(_rounds: usize, _command: String) -> anyhow::Result<report::Run> {
    anyhow::bail!(
        "the software Metal device runs on Linux only, so there is nothing to compare here"
    )
}

/// Prints a run, and writes it to the requested files.
fn publish(
    run: &report::Run,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
) -> anyhow::Result<()> {
    use std::io::Write as _;

    std::io::stdout().write_all(run.markdown().as_bytes())?;
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_string_pretty(run)?)?;
    }
    if let Some(path) = markdown {
        std::fs::write(path, run.markdown())?;
    }
    Ok(())
}
