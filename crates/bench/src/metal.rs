//! A Metal device against the CPU of the same machine: the claims of other Metal backends' documents, and the dominant
//! ops
//! of language models.
//!
//! One case measures each claimed number, on the device that the command runs on. Results are compared with the CPU's
//! before they are timed. On the software device this only tests that everything works; it says nothing about a GPU.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bessemer::{DType, Device, Tensor};
use clap::{Args, ValueEnum};

use crate::measure::{Work, interleaved};
use crate::report::{Comparison, Run, duration};

mod case;
mod model;
mod program;

/// Maximum number of rounds of a model.
const MAX_MODEL_ROUNDS: usize = 7;

/// Number of consecutive ops for the time of a launch in a batch.
const BATCH_LAUNCHES: usize = 100;

/// Options of the Metal suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Device to compare with the CPU.
    #[arg(long, value_enum, default_value_t = Target::Metal)]
    device: Target,
    /// Use small sizes: a smoke test of a few seconds.
    #[arg(long)]
    quick: bool,
    /// Language model to run [default: SmolLM2 if it was pulled, otherwise one with random weights].
    #[arg(long)]
    model: Option<PathBuf>,
    /// Also write the results as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Also write the results as Markdown.
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// The Apple GPU.
    Metal,
    /// The software Metal device.
    Soft,
}

/// Compares every case, and measures the absolute figures.
pub(crate) fn run(options: &Options, rounds: usize, command: String) -> Result<Run> {
    let device = match options.device {
        Target::Metal => Device::metal()
            .context("nothing to measure; `--device soft` measures the software device")?,
        Target::Soft => Device::software()?,
    };
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for case in case::all(options.quick)? {
        let (ours, cpu) = case.measure(&device, rounds)?;
        let (unit, amount) = case.rate;
        notes.push(format!(
            "{} {}: {:.1} {unit}",
            case.promise,
            case.name,
            amount / ours.median
        ));
        rows.push(Comparison {
            case: format!("{} {}", case.promise, case.name),
            ours,
            peer: Some(("CPU".to_owned(), cpu)),
            goal: case.goal,
        });
    }
    rows.push(program::measure(&device, rounds)?);
    let count = if options.quick { 1 << 16 } else { 1 << 26 };
    notes.push(program::bandwidth_share(&device, rounds, count)?);
    // A round of a model takes seconds.
    let model = model::ModelCase::of(options.model.as_deref(), options.quick)?;
    for (row, note) in model.measure(&device, rounds.min(MAX_MODEL_ROUNDS))? {
        rows.push(row);
        notes.push(note);
    }
    notes.extend(launches(&device, rounds)?);
    Ok(Run {
        title: "A Metal device against the CPU (A-30)".to_owned(),
        command,
        setting: vec![
            ("device".to_owned(), device.name().to_owned()),
            ("rounds".to_owned(), rounds.to_string()),
        ],
        rows,
        notes,
    })
}

/// The cost of a launch: alone with a wait, and in a batch of dependent launches.
fn launches(device: &Device, rounds: usize) -> Result<Vec<String>> {
    let one = device.scope(|| Tensor::full(8, 1.0_f32, DType::F32));
    one.eval()?;
    let once = |count: usize| -> Result<()> {
        let mut x = one.clone();
        for _ in 0..count {
            x = device.scope(|| -&x);
            // Otherwise they would be fused.
            x.eval()?;
        }
        device.synchronize()?;
        Ok(())
    };
    let mut contestants: [Work<'_>; 2] = [Box::new(|| once(1)), Box::new(|| once(BATCH_LAUNCHES))];
    let times = interleaved(rounds, &mut contestants)?;
    Ok(vec![
        format!(
            "C-15 an op of 8 elements, waited for: {} (the documents say 50 to 100 µs)",
            duration(times[0].median)
        ),
        format!(
            "C-15 one of {BATCH_LAUNCHES} such ops in a row: {}",
            duration(times[1].median / BATCH_LAUNCHES as f64)
        ),
    ])
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The names of all cases, so that a missing one is noticed. Their values were compared with the CPU's before they
    /// were
    /// timed.
    const CASES: [&str; 27] = [
        "C-13, C-17 add f32 of 1000",
        "C-13, C-17 add f32 of 10000",
        "C-14, C-16 matmul f32 64³",
        "B-29 product of a 256×256 f16 matrix with a vector",
        "B-29 softmax of 256 rows of 256",
        "E-20 vector_add f32 of 10000",
        "E-20 vector_mul f32 of 10000",
        "E-20 relu f32 of 10000",
        "E-20 gemm f32 256³",
        "B-30 negation of 65536 f32, read and written once",
        "decode product of a 40×256 f16 matrix with a vector",
        "decode product of a 40×256 bf16 matrix with a vector",
        "decode product of a 40×256 q4_0 matrix with a vector",
        "decode product of a 40×256 q4_1 matrix with a vector",
        "decode product of a 40×256 q5_0 matrix with a vector",
        "decode product of a 40×256 q5_1 matrix with a vector",
        "decode product of a 40×256 q8_0 matrix with a vector",
        "decode product of a 40×256 q2_k matrix with a vector",
        "decode product of a 40×256 q3_k matrix with a vector",
        "decode product of a 40×256 q4_k matrix with a vector",
        "decode product of a 40×256 q5_k matrix with a vector",
        "decode product of a 40×256 q6_k matrix with a vector",
        "decode attention of 1 over 80 positions, f16",
        "prefill attention of 40 over 40 positions, f16",
        "E-20 program vector_add f32 of 10000",
        "prefill made model, tiny, 9 tokens",
        "decode made model, tiny, 4 tokens",
    ];

    #[test]
    fn every_number_of_the_documents_is_measured() -> Result<()> {
        let options = Options {
            device: Target::Soft,
            quick: true,
            model: None,
            json: None,
            markdown: None,
        };
        let run = run(&options, 1, "test".to_owned())?;
        for row in &run.rows {
            let ratio = row.ratio().context("the CPU is always there")?;
            assert!(ratio.is_finite() && ratio > 0.0, "{}: {ratio}", row.case);
        }
        let measured: Vec<&str> = run.rows.iter().map(|row| &*row.case).collect();
        assert_eq!(measured, CASES);
        assert!(run.title.contains("A-30"), "{}", run.title);
        // The cost of a launch is not a ratio.
        let launches = run.notes.iter().filter(|n| n.starts_with("C-15"));
        assert_eq!(launches.count(), 2, "{:?}", run.notes);
        let shares = run.notes.iter().filter(|n| n.starts_with("E-21"));
        assert_eq!(shares.count(), 1, "{:?}", run.notes);
        let speeds = run.notes.iter().filter(|n| n.contains("tok/s"));
        assert_eq!(speeds.count(), 2, "{:?}", run.notes);
        Ok(())
    }

    #[test]
    fn wrong_results_are_not_timed() {
        assert!(case::agree(&[1.0, 2.0], &[1.0, 2.0], 0.0).is_ok());
        assert!(case::agree(&[1.0, 2.0], &[2.0, 1.0], 0.03).is_err());
        assert!(case::agree(&[1.0], &[1.0, 2.0], 1.0).is_err());
        assert!(case::agree(&[f32::NAN], &[1.0], 1.0).is_err());
        assert!(case::agree(&[0.0], &[0.0], 1.0).is_err());
    }
}
