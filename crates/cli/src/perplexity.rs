//! `bessemer perplexity`: how well a model foretells a text.

use crate::failure::{Outcome, Usage};
use crate::language::ModelArgs;
use crate::terminal::{self, Out};
use anyhow::{Context as _, Result};
use bessemer_llm::perplexity::{self, Options};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PerplexityArgs {
    /// The text
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer perplexity book.txt
  bessemer perplexity book.txt --exact
  bessemer perplexity book.txt --model small-q4_k.gguf --json | jq .perplexity

A text longer than the context (--context, 512 tokens unless the model's own is shorter) is taken in windows
that overlap by a half: all tokens of the first one count, and of the others the second half. So every
token counts once, and numbers are a little lower than those of programs whose windows do not overlap.";

/// Tokens of a window.
const WINDOW: usize = 512;

/// Runs the command.
pub(crate) fn run(args: &PerplexityArgs, out: &mut Out) -> Result<Outcome> {
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| Usage::context(args.file.display().to_string()))?;
    let loaded = args.model.load_for(WINDOW)?;
    let tokenizer = &loaded.tokenizer;
    let tokens = tokenizer.encode(&text, true)?;
    if tokens.len() < 2 {
        return Err(Usage::error("the text has less than two tokens"));
    }
    let bar = ProgressBar::new(tokens.len() as u64 - 1);
    let template = "{bar:30} {pos:>7} of {len} tokens, {eta} left {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template)?.progress_chars("━╸ "));
    let transformer = loaded.session.transformer();
    let options = Options {
        window: transformer.context().min(tokens.len().max(4)),
        begin: tokenizer.bos().filter(|&bos| tokens[0] == bos),
        cache: loaded.session.cache().kind(),
    };
    let start = Instant::now();
    let found = perplexity::measure(transformer, &tokens, &options, |so_far, _| {
        bar.set_position(so_far.tokens as u64);
        bar.set_message(format!("perplexity {:.3}", so_far.value()));
    });
    bar.finish_and_clear();
    let found = found?;
    let seconds = start.elapsed().as_secs_f64();
    let error = found.value() * found.error;
    if args.json {
        terminal::write_json(
            out,
            &json!({
                "model": loaded.name,
                "device": loaded.device,
                "file": args.file.display().to_string(),
                "tokens": found.tokens,
                "window": options.window,
                "perplexity": found.value(),
                "standard_error": error,
                "nats_per_token": found.mean,
                "seconds": seconds,
            }),
        )?;
        return Ok(Outcome::Clean);
    }
    writeln!(
        out,
        "perplexity {:.4} ± {error:.4} over {} tokens in windows of {}, {seconds:.1} s",
        found.value(),
        found.tokens,
        options.window,
    )?;
    out.flush()?;
    Ok(Outcome::Clean)
}
