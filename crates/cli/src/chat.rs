//! `bessemer chat`: a conversation.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::Result;
use bessemer_llm::generate::Options;
use bessemer_llm::{ChatTemplate, Message};
use clap::Args;

use crate::answer;
use crate::failure::{Outcome, Usage};
use crate::language::{self, Loaded, ModelArgs, SamplingArgs};
use crate::terminal::{self, Out, style};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Set the system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  bessemer chat
  bessemer chat --model qwen3.gguf --system \"You answer in rhymes.\"
  printf 'Hello!\\nAnd in French?\\n' | bessemer chat --temperature 0";

const HELP: &str = "\
/help          show this list
/reset         clear the conversation
/system TEXT   set the system prompt, and clear the conversation
/exit          quit, as does the end of the input
ctrl-c         stop the current answer and keep its text; at the prompt, or pressed again,
               quit with exit code 130";

/// Runs the command.
pub(crate) fn run(args: &ChatArgs, out: &mut Out) -> Result<Outcome> {
    let sampling = args.sampling.sampling(0.7)?;
    let mut loaded = args.model.load()?;
    args.sampling.check_tokens(&loaded.tokenizer)?;
    let Some(template) = loaded.template()? else {
        return Err(Usage::error(format!(
            "{} has no chat template; `bessemer generate --raw` continues a text",
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
            "{quiet}{}, on {}. Type /help for commands.{quiet:#}",
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
            c if c.starts_with('/') => {
                writeln!(out, "unknown command {c}; type /help for commands")?
            }
            _ => {
                history.push(Message::user(text));
                let drops_oldest = args.model.context_shift;
                let ids = encode(
                    &loaded,
                    &template,
                    system.as_deref(),
                    &mut history,
                    drops_oldest,
                );
                match ids.and_then(|ids| reply(&mut loaded, args, &ids, &options, out)) {
                    // Interrupted before the first word, or no answer: the question is removed from the history.
                    Ok(text) if text.is_empty() => drop(history.pop()),
                    Ok(text) => history.push(Message::assistant(text)),
                    Err(error) => {
                        if terminal::is_broken_pipe(&error) {
                            return Err(error);
                        }
                        history.pop();
                        terminal::write_message(
                            "error",
                            style::ERROR,
                            &terminal::error_text(&error),
                        );
                        let note = "the question was dropped; /reset clears the conversation";
                        terminal::write_message("note", style::WARNING, note);
                    }
                }
                // Every answer has its own random numbers.
                options.sampling.seed = options.sampling.seed.wrapping_add(1);
            }
        }
    }
}

/// Tokenizes a conversation. With --context-shift, drops the oldest questions and answers until it
/// takes at most half of the context.
fn encode(
    loaded: &Loaded,
    template: &ChatTemplate,
    system: Option<&str>,
    history: &mut Vec<Message>,
    drops_oldest: bool,
) -> Result<Vec<u32>> {
    loop {
        let before = system.into_iter().map(Message::system);
        let messages: Vec<_> = before.chain(history.iter().cloned()).collect();
        let prompt = template.render(&messages, true)?;
        let ids = loaded.tokenizer.encode_prompt(&prompt)?;
        let half = loaded.session.cache().capacity() / 2;
        if !drops_oldest || ids.len() <= half || history.len() < 3 {
            return Ok(ids);
        }
        history.drain(..2);
    }
}

/// Streams an answer, and returns it.
fn reply(
    loaded: &mut Loaded,
    args: &ChatArgs,
    ids: &[u32],
    options: &Options,
    out: &mut Out,
) -> Result<String> {
    loaded.shift(&args.model, ids.len());
    let Loaded {
        session, tokenizer, ..
    } = loaded;
    let stops = &args.sampling.stop;
    let (text, report) = answer::write(session, tokenizer, ids, options, stops, Some(out))?;
    language::write_speed(&report, loaded.session.cache().capacity());
    Ok(text)
}
