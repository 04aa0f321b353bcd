//! `bessemer chat`: a conversation.

use crate::failure::{Outcome, Usage};
use crate::generate::Answer;
use crate::language::{self, Loaded, ModelArgs, SamplingArgs};
use crate::terminal::{self, Out, style};
use anyhow::Result;
use bessemer_llm::generate::Options;
use bessemer_llm::{ChatTemplate, Message};
use clap::Args;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::ops::ControlFlow;

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
ctrl-c         ends the answer that is being written, and at the prompt the program";

/// Runs the command.
pub(crate) fn run(args: &ChatArgs, out: &mut Out) -> Result<Outcome> {
    let sampling = args.sampling.sampling(0.7)?;
    let mut loaded = args.model.load()?;
    let Some(template) = ChatTemplate::of(&loaded.file)? else {
        return Err(Usage::error(format!(
            "{} has no chat template; `bessemer generate --raw` goes on with a text",
            loaded.name
        )));
    };
    let mut options = Options {
        sampling,
        max_tokens: args.sampling.max_tokens,
        stops: loaded.tokenizer.stops().to_vec(),
    };
    language::catch_interrupts()?;
    let is_typed = std::io::stdin().is_terminal();
    let mut system = args.system.clone();
    let mut history: Vec<Message> = Vec::new();
    if is_typed {
        let quiet = style::QUIET;
        writeln!(
            out,
            "{quiet}{}, on the CPU. /help says what else there is.{quiet:#}",
            loaded.name
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
                let before = system.iter().map(Message::system);
                let messages: Vec<_> = before.chain(history.iter().cloned()).collect();
                let prompt = template.render(&messages, true)?;
                match answer(&mut loaded, &prompt, &options, &args.sampling.stop, out) {
                    Ok(text) => history.push(Message::assistant(text)),
                    Err(error) => {
                        if terminal::is_broken_pipe(&error) {
                            return Err(error);
                        }
                        history.pop();
                        terminal::complain("error", style::ERROR, &format!("{error:#}"));
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

/// Writes an answer as it comes, and returns it.
fn answer(
    loaded: &mut Loaded,
    prompt: &str,
    options: &Options,
    stops: &[String],
    out: &mut Out,
) -> Result<String> {
    let ids = loaded.encode_chat(prompt)?;
    let mut answer = Answer::new(&loaded.tokenizer, stops);
    let mut failed = None;
    let report = language::watching(|| {
        loaded.session.generate(&ids, options, |token| {
            let (piece, ended) = answer.push(token);
            failed = out
                .write_all(piece.as_bytes())
                .and_then(|()| out.flush())
                .err();
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
    writeln!(out, "{rest}")?;
    out.flush()?;
    language::write_speed(&report);
    Ok(answer.text)
}
