//! Streaming the text of an answer.

use std::io::Write as _;
use std::ops::ControlFlow;

use anyhow::Result;
use bessemer_llm::generate::{Finish, Options, Report, Session};
use bessemer_llm::sample::Stops;
use bessemer_llm::{Stream, Tokenizer};

use crate::interrupt;
use crate::terminal::Out;

/// Generates an answer to a prompt and returns it; streams it to `out`, if given. Stops at one of the texts `stops`,
/// or with [`Finish::Cancelled`] when ctrl-c is pressed.
pub(crate) fn write(
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &Options,
    stops: &[String],
    mut out: Option<&mut Out>,
) -> Result<(String, Report)> {
    let mut answer = Answer {
        stream: tokenizer.stream(false),
        stops: Stops::new(stops.iter().cloned()),
        text: String::new(),
    };
    let (mut failed, mut is_stopped) = (None, false);
    session.cancel_when(interrupt::pressed);
    let mut report = interrupt::watching(|| {
        session.generate(prompt, options, |token| {
            let piece;
            (piece, is_stopped) = answer.push(token);
            if let Some(out) = &mut out {
                let written = out.write_all(piece.as_bytes());
                failed = written.and_then(|()| out.flush()).err();
            }
            if is_stopped || failed.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if is_stopped {
        report.finish = Finish::Stop;
    }
    let rest = answer.finish();
    if let Some(out) = out {
        writeln!(out, "{rest}")?;
        out.flush()?;
    }
    Ok((answer.text, report))
}

struct Answer {
    stream: Stream,
    stops: Stops,
    text: String,
}

impl Answer {
    /// Adds a token; returns the text that can be shown, and whether the answer ends here.
    fn push(&mut self, token: u32) -> (String, bool) {
        let (piece, ended) = self.stops.push(&self.stream.push(token));
        self.text.push_str(&piece);
        (piece, ended)
    }

    /// Returns the rest of the text.
    fn finish(&mut self) -> String {
        let (mut rest, ended) = self.stops.push(&self.stream.finish());
        if !ended {
            rest.push_str(&self.stops.finish());
        }
        self.text.push_str(&rest);
        rest
    }
}
