//! `bessemer program verify`: which executors accept a program.

use std::io::Write as _;

use anyhow::Result;
use bessemer::Device;
use bessemer::program::ProgramError;
use bessemer_hal::Size;
use serde_json::json;

use super::ProgramVerifyArgs;
use super::file::{Problem, ProgramFile};
use crate::failure::Outcome;
use crate::msl::format::write_json;
use crate::terminal::{Out, style};

/// What an executor says about a program.
struct Verdict {
    executor: &'static str,
    /// Why it refuses the program.
    problem: Option<Problem>,
}

/// Runs the command.
pub(super) fn run(args: &ProgramVerifyArgs, out: &mut Out) -> Result<Outcome> {
    let file = ProgramFile::read(&args.file)?;
    let params = args.launch.params(Size::x(1))?;
    let compiled = file.program.compile(&Device::cpu());
    let msl = compiled.as_ref().map(|compiled| compiled.msl(&params));
    let verdict = |executor, error: Option<&ProgramError>| Verdict {
        executor,
        problem: error.map(|e| file.problem(e)),
    };
    let verdicts = [
        verdict("interpreter", file.program.validate().err().as_ref()),
        verdict("cpu", compiled.as_ref().err()),
        verdict(
            "metal",
            msl.as_ref()
                .map_or_else(|e| Some(*e), |msl| msl.as_ref().err()),
        ),
    ];
    let outcome = if verdicts.iter().all(|v| v.problem.is_none()) {
        Outcome::Clean
    } else {
        Outcome::NotCompiled
    };
    if args.json {
        let executors: Vec<_> = verdicts
            .iter()
            .map(|v| {
                json!({
                    "name": v.executor,
                    "accepted": v.problem.is_none(),
                    "problem": v.problem.as_ref().map(Problem::to_json),
                })
            })
            .collect();
        let value = json!({
            "file": file.name(),
            "instructions": file.program.len(),
            "executors": executors,
        });
        write_json(out, value, outcome)?;
        return Ok(outcome);
    }
    for verdict in &verdicts {
        match &verdict.problem {
            None => {
                let colour = style::GOOD;
                writeln!(out, "{}: {colour}accepted{colour:#}", verdict.executor)?;
            }
            Some(problem) => {
                let colour = style::ERROR;
                writeln!(out, "{}: {colour}refused{colour:#}", verdict.executor)?;
                file.write(out, "error", problem)?;
            }
        }
    }
    out.flush()?;
    Ok(outcome)
}
