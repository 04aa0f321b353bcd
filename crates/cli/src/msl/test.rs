//! `bessemer msl test`: kernel tests in TOML files.

mod compare;
mod execute;
mod file;
mod literal;
mod output;
mod plan;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueHint};

use self::plan::KernelTest;
use crate::args::count;
use crate::failure::{Outcome, Usage, exit_codes};
use crate::msl::baseline::{BaselineArgs, KnownReports};
use crate::msl::format::FormatArgs;
use crate::msl::parallel::{Progress, in_parallel, jobs};
use crate::msl::source;
use crate::terminal::{self, Out};

#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct TestArgs {
    /// Files of kernel tests, or directories of `.toml` files
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,
    /// Run only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Run N tests at the same time [default: one for each core, at least 2]
    #[arg(short, long, value_name = "N", value_parser = count)]
    jobs: Option<usize>,
    #[command(flatten)]
    baseline: BaselineArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

const EXAMPLES: &str = "\
Examples:
  bessemer msl test tests/add.toml
  bessemer msl test tests/ --filter softmax
  bessemer msl test tests/ --format github
  bessemer msl test tests/ --baseline known.json --update-baseline    accept the current reports

A test, in TOML; files are relative to the file of tests:
  source = \"add.metal\"

  [[test]]
  name = \"adds\"
  mode = [\"check\", \"fuzz\"]                  # default: check; also fast, isolated
  [test.buffers]
  a = \"iota:f32:4\"                          # or a file: as --buffer of `msl run`
  b = { dtype = \"f32\", values = [1, 2, 3, 4] }
  out = \"zeros:f32:4\"
  [[test.dispatch]]
  kernel = \"add\"
  grid = 4                                  # or threadgroups = [..] and threadgroup = [..]
  bind = { a = \"a\", b = \"b\", 2 = \"out\" }    # by the argument's name or index
  [test.expect]
  out = { values = [1, 3, 5, 7], abs = 1e-6 }

A dispatch also takes bytes, constants and threadgroup-memory; a test seeds, timeout-ms, expect-report and compile.";

/// Runs the command.
pub(crate) fn run(args: &TestArgs, out: &mut Out) -> Result<Outcome> {
    let start = Instant::now();
    let mut tests: Vec<KernelTest> = Vec::new();
    let mut mistakes = Vec::new();
    for path in source::expand(&args.files, "toml")? {
        match plan::read(&path) {
            Ok(read) => tests.extend(read),
            Err(error) => mistakes.push(terminal::error_text(&error)),
        }
    }
    if !mistakes.is_empty() {
        return Err(Usage::error(mistakes.join("\n")));
    }
    if let Some(filter) = &args.filter {
        tests.retain(|test| test.name.contains(filter));
        if tests.is_empty() {
            return Err(Usage::error(format!("no test name contains `{filter}`")));
        }
    }
    let known = KnownReports::load(&args.baseline)?;
    let progress = Progress::new("testing", tests.len());
    let tested = in_parallel(jobs(args.jobs), &tests, |test| {
        let tested = execute::execute(test, &known);
        progress.step(1);
        tested
    });
    drop(progress);
    let failures = tested.iter().flat_map(|tested| &tested.failures);
    let outcome = failures.map(execute::Failure::outcome).max();
    let outcome = outcome.unwrap_or(Outcome::Clean);
    let closing = output::closing(&tested, known.count());
    known.finish(args.filter.is_none() && outcome == Outcome::Clean)?;
    let time = start.elapsed();
    output::write(&tested, &closing, args.format.get(), outcome, time, out)?;
    Ok(outcome)
}
