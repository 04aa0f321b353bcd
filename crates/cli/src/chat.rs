//! `bessemer chat`: a conversation.

use crate::answer;
use crate::failure::{Outcome, Usage};
use crate::language::{self, Loaded, ModelArgs, SamplingArgs};
use crate::terminal::{self, Out, style};
use anyhow::Result;
use bessemer_llm::generate::Options;
use bessemer_llm::{ChatTemplate, Message};
use clap::Args;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// What the model is told to be
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  bessemer chat
  bessemer chat --model qwen3.gguf --system \"You answer in rhymes.\"
  printf 'Hello!\\nAnd in French?\\n' | bessemer chat --temperature 0";

const HELP: &str = "\
/help          this list
/reset         forget the conversation
/system TEXT   tell the model what to be, and forget the conversation
/exit          end; so does the end of the input
ctrl-c         ends the answer that is being written, which stays as far as it is; at the prompt, or
               pressed again, ends the program with exit code 130";

/// Runs the command.
pub(crate) fn run(args: &ChatArgs, out: &mut Out) -> Result<Outcome> {
    let sampling = args.sampling.sampling(0.7)?;
    let mut loaded = args.model.load()?;
    args.sampling.check_tokens(&loaded.tokenizer)?;
    let Some(template) = loaded.template()? else {
        return Err(Usage::error(format!(
            "{} has no chat template; `bessemer generate --raw` goes on with a text",
            loaded.name
        )));
    };
    let mut options = Options {
        sampling,
        max_tokens: args.sampling.limit(),
        stops: loaded.tokenizer.stops().to_vec(),
    };
    let is_typed = std::io::stdin().is_terminal();
    let mut system = args.system.clone();
    let mut history: Vec<Message> = Vec::new();
    if is_typed {
        let quiet = style::QUIET;
        writeln!(
            out,
            "{quiet}{}, on {}. /help says what else there is.{quiet:#}",
            loaded.name,
            match loaded.session.transformer().device() {
                device if device.is_cpu() => "the CPU",
                device => device.name(),
            }
        )?;
    }
    let mut line = String::new();
    loop {
        if is_typed {
            let bold = style::STRONG;
            write!(out, "{bold}> {bold:#}")?;
        }
        out.flush()?;
        line.clear();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            if is_typed {
                writeln!(out)?;
            }
            return Ok(Outcome::Clean);
        }
        let text = line.trim();
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match command {
            "" => continue,
            "/help" => writeln!(out, "{HELP}")?,
            "/exit" | "/quit" => return Ok(Outcome::Clean),
            "/reset" => history.clear(),
            "/system" => {
                system = Some(rest.trim().to_owned()).filter(|s| !s.is_empty());
                history.clear();
            }
            c if c.starts_with('/') => writeln!(out, "there is no {c}; /help says what there is")?,
            _ => {
                history.push(Message::user(text));
                let is_shifted = args.model.context_shift;
                let ids = encode(
                    &loaded,
                    &template,
                    system.as_deref(),
                    &mut history,
                    is_shifted,
                );
                match ids.and_then(|ids| reply(&mut loaded, args, &ids, &options, out)) {
                    // Interrupted before a word was said, or no answer: the question is left out.
                    Ok(text) if text.is_empty() => drop(history.pop()),
                    Ok(text) => history.push(Message::assistant(text)),
                    Err(error) => {
                        if terminal::is_broken_pipe(&error) {
                            return Err(error);
                        }
                        history.pop();
                        terminal::complain("error", style::ERROR, &terminal::told(&error));
                        let note = "the question was left out; /reset begins anew";
                        terminal::complain("note", style::WARNING, note);
                    }
                }
                // Every answer has random numbers of its own.
                options.sampling.seed = options.sampling.seed.wrapping_add(1);
            }
        }
    }
}

/// The tokens of a conversation. With --context-shift, its oldest questions and answers are forgotten until it
/// takes no more than half of the context.
fn encode(
    loaded: &Loaded,
    template: &ChatTemplate,
    system: Option<&str>,
    history: &mut Vec<Message>,
    is_shifted: bool,
) -> Result<Vec<u32>> {
    loop {
        let before = system.into_iter().map(Message::system);
        let messages: Vec<_> = before.chain(history.iter().cloned()).collect();
        let prompt = template.render(&messages, true)?;
        let ids = loaded.tokenizer.encode_prompt(&prompt)?;
        let half = loaded.session.cache().capacity() / 2;
        if !is_shifted || ids.len() <= half || history.len() < 3 {
            return Ok(ids);
        }
        history.drain(..2);
    }
}

/// Writes an answer as it comes, and returns it.
fn reply(
    loaded: &mut Loaded,
    args: &ChatArgs,
    ids: &[u32],
    options: &Options,
    out: &mut Out,
) -> Result<String> {
    loaded.shift(&args.model, ids.len());
    let model = (&mut loaded.session, &loaded.tokenizer);
    let (text, report) = answer::write(model, ids, options, &args.sampling.stop, Some(out))?;
    language::write_speed(&report, loaded.session.cache().capacity());
    Ok(text)
}
