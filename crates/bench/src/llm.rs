//! Language models on the CPU against llama.cpp and candle.
//!
//! All contestants read the same files, prefill the same prompt and then decode the same tokens one by one, each with
//! its logits. There is no sampling: only the model is measured.

mod file;
mod interrupt;
pub(crate) mod load;
mod ours;
mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bench_protocol::{Case, Model, Op};
use bessemer_llm::file::Format;
use clap::Args;

use crate::ops::case::{Entry, Family};
use crate::ops::goal::{Verdict, verdict};
use crate::ops::result::{Results, Row};
use crate::ops::{self, Common, Plan, worker};
pub(crate) use ours::prepare;

/// Options of the language model suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// GGUF file of the llama architecture, or a name that `bessemer models` lists.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// Formats to convert its weights to; `0.5b-q4_k_m` and `1.5b-q4_k_m` are separate models, with random weights in
    /// the shapes of Qwen2.5.
    #[arg(long, value_delimiter = ',', default_values_t = FORMATS.map(str::to_owned))]
    formats: Vec<String>,
    /// Number of tokens of the prompt.
    #[arg(long, default_value_t = 256)]
    prompt: usize,
    /// Number of tokens to decode after the prompt.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Run only one of the two: prefill or decode.
    #[arg(long)]
    only: Option<String>,
    /// Run with and without N busy processes, and report the speed relative to the remaining cores.
    #[arg(long, value_name = "N", conflicts_with = "old")]
    load: Option<usize>,
    /// Measure how long prefill and decode continue after they are cancelled, as by Ctrl-C.
    #[arg(long, conflicts_with_all = ["load", "old"])]
    interrupt: bool,
    #[command(flatten)]
    common: Common,
}

/// Default formats. Rows of 576 weights, as in SmolLM2, are not multiples of 256: with them `q4_k` and `q6_k` are
/// mostly `q5_0` and `q8_0`, for all contestants. `+` pads the model with zeros, so that the formats match their names.
const FORMATS: [&str; 10] = [
    "q4_0",
    "q4_1",
    "q8_0",
    "f16",
    "q4_k",
    "q6_k",
    "q4_k+",
    "q6_k+",
    random::SHAPES[0].name,
    random::SHAPES[1].name,
];

/// Measures and reports.
pub(crate) fn run(options: &Options, rounds: Option<usize>, command: String) -> Result<()> {
    ensure!(
        options.prompt > 0 && options.tokens > 0,
        "--prompt and --tokens are at least one"
    );
    let source = file::locate(&options.model)?;
    let ids = file::tokens(&source, options.prompt + options.tokens)?;
    let (prompt, next) = ids.split_at(options.prompt);
    let mut entries = Vec::new();
    for name in &options.formats {
        let path = if options.common.list {
            source.clone()
        } else {
            cached_file(&source, name)?
        };
        let model = Model {
            path: path.to_string_lossy().into_owned(),
            prompt: prompt.to_vec(),
            next: next.to_vec(),
        };
        for (op, family) in [(Op::Prefill, Family::Prefill), (Op::Decode, Family::Decode)] {
            if options.only.as_ref().is_none_or(|o| o == family.name()) {
                entries.push(entry(op, family, name, &model, &path)?);
            }
        }
    }
    if options.interrupt && !options.common.list {
        let rounds = rounds.unwrap_or(21).max(1);
        let effort = options.common.effort(rounds, 120.0)?;
        let setting = ops::setting(effort, &[]);
        return interrupt::run(
            &entries,
            rounds,
            setting,
            options.common.out.clone(),
            command,
        );
    }
    if let Some(load) = options.load.filter(|_| !options.common.list) {
        let plan = load::LoadPlan {
            entries: &entries,
            contestants: options.common.selected(worker::of_models()?)?,
            load,
            effort: options.common.effort(rounds.unwrap_or(5), 120.0)?,
            out: options.common.out.clone(),
        };
        return load::run(&plan, command);
    }
    let plan = Plan {
        title: "Language models on the CPU against llama.cpp and candle",
        entries,
        contestants: worker::of_models()?,
        goals: verdicts,
        rounds: 7,
        budget: 120.0,
    };
    ops::measure(&plan, &options.common, rounds, command)
}

/// The file of a format name; see [`FORMATS`].
fn cached_file(source: &Path, name: &str) -> Result<PathBuf> {
    if let Some(shape) = random::SHAPES.iter().find(|s| s.name == name) {
        return shape.cached_file(source);
    }
    let (format, is_wide) = match name.strip_suffix('+') {
        Some(format) => (format, true),
        None => (name, false),
    };
    let format =
        Format::of_name(format).with_context(|| format!("`{name}` is not a weight format"))?;
    file::cached_file(source, format, is_wide)
}

fn entry(op: Op, family: Family, name: &str, model: &Model, path: &Path) -> Result<Entry> {
    let tokens = match op {
        Op::Prefill => model.prompt.len(),
        _ => model.next.len(),
    };
    let size = match op {
        Op::Prefill => format!("{tokens} tokens"),
        _ => format!("{tokens} tokens after {}", model.prompt.len()),
    };
    Ok(Entry {
        family,
        name: name.to_owned(),
        size,
        elements: tokens,
        bytes: std::fs::metadata(path)?.len() as usize,
        flops: None,
        tokens: Some(tokens),
        case: Case {
            op,
            inputs: Vec::new(),
            numbers: BTreeMap::new(),
            to: None,
            equation: None,
            model: Some(model.clone()),
        },
    })
}

/// The goals, as ratios within the run.
fn verdicts(results: &Results) -> Vec<Verdict> {
    let peer = |name: &str| results.contestants.iter().position(|c| c.name == name);
    let mut verdicts = Vec::new();
    for (name, bound) in [("llama.cpp", 1.2), ("candle", 2.0)] {
        for family in [Family::Prefill, Family::Decode] {
            let rows: Vec<&Row> = results.rows.iter().filter(|r| r.family == family).collect();
            let peer = peer(name);
            verdicts.push(verdict(
                &format!("{}, to {name}", family.name()),
                bound,
                &rows,
                |row| row.ratio(peer?),
            ));
        }
    }
    let exact = peer(worker::EXACT);
    let decode: Vec<&Row> = results
        .rows
        .iter()
        .filter(|r| r.family == Family::Decode)
        .collect();
    verdicts.push(verdict(
        "decode with --exact, to decode without",
        1.0 / 3.0,
        &decode,
        |row| Some(1.0 / row.ratio(exact?)?),
    ));
    verdicts
}
