//! The `bessemer` command.
//!
//! Every subcommand is in a file of its name. Results are written to standard output, errors to standard error, and the
//! exit code tells them apart: see [`failure::Outcome`].

mod answer;
mod args;
mod array;
mod cache;
mod chat;
mod devices;
mod dtype;
mod embed;
mod excerpt;
mod failure;
mod generate;
mod host;
mod inspect;
mod interrupt;
mod language;
#[cfg(feature = "tracing")]
mod log;
mod models;
mod msl;
mod perplexity;
mod program;
mod pull;
mod quantize;
mod spec;
mod table;
mod terminal;
mod tune;

use std::process::ExitCode;

#[cfg(not(feature = "tracing"))]
use bessemer_hal::env;
use clap::Parser as _;

use self::args::{Cli, Command};
use self::failure::Outcome;
use self::terminal::style;

fn main() -> ExitCode {
    let arguments = args::normalize(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors; a closed output does not matter.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    #[cfg(feature = "tracing")]
    let started = log::start(cli.log.as_deref());
    #[cfg(not(feature = "tracing"))]
    let started = expect_no_log();
    match started.and_then(|()| run(cli.command)) {
        Ok(outcome) => outcome.into(),
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::write_message("error", style::ERROR, &terminal::error_text(&error));
            Outcome::of(&error).into()
        }
    }
}

/// Warns about a variable that this build cannot follow.
#[cfg(not(feature = "tracing"))]
fn expect_no_log() -> anyhow::Result<()> {
    if let Some(filter) = env::LOG.text()? {
        let note = format!(
            "BESSEMER_LOG is `{filter}`, but this program was built without the feature `tracing`"
        );
        terminal::write_message("warning", style::WARNING, &note);
    }
    Ok(())
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    interrupt::catch()?;
    // Kernel commands use the device layer alone, which checks its own variables.
    if !matches!(command, Command::Msl(_)) {
        bessemer::env::check()?;
    }
    let mut out = terminal::stdout();
    match command {
        Command::Generate(args) => generate::run(&args, &mut out),
        Command::Chat(args) => chat::run(&args, &mut out),
        Command::Embed(args) => embed::run(&args, &mut out),
        Command::Perplexity(args) => perplexity::run(&args, &mut out),
        Command::Pull(args) => pull::run(&args, &mut out),
        Command::Models(args) => models::run(&args, &mut out),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::Quantize(args) => quantize::run(&args, &mut out),
        Command::Devices(args) => devices::run(&args, &mut out),
        Command::Tune(args) => tune::run(&args, &mut out),
        Command::Msl(command) => msl::run(&command, &mut out),
        Command::Program(command) => program::run(&command, &mut out),
        Command::Cache(args) => cache::run(&args, &mut out),
    }
}
