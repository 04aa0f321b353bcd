//! `bessemer embed`: text embeddings.

use std::io::Write;

use anyhow::Result;
use bessemer_llm::{Encoder, Tokenizer};
use clap::Args;
use serde_json::json;

use crate::args::count;
use crate::failure::{Outcome, Usage};
use crate::language::{self, DeviceArg, ModelArgs};
use crate::terminal::{self, Out};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct EmbedArgs {
    /// Texts to embed
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) texts: Vec<String>,
    /// Encoder to use: a file, a directory or a name listed by `bessemer models`, which is pulled on first use
    #[arg(short, long, value_name = "PATH|NAME", default_value = "minilm")]
    pub(crate) model: String,
    /// Device to run on
    #[arg(long, value_enum, default_value_t = DeviceArg::Auto)]
    pub(crate) device: DeviceArg,
    /// Threads to use [default: all cores]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
    /// Print pairwise cosine similarities instead of the vectors; with --json, both
    #[arg(long)]
    pub(crate) similarity: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer embed \"That is a happy person\"
  bessemer embed --similarity \"a happy dog\" \"a cheerful puppy\" \"interest rates\"
  bessemer embed --json \"a text\" | jq '.vectors[0] | length'";

/// Runs the command.
pub(crate) fn run(args: &EmbedArgs, out: &mut Out) -> Result<Outcome> {
    let model = ModelArgs::of(&args.model, args.device, args.threads);
    let device = model.device()?;
    let file = model.open()?;
    let encoder = Encoder::on(&device, &file)?;
    let tokenizer = Tokenizer::of(&file)?;
    let mut ids = Vec::new();
    let mut vectors = Vec::new();
    for text in &args.texts {
        let tokens = tokenizer.encode(text, true)?;
        if tokens.len() > encoder.config().context {
            return Err(Usage::error(format!(
                "a text has {} tokens; the model's limit is {}",
                tokens.len(),
                encoder.config().context
            )));
        }
        vectors.push(encoder.embed(&tokens)?);
        ids.push(tokens);
    }
    let similarity = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let table: Vec<Vec<f32>> = if args.similarity {
        vectors
            .iter()
            .map(|a| vectors.iter().map(|b| similarity(a, b)).collect())
            .collect()
    } else {
        Vec::new()
    };
    if args.json {
        let mut object = json!({
            "model": args.model,
            "device": language::short_name(&device),
            "ids": ids,
            "vectors": vectors,
        });
        if args.similarity {
            object["similarity"] = json!(table);
        }
        terminal::write_json(out, &object)?;
        return Ok(Outcome::Clean);
    }
    for row in if args.similarity { &table } else { &vectors } {
        let digits = if args.similarity { 4 } else { 7 };
        let row: Vec<_> = row.iter().map(|v| format!("{v:.digits$}")).collect();
        writeln!(out, "{}", row.join(" "))?;
    }
    out.flush()?;
    Ok(Outcome::Clean)
}
