//! Bessemer measured against its peers.
//!
//! Every figure is a ratio against a named peer in the same, interleaved run. A peer that is not
//! installed is reported as absent.

mod llm;
#[cfg_attr(
    not(any(target_os = "linux", test)),
    expect(
        dead_code,
        reason = "part of it is for the suite of the software device"
    )
)]
mod measure;
#[cfg(target_os = "linux")]
mod opencl;
mod ops;
#[cfg_attr(
    not(target_os = "linux"),
    expect(
        dead_code,
        reason = "part of it is for the suite of the software device"
    )
)]
mod report;
#[cfg(target_os = "linux")]
mod soft;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measures Bessemer against its peers, interleaved in one run, as ratios.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
    /// Rounds; every contestant runs once in each [default: 51, of the ops 21, of models 7].
    #[arg(long, global = true)]
    rounds: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// The software Metal device against PoCL (Debian package pocl-opencl-icd).
    Soft {
        /// Also write the results as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Also write the results as Markdown.
        #[arg(long)]
        markdown: Option<PathBuf>,
    },
    /// The CPU engine's ops against NumPy, candle, ndarray, JAX and MLX (scripts/bench-peers).
    Ops(ops::Options),
    /// Language models on the CPU against llama.cpp and candle (scripts/bench-peers).
    Llm(llm::Options),
    /// Our side of `ops` and `llm`: answers requests on the standard input.
    #[command(hide = true)]
    Worker,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let command = format!("cargo run --release -p bessemer-bench -- {command}");
    match arguments.suite {
        Suite::Soft { json, markdown } => {
            software_metal(arguments.rounds.unwrap_or(51), command, json, markdown)
        }
        Suite::Ops(options) => ops::run(&options, arguments.rounds, command),
        Suite::Llm(options) => llm::run(&options, arguments.rounds, command),
        Suite::Worker => ops::serve(),
    }
}

#[cfg(target_os = "linux")]
fn software_metal(
    rounds: usize,
    command: String,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
) -> anyhow::Result<()> {
    use std::io::Write as _;

    let run = soft::run(rounds, command)?;
    std::io::stdout().write_all(run.markdown().as_bytes())?;
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_string_pretty(&run)?)?;
    }
    if let Some(path) = markdown {
        std::fs::write(path, run.markdown())?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn software_metal(
    _rounds: usize,
    _command: String,
    _json: Option<PathBuf>,
    _markdown: Option<PathBuf>,
) -> anyhow::Result<()> {
    anyhow::bail!(
        "the software Metal device runs on Linux only, so there is nothing to compare here"
    )
}
