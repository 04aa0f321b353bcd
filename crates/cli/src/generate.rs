//! `bessemer generate`: a text that follows from a prompt.

use crate::failure::{Outcome, Usage};
use crate::language::{self, ModelArgs, SamplingArgs};
use crate::terminal::{self, Out};
use anyhow::{Context as _, Result};
use bessemer_llm::generate::{Options, Report};
use bessemer_llm::sample::Stops;
use bessemer_llm::{ChatTemplate, Message};
use clap::Args;
use serde_json::json;
use std::io::{Read as _, Write};
use std::ops::ControlFlow;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// What to answer or, with --raw, to go on with; `-` is standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Go on with the prompt as it is, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// What the model is told to be, before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Write one JSON object at the end instead of the text as it comes
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer generate \"What is the capital of France?\"
  bessemer generate --raw \"Once upon a time\" --temperature 0.8 --seed 7 --max-tokens 100
  bessemer generate --model mistral.gguf --json \"Name three rivers.\" | jq .decode_tok_s
  git diff | bessemer generate --system \"Describe this change in one sentence.\" -";

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs, out: &mut Out) -> Result<Outcome> {
    let device = args.model.device()?;
    let sampling = args.sampling.sampling(0.0)?;
    let prompt = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context(Usage::context("standard input is no text"))?;
            text
        }
        text => text.to_owned(),
    };
    let mut loaded = args.model.load()?;
    let template = if args.raw {
        None
    } else {
        ChatTemplate::of(&loaded.file)?
    };
    let ids = match template {
        Some(template) => {
            let system = args.system.iter().map(Message::system);
            let messages: Vec<_> = system.chain([Message::user(&prompt)]).collect();
            loaded.encode_chat(&template.render(&messages, true)?)?
        }
        None => loaded.tokenizer.encode(&prompt, true)?,
    };
    if ids.is_empty() {
        return Err(Usage::error("the prompt is empty"));
    }
    language::catch_interrupts()?;
    let options = Options {
        sampling,
        max_tokens: args.sampling.max_tokens,
        stops: loaded.tokenizer.stops().to_vec(),
    };
    let mut answer = Answer::new(&loaded.tokenizer, &args.sampling.stop);
    let mut failed = None;
    let report = language::watching(|| {
        loaded.session.generate(&ids, &options, |token| {
            let (piece, ended) = answer.push(token);
            if !args.json {
                failed = out
                    .write_all(piece.as_bytes())
                    .and_then(|()| out.flush())
                    .err();
            }
            match ended || failed.is_some() || language::interrupted() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let rest = answer.finish();
    if args.json {
        let transformer = loaded.session.transformer();
        terminal::write_json(
            out,
            &json!({
                "model": loaded.name,
                "device": device,
                "prompt_ids": ids,
                "ids": report.ids,
                "text": answer.text,
                "prefill_tok_s": report.prefill_speed(),
                "decode_tok_s": report.decode_speed(),
                "ttft_ms": report.first.as_secs_f64() * 1000.0,
                "launches_per_token": 0,
                "command_buffers_per_token": 0,
                "bytes_per_token": transformer.bytes_per_token() + cache_bytes(&loaded.session, &report),
            }),
        )?;
    } else {
        writeln!(out, "{rest}")?;
        out.flush()?;
    }
    language::write_speed(&report);
    Ok(Outcome::Clean)
}

/// Bytes of keys and values that a token reads, on average over the tokens made.
fn cache_bytes(session: &bessemer_llm::generate::Session, report: &Report) -> usize {
    let cache = session.cache();
    let position = cache.bytes() / cache.capacity().next_multiple_of(64);
    position * (cache.len() - report.ids.len().min(cache.len()) / 2)
}

/// The text of an answer as its tokens come.
pub(crate) struct Answer {
    stream: bessemer_llm::Stream,
    stops: Stops,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn new(tokenizer: &bessemer_llm::Tokenizer, stops: &[String]) -> Self {
        Self {
            stream: tokenizer.stream(false),
            stops: Stops::new(stops.iter().cloned()),
            text: String::new(),
        }
    }

    /// Takes in a token; returns what can be shown, and whether the answer ends here.
    pub(crate) fn push(&mut self, token: u32) -> (String, bool) {
        let (piece, ended) = self.stops.push(&self.stream.push(token));
        self.text.push_str(&piece);
        (piece, ended)
    }

    /// What is left to show.
    pub(crate) fn finish(&mut self) -> String {
        let (mut rest, ended) = self.stops.push(&self.stream.finish());
        if !ended {
            rest.push_str(&self.stops.finish());
        }
        self.text.push_str(&rest);
        rest
    }
}
