//! Bessemer measured against its peers.
//!
//! Every figure is a ratio against a named peer in the same, interleaved run. A peer that is not
//! installed is reported as absent.

#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod opencl;
#[cfg(target_os = "linux")]
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
    /// Rounds; every contestant runs once in each.
    #[arg(long, default_value_t = 51, global = true)]
    rounds: usize,
    /// Also write the results as JSON.
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    /// Also write the results as Markdown.
    #[arg(long, global = true)]
    markdown: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// The software Metal device against PoCL (Debian package pocl-opencl-icd).
    Soft,
}

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    use std::io::Write as _;

    let arguments = Arguments::parse();
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let command = format!("cargo run --release -p bessemer-bench -- {command}");
    let run = match arguments.suite {
        Suite::Soft => soft::run(arguments.rounds, command)?,
    };
    std::io::stdout().write_all(run.markdown().as_bytes())?;
    if let Some(path) = arguments.json {
        std::fs::write(path, serde_json::to_string_pretty(&run)?)?;
    }
    if let Some(path) = arguments.markdown {
        std::fs::write(path, run.markdown())?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    let Arguments {
        suite: Suite::Soft, ..
    } = Arguments::parse();
    anyhow::bail!(
        "the software Metal device runs on Linux only, so there is nothing to compare here"
    )
}
