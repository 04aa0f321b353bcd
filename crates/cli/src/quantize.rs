//! `bessemer quantize`: converts the weights of a model to another format.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use bessemer_llm::file::{Format, GgufWriter, Model};
use bessemer_llm::quantize::{self, TensorReport};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::{Outcome, Usage};
use crate::inspect::locate;
use crate::interrupt;
use crate::table::Table;
use crate::terminal::{self, Out, bytes, style};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct QuantizeArgs {
    /// Model to convert: a GGUF file, a safetensors file or directory, or a name listed by `bessemer models`
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    pub(crate) from: String,
    /// GGUF file to write
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Target format: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k or q6_k
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub(crate) to: Format,
    /// Convert the embedding and the output matrix too; otherwise they get at least q6_k
    #[arg(long)]
    pub(crate) pure: bool,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer quantize model-f16.gguf model-q4_k.gguf --to q4_k
  bessemer quantize path/to/llama/ llama-q4_k.gguf --to q4_k
  bessemer quantize smollm2 smollm2-q8_0.gguf --to q8_0 --json | jq '.tensors[].relative_error'

Vectors are not converted. If rows are not a multiple of the block length, a format with smaller blocks and more
bits is used: q5_0 for q4_k, q5_1 for q5_k, q8_0 for q6_k, q4_0 for q2_k and q3_k, and otherwise f16. The error of
a tensor is the root mean square of the differences, divided by that of the weights; weights that are already
quantised only lose precision.

safetensors need their config.json and tokenizer.json. The tokenizer is stored in the file unchanged: Bessemer
reads it there; programs that support only GGUF's own vocabularies do not.";

fn format(text: &str) -> Result<Format, String> {
    let found = quantize::targets().find(|f| f.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| {
        let names: Vec<_> = quantize::targets().map(Format::name).collect();
        format!("known formats are {}", names.join(", "))
    })
}

/// Runs the command.
pub(crate) fn run(args: &QuantizeArgs, out: &mut Out) -> Result<Outcome> {
    let path = locate(&args.from)?;
    if args.out.exists() && !args.force {
        return Err(Usage::error(format!(
            "{} already exists; use --force to overwrite it",
            args.out.display()
        )));
    }
    let model = Model::open(&path)?;
    let bar = ProgressBar::new(model.tensors().map(|t| t.bytes() as u64).sum());
    let template = "{bar:30} {bytes:>11} of {total_bytes:11} {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template)?.progress_chars("━╸ "));
    let mut reports = Vec::new();
    let partial = GgufWriter::temporary_path(&args.out).into_iter().collect();
    let done = interrupt::removing(partial, || {
        quantize::quantize(&model, &args.out, args.to, args.pure, |report| {
            bar.inc(report.bytes_before as u64);
            bar.set_message(report.name.clone());
            reports.push(report);
        })
    });
    bar.finish_and_clear();
    done?;
    if args.json {
        terminal::write_json(out, &to_json(args, &reports))?
    } else {
        write(args, &reports, out)?
    }
    out.flush()?;
    Ok(Outcome::Clean)
}

fn write(args: &QuantizeArgs, reports: &[TensorReport], out: &mut Out) -> Result<()> {
    let mut table = Table::new(["tensor", "from", "to", "size", "error", "largest"]);
    for report in reports {
        let (relative, largest) = match report.error {
            Some(error) => (
                format!("{:.3} %", error.relative * 100.0),
                format!("{:.2e}", error.largest),
            ),
            None => (String::new(), String::new()),
        };
        table.row([
            report.name.clone(),
            report.from.to_string(),
            report.to.to_string(),
            bytes(report.bytes_after),
            relative,
            largest,
        ]);
    }
    table.write(out, style::STRONG)?;
    let (before, after) = totals(reports);
    let ratio = after as f64 / before.max(1) as f64 * 100.0;
    writeln!(
        out,
        "{}: {} of weights, {ratio:.1} % of the original {}",
        args.out.display(),
        bytes(after),
        bytes(before),
    )?;
    if let Some(worst) = worst(reports) {
        let error = worst.error.unwrap_or_default().relative * 100.0;
        writeln!(out, "largest error: {error:.3} % in {}", worst.name)?;
    }
    Ok(())
}

fn totals(reports: &[TensorReport]) -> (usize, usize) {
    let before = reports.iter().map(|r| r.bytes_before).sum();
    (before, reports.iter().map(|r| r.bytes_after).sum())
}

fn worst(reports: &[TensorReport]) -> Option<&TensorReport> {
    let error = |r: &TensorReport| r.error.map_or(0.0, |e| e.relative);
    let worst = reports.iter().max_by(|a, b| error(a).total_cmp(&error(b)));
    worst.filter(|r| r.error.is_some())
}

fn to_json(args: &QuantizeArgs, reports: &[TensorReport]) -> serde_json::Value {
    let entry = |report: &TensorReport| {
        json!({
            "name": report.name,
            "shape": report.shape,
            "from": report.from.name(),
            "to": report.to.name(),
            "bytes_before": report.bytes_before,
            "bytes": report.bytes_after,
            "relative_error": report.error.map(|e| e.relative),
            "largest_error": report.error.map(|e| e.largest),
        })
    };
    let (before, after) = totals(reports);
    let tensors: Vec<_> = reports.iter().map(entry).collect();
    json!({
        "path": args.out.display().to_string(),
        "to": args.to.name(),
        "bytes_before": before,
        "bytes": after,
        "tensors": tensors,
    })
}
