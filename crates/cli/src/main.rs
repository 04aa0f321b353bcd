//! The `bessemer` command.
//!
//! Every subcommand is a file of its name. What a subcommand finds goes to standard output, what keeps
//! it from working to standard error, and the exit code says which it was: see [`failure::Outcome`].

mod answer;
mod args;
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
mod models;
mod msl;
mod perplexity;
mod pull;
mod quantize;
mod spec;
mod table;
mod terminal;
mod tune;

use args::{Cli, Command};
use clap::Parser as _;
use failure::Outcome;
use std::process::ExitCode;
use terminal::style;

fn main() -> ExitCode {
    let arguments = args::normalize(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; if nobody reads them, nothing is lost.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli.command) {
        Ok(outcome) => outcome.into(),
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::complain("error", style::ERROR, &terminal::told(&error));
            Outcome::of(&error).into()
        }
    }
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    interrupt::catch()?;
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
        Command::Cache(args) => cache::run(&args, &mut out),
    }
}
