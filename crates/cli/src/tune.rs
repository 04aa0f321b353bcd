//! `bessemer tune`: measures which backend is fastest for each op.

use std::io::Write;

use anyhow::Result;
use bessemer::dispatch_table::OpClass;
use bessemer_compat::numrs::{self, Measurement};
use serde_json::json;

use crate::args::TuneArgs;
use crate::failure::Outcome;
use crate::terminal::{self, Out, style};

/// Runs the command.
pub(crate) fn run(args: &TuneArgs, out: &mut Out) -> Result<Outcome> {
    let mut measurements: Vec<Measurement> = Vec::new();
    let table = if args.show {
        numrs::dispatch_table()
    } else {
        numrs::tune(|measurement| {
            if !args.json {
                let quiet = style::QUIET;
                // A failed write must not stop the measurement.
                let _ = writeln!(
                    out,
                    "{quiet}{:<12}{quiet:#} {:>8} elements  {:<6} {:?}",
                    measurement.op.name(),
                    measurement.count,
                    measurement.backend,
                    measurement.time
                );
            }
            measurements.push(*measurement);
        })?
    };
    if args.json {
        let rows: Vec<_> = measurements
            .iter()
            .map(|m| {
                json!({
                    "op": m.op.name(),
                    "elements": m.count,
                    "backend": m.backend.name(),
                    "seconds": m.time.as_secs_f64(),
                })
            })
            .collect();
        let choices: Vec<_> = OpClass::ALL
            .iter()
            .flat_map(|op| numrs::TUNED_SIZES.map(|n| (op, n)))
            .map(|(op, n)| {
                let backend = table.choose(*op, n).name();
                json!({ "op": op.name(), "elements": n, "backend": backend })
            })
            .collect();
        let measured = table.is_measured();
        terminal::write_json(
            out,
            &json!({ "measured": measured, "measurements": rows, "choices": choices }),
        )?;
    } else {
        writeln!(out, "{}", numrs::startup_report())?;
        out.flush()?;
    }
    Ok(Outcome::Clean)
}
