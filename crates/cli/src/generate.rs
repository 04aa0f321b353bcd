//! `bessemer generate`: text from a prompt.

use std::io::Read as _;

use anyhow::{Context as _, Result};
use bessemer_llm::generate::{Finish, Options, Report};
use bessemer_llm::{EncodeOptions, Message, memory};
use clap::Args;
use serde_json::json;

use crate::answer;
use crate::failure::{Outcome, Usage};
use crate::language::{self, Loaded, ModelArgs, SamplingArgs};
use crate::terminal::{self, Out, style};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// Prompt to answer or, with --raw, to continue; `-` is standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Continue the prompt as it is, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Parse special tokens such as <|im_start|> in a raw prompt; they are text otherwise
    #[arg(long, requires = "raw")]
    pub(crate) parse_special: bool,
    /// Set the system prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Write one JSON object at the end instead of streaming the text
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  bessemer generate \"What is the capital of France?\"
  bessemer generate --device soft --json -n 8 \"Hello!\" | jq .launches_per_token
  bessemer generate --raw \"Once upon a time\" --temperature 0.8 --seed 7 --max-tokens 100
  bessemer generate --model mistral.gguf --json \"Name three rivers.\" | jq .decode_tok_s
  git diff | bessemer generate --system \"Describe this change in one sentence.\" -";

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs, out: &mut Out) -> Result<Outcome> {
    let sampling = args.sampling.sampling(0.0)?;
    let prompt = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context(Usage::context("standard input is not UTF-8"))?;
            text
        }
        text => text.to_owned(),
    };
    let mut loaded = args.model.load()?;
    args.sampling.check_tokens(&loaded.tokenizer)?;
    let template = if args.raw { None } else { loaded.template()? };
    let ids = match template {
        Some(template) => {
            let system = args.system.iter().map(Message::system);
            let messages: Vec<_> = system.chain([Message::user(&prompt)]).collect();
            let prompt = template.render(&messages, true)?;
            loaded.tokenizer.encode_prompt(&prompt)?
        }
        None => {
            if !args.raw {
                let note = "the model has no chat template: the prompt is continued, as with --raw";
                terminal::write_message("note", style::WARNING, note);
            }
            let options = EncodeOptions {
                add_special: true,
                parse_special: args.parse_special,
            };
            loaded.tokenizer.encode_with(&prompt, options)?
        }
    };
    if ids.is_empty() {
        return Err(Usage::error("the prompt is empty"));
    }
    loaded.shift(&args.model, ids.len());
    let options = Options {
        sampling,
        max_tokens: args.sampling.limit(),
        stops: loaded.tokenizer.stops().to_vec(),
    };
    let shown = (!args.json).then_some(&mut *out);
    let (session, tokenizer) = (&mut loaded.session, &loaded.tokenizer);
    let stops = &args.sampling.stop;
    let (text, report) = answer::write(session, tokenizer, &ids, &options, stops, shown)?;
    if args.json {
        let cost = Cost::of(&mut loaded, &options, &report)?;
        terminal::write_json(
            out,
            &json!({
                "model": loaded.name,
                "device": loaded.device,
                "prompt_ids": ids,
                "ids": report.ids,
                "text": text,
                "finish": report.finish.name(),
                "prefill_tok_s": report.prefill_speed(),
                "decode_tok_s": report.decode_speed(),
                "ttft_ms": report.first.as_secs_f64() * 1000.0,
                "launches_per_token": cost.launches,
                "command_buffers_per_token": cost.command_buffers,
                "bytes_per_token": cost.bytes,
                "peak_memory": memory::peak(),
            }),
        )?;
    }
    language::write_speed(&report, loaded.session.cache().capacity());
    match report.finish {
        Finish::Cancelled => Ok(Outcome::Interrupted),
        _ => Ok(Outcome::Clean),
    }
}

/// Average cost of a generated token.
struct Cost {
    launches: usize,
    command_buffers: usize,
    /// Bytes read from weights and KV cache; on a device, all bytes that kernels read and write.
    bytes: u64,
}

impl Cost {
    fn of(loaded: &mut Loaded, options: &Options, report: &Report) -> Result<Self> {
        let session = &mut loaded.session;
        let len = session.cache().len(0);
        let average_len = len - report.ids.len().min(len) / 2;
        if let Some(counts) = session.counts(&options.sampling, average_len)? {
            return Ok(Self {
                launches: counts.launches,
                command_buffers: counts.command_buffers,
                bytes: counts.bytes_read + counts.bytes_written,
            });
        }
        let (transformer, cache) = (session.transformer(), session.cache());
        Ok(Self {
            launches: 0,
            command_buffers: 0,
            bytes: (transformer.bytes_per_token() + cache.bytes_per_token() * average_len) as u64,
        })
    }
}
