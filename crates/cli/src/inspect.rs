//! `bessemer inspect`: the contents of a model file.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::file::{Format, Model, TensorInfo, Value};
use bessemer_llm::memory::{self, Estimate};
use bessemer_llm::pull;
use bessemer_llm::{Config, Tokenizer};
use clap::{Args, ValueHint};
use serde_json::json;

use crate::args::count;
use crate::failure::{Outcome, Usage};
use crate::table::Table;
use crate::terminal::{self, Out, bytes, counted, style};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// Model to inspect: a file, a directory or a name listed by `bessemer models`
    #[arg(value_name = "FILE|NAME", value_hint = ValueHint::AnyPath)]
    pub(crate) model: String,
    /// Context size that memory is estimated for [default: the model's own, at most 4096]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) context: Option<usize>,
    /// Estimate the memory of `generate --exact`
    #[arg(long)]
    pub(crate) exact: bool,
    /// Omit the tensors
    #[arg(long)]
    pub(crate) brief: bool,
    /// Write JSON, with all metadata in full except lists of more than 64 elements
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer inspect smollm2 --brief
  bessemer inspect model.gguf --context 8192
  bessemer inspect model.safetensors --json | jq '.memory.total'

A file with an unsupported architecture is shown as well, without an estimate.";

/// Resolves a path, or the name of a listed model.
pub(crate) fn locate(model: &str) -> Result<PathBuf> {
    let path = PathBuf::from(model);
    if path.exists() {
        return Ok(path);
    }
    let Some(listed) = pull::find(model) else {
        return Err(Usage::error(format!(
            "no file or listed model `{model}`; see `bessemer models`"
        )));
    };
    let models = pull::directory()?;
    match listed.state(&models) {
        pull::State::Ready => Ok(listed.path(&models)),
        _ => Err(Usage::error(format!(
            "{} has not been fetched: run `bessemer pull {}`",
            listed.name, listed.name
        ))),
    }
}

/// Default context size in tokens, unless the model's is smaller.
const DEFAULT_CONTEXT_TOKENS: usize = 4096;

/// Runs the command.
pub(crate) fn run(args: &InspectArgs, out: &mut Out) -> Result<Outcome> {
    let path = locate(&args.model)?;
    let model = Model::open(&path)?;
    let config = Config::of(&model);
    let context = args.context.or_else(|| {
        let own = config.as_ref().ok()?.context;
        Some(own.min(DEFAULT_CONTEXT_TOKENS))
    });
    let (cache, precision) = if args.exact {
        (CacheType::F32, Precision::Exact)
    } else {
        (CacheType::F16, Precision::Fast)
    };
    let estimate = match (&config, context) {
        (Ok(config), Some(context)) => {
            // Generation has the tokenizer in memory too.
            let tokenizer = Tokenizer::of(&model);
            let estimate = Estimate::of(&model, config, context, cache, precision);
            drop(tokenizer);
            Some(estimate)
        }
        _ => None,
    };
    let inspection = Inspection {
        model: &model,
        config: config.as_ref(),
        context: context.unwrap_or(0),
        cache,
        estimate,
    };
    if args.json {
        terminal::write_json(out, &inspection.json(args.brief))?
    } else {
        inspection.write(args.brief, out)?
    }
    out.flush()?;
    Ok(Outcome::Clean)
}

/// The contents of a model file.
struct Inspection<'a> {
    model: &'a Model,
    config: Result<&'a Config, &'a bessemer_llm::Error>,
    context: usize,
    cache: CacheType,
    estimate: Option<Estimate>,
}

fn size(count: u64) -> String {
    bytes(usize::try_from(count).unwrap_or(usize::MAX))
}

/// `134.5 M`
fn millions(count: usize) -> String {
    match count {
        n if n >= 1_000_000_000 => format!("{:.2} G", n as f64 / 1e9),
        n if n >= 1_000_000 => format!("{:.1} M", n as f64 / 1e6),
        n => n.to_string(),
    }
}

fn axes(shape: &[usize]) -> String {
    let axes: Vec<_> = shape.iter().map(ToString::to_string).collect();
    axes.join(" × ")
}

impl Inspection<'_> {
    /// Number of tensors, elements and bytes of each format.
    fn formats(&self) -> BTreeMap<&'static str, (usize, usize, u64)> {
        let mut all = BTreeMap::new();
        for tensor in self.model.tensors() {
            let (tensors, elements, bytes): &mut (usize, usize, u64) =
                all.entry(Format::name(tensor.format)).or_default();
            *tensors += 1;
            *elements += tensor.count();
            *bytes += tensor.bytes() as u64;
        }
        all
    }

    fn parameters(&self) -> usize {
        self.model.tensors().map(TensorInfo::count).sum()
    }

    fn write(&self, is_brief: bool, out: &mut Out) -> Result<()> {
        let (strong, quiet) = (style::STRONG, style::QUIET);
        let model = self.model;
        let container = model.container();
        let total = size(model.file_bytes());
        writeln!(
            out,
            "{strong}{}{strong:#}: {container}, {total}",
            model.path().display()
        )?;
        match self.config {
            Ok(config) => writeln!(
                out,
                "{}: {}, width {}, {} of {} with {} for keys and values, ffn {}, {}, context {}",
                config.architecture,
                counted(config.layers, "layer"),
                config.width,
                counted(config.heads, "head"),
                config.head_dim,
                config.kv_heads,
                config.ffn,
                counted(config.vocab, "token"),
                config.context
            )?,
            Err(error) => {
                let warning = style::WARNING;
                writeln!(out, "{warning}cannot be run{warning:#}: {error}")?;
            }
        }
        writeln!(out)?;
        let mut metadata = Table::new(["metadata", "value"]);
        for (key, value) in model.metadata().iter() {
            metadata.row([key.to_owned(), value.to_string()]);
        }
        metadata.write(out, strong)?;
        writeln!(out)?;
        if !is_brief {
            let mut tensors = Table::new(["tensor", "shape", "format", "size"]);
            for tensor in model.tensors() {
                tensors.row([
                    tensor.name.clone(),
                    axes(&tensor.shape),
                    tensor.format.to_string(),
                    bytes(tensor.bytes()),
                ]);
            }
            tensors.write(out, strong)?;
            writeln!(out)?;
        }
        let mut formats = Table::new(["format", "tensors", "elements", "size"]);
        for (format, (tensors, elements, bytes)) in self.formats() {
            formats.row([
                format.to_owned(),
                tensors.to_string(),
                millions(elements),
                size(bytes),
            ]);
        }
        formats.row([
            "all".to_owned(),
            model.tensors().len().to_string(),
            millions(self.parameters()),
            size(model.tensors().map(|t| t.bytes() as u64).sum()),
        ]);
        formats.write(out, strong)?;
        let Some(estimate) = self.estimate else {
            return Ok(());
        };
        writeln!(
            out,
            "\n{strong}memory at a context of {}{strong:#}",
            self.context
        )?;
        let lines = [
            ("weights, in the file".to_owned(), estimate.weights),
            ("weights, repacked".to_owned(), estimate.repacked),
            (
                format!("keys and values, {}", self.cache.name()),
                estimate.cache,
            ),
            ("scratch".to_owned(), estimate.scratch),
            ("program and tokenizer".to_owned(), estimate.program),
            ("total".to_owned(), estimate.total()),
        ];
        for (name, count) in lines {
            writeln!(out, "  {name:28} {:>10}", size(count))?;
        }
        if let Some(available) = memory::available() {
            let fits = if estimate.total() <= available {
                "fits"
            } else {
                "does not fit"
            };
            writeln!(
                out,
                "  {quiet}{} are available: {fits}{quiet:#}",
                size(available)
            )?;
        }
        Ok(())
    }

    fn json(&self, is_brief: bool) -> serde_json::Value {
        let metadata: serde_json::Map<_, _> = self
            .model
            .metadata()
            .iter()
            .map(|(key, value)| (key.to_owned(), to_json(value)))
            .collect();
        let tensor = |t: &TensorInfo| {
            json!({
                "name": t.name,
                "source": t.source,
                "shape": t.shape,
                "format": t.format.name(),
                "bytes": t.bytes(),
            })
        };
        let format = |(name, (tensors, elements, bytes)): (&str, (usize, usize, u64))| {
            let value = json!({ "tensors": tensors, "numbers": elements, "bytes": bytes });
            (name.to_owned(), value)
        };
        let formats: serde_json::Map<_, _> = self.formats().into_iter().map(format).collect();
        let mut value = json!({
            "path": self.model.path().display().to_string(),
            "container": self.model.container().to_string(),
            "file_bytes": self.model.file_bytes(),
            "parameters": self.parameters(),
            "metadata": metadata,
            "formats": formats,
        });
        if !is_brief {
            value["tensors"] = self.model.tensors().map(tensor).collect();
        }
        match self.config {
            Ok(config) => {
                value["config"] = json!({
                    "architecture": config.architecture.name(),
                    "layers": config.layers,
                    "width": config.width,
                    "ffn": config.ffn,
                    "heads": config.heads,
                    "kv_heads": config.kv_heads,
                    "head_dim": config.head_dim,
                    "vocab": config.vocab,
                    "context": config.context,
                    "sliding_window": config.sliding_window,
                    "tied_head": config.tied_head,
                });
            }
            Err(error) => value["error"] = error.to_string().into(),
        }
        if let Some(estimate) = self.estimate {
            value["memory"] = json!({
                "context": self.context,
                "weights": estimate.weights,
                "repacked": estimate.repacked,
                "cache": estimate.cache,
                "scratch": estimate.scratch,
                "program": estimate.program,
                "total": estimate.total(),
                "available": memory::available(),
            });
        }
        value
    }
}

/// Converts a value to JSON; long arrays are reduced to type and length.
fn to_json(value: &Value) -> serde_json::Value {
    const MAX_ARRAY_LEN: usize = 64;
    match value {
        Value::String(text) => json!(text),
        Value::Bool(value) => json!(value),
        Value::I8(_)
        | Value::I16(_)
        | Value::I32(_)
        | Value::I64(_)
        | Value::F32(_)
        | Value::F64(_) => match (value, value.number()) {
            (Value::I64(n), _) => json!(n),
            (Value::F32(n), _) => json!(n),
            (Value::F64(n), _) => json!(n),
            (_, Some(n)) => json!(n as i64),
            (_, None) => serde_json::Value::Null,
        },
        Value::Array(array) if array.len() > MAX_ARRAY_LEN => {
            json!({ "elements": array.element_name(), "length": array.len() })
        }
        Value::Array(array) => (0..array.len())
            .filter_map(|i| array.get(i))
            .map(|v| to_json(&v))
            .collect(),
        unsigned => json!(unsigned.natural()),
    }
}
