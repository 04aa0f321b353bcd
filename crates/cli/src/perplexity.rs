//! `bessemer perplexity`: the perplexity of a model on a text.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bessemer_llm::perplexity::{self, Options};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::{Outcome, Usage};
use crate::language::ModelArgs;
use crate::terminal::{self, Out};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PerplexityArgs {
    /// Text file to evaluate
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

A text longer than the context (--context, 512 tokens unless the model's own is shorter) is split into windows
that overlap by half: all tokens of the first one count, and the second half of the others. Every token counts
once, and results are slightly lower than those of programs whose windows do not overlap.";

/// Default window in tokens.
const DEFAULT_WINDOW_TOKENS: usize = 512;

/// Runs the command.
pub(crate) fn run(args: &PerplexityArgs, out: &mut Out) -> Result<Outcome> {
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| Usage::context(args.file.display().to_string()))?;
    let loaded = args.model.load_for(DEFAULT_WINDOW_TOKENS)?;
    let tokenizer = &loaded.tokenizer;
    let tokens = tokenizer.encode(&text, true)?;
    if tokens.len() < 2 {
        return Err(Usage::error("the text has fewer than two tokens"));
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
    let measured = perplexity::measure(transformer, &tokens, &options, |so_far, _| {
        bar.set_position(so_far.tokens as u64);
        bar.set_message(format!("perplexity {:.3}", so_far.value()));
    });
    bar.finish_and_clear();
    let measured = measured?;
    let seconds = start.elapsed().as_secs_f64();
    let error = measured.value() * measured.error;
    if args.json {
        terminal::write_json(
            out,
            &json!({
                "model": loaded.name,
                "device": loaded.device,
                "file": args.file.display().to_string(),
                "tokens": measured.tokens,
                "window": options.window,
                "perplexity": measured.value(),
                "standard_error": error,
                "nats_per_token": measured.mean,
                "seconds": seconds,
            }),
        )?;
        return Ok(Outcome::Clean);
    }
    writeln!(
        out,
        "perplexity {:.4} ± {error:.4} over {} tokens in windows of {}, {seconds:.1} s",
        measured.value(),
        measured.tokens,
        options.window,
    )?;
    out.flush()?;
    Ok(Outcome::Clean)
}
