//! From a prompt to tokens, one after the other.

mod device;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bessemer::CacheType;

use crate::model::{BATCH, Cancel, Input, Logits, Space};
use crate::{Cache, Error, Result, Sampler, Sampling, Transformer};

/// What to generate.
#[derive(Clone, Debug)]
pub struct Options {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// At most so many tokens.
    pub max_tokens: usize,
    /// Tokens that end the text; they are part of [`Report::ids`].
    pub stops: Vec<u32>,
}

impl Options {
    /// Greedy decoding until one of these tokens, or until the context is full.
    pub fn greedy(stops: &[u32]) -> Self {
        Self {
            sampling: Sampling::default(),
            max_tokens: usize::MAX,
            stops: stops.to_vec(),
        }
    }
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends texts.
    Stop,
    /// As many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    Context,
    /// The caller stopped reading.
    Reader,
    /// The caller cancelled: see [`Session::cancel_when`].
    Cancelled,
}

impl Finish {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::MaxTokens => "length",
            Self::Context => "context",
            Self::Reader => "reader",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What is done when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// The text ends with [`Finish::Context`].
    #[default]
    Stop,
    /// Room is made: the first `keep` tokens stay, the older half of the others is forgotten, and the rest is
    /// computed anew at its new places.
    ///
    /// What comes out is what the tokens that are left would give, whatever the cache was before; turning the keys
    /// that are there to new places would be quicker, but leaves what was forgotten in them, and rounds them again
    /// each time. It costs the prefill of about one token for every token made.
    Shift {
        /// Tokens that stay; at most half of the context.
        keep: usize,
    },
}

/// What was generated, and how quickly.
#[derive(Clone, Debug)]
pub struct Report {
    /// The tokens.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Tokens of the prompt that were in the cache already.
    pub reused: usize,
    /// Tokens of the prompt that were not.
    pub prefilled: usize,
    /// From the call to the logits after the prompt.
    pub prefill: Duration,
    /// From the call to the first token.
    pub first: Duration,
    /// All tokens after the first one.
    pub decode: Duration,
    /// How often room was made in a full context.
    pub shifts: usize,
}

impl Report {
    /// Tokens of the prompt taken in per second.
    pub fn prefill_speed(&self) -> f64 {
        rate(self.prefilled, self.prefill)
    }

    /// Tokens made per second, the first one not counted.
    pub fn decode_speed(&self) -> f64 {
        rate(self.ids.len().saturating_sub(1), self.decode)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 || time.is_zero() {
        return 0.0;
    }
    count as f64 / time.as_secs_f64()
}

/// One sequence of a model: a conversation, which remembers what it has seen.
#[derive(Debug)]
pub struct Session {
    transformer: Arc<Transformer>,
    cache: Cache,
    space: Space,
    full: Full,
}

impl Session {
    /// An empty sequence, with room for as many tokens as the transformer was made for.
    pub fn new(transformer: Arc<Transformer>, kind: CacheType) -> Result<Self> {
        let cache = Cache::new(&transformer, kind, 1, transformer.context())?;
        Ok(Self {
            transformer,
            cache,
            space: Space::default(),
            full: Full::Stop,
        })
    }

    /// Says what is done when the context is full; at first, [`Full::Stop`].
    pub fn when_full(&mut self, full: Full) {
        self.full = full;
    }

    /// Makes the session ask `is_cancelled` between tokens and, while it takes in a prompt, several times a layer
    /// (on a device that is not the CPU, before every batch of [`BATCH`] tokens). When it says so, generation ends
    /// with [`Finish::Cancelled`], other calls with [`Error::Cancelled`]. The cache keeps all whole batches.
    pub fn cancel_when(&mut self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) {
        self.space.cancel_when(is_cancelled);
    }

    /// Compiles the kernels that a token needs on a device, so that the first one waits for none.
    pub fn warm_up(&mut self) -> Result<()> {
        if let (Some(decoder), Some(sequences)) =
            (self.transformer.decoder(), self.cache.on_device())
        {
            decoder.warm_up(sequences)?;
        }
        Ok(())
    }

    /// The model.
    pub fn transformer(&self) -> &Transformer {
        &self.transformer
    }

    /// What the sequence has seen.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Takes in a text, whatever of it is not in the cache already, and returns the logits after it and how many
    /// tokens were there.
    pub fn prefill(&mut self, prompt: &[u32]) -> Result<(&mut [f32], usize)> {
        let reused = self.begin(prompt)?;
        self.take_in(&prompt[reused..], Logits::Last)?;
        Ok((self.space.logits_mut(), reused))
    }

    /// Checks a prompt, and keeps what the cache has of it: so many tokens.
    fn begin(&mut self, prompt: &[u32]) -> Result<usize> {
        if prompt.is_empty() {
            return Err(Error::Invalid {
                what: "an empty prompt".to_owned(),
                reason: "there must be a token to begin with".to_owned(),
            });
        }
        if prompt.len() > self.cache.capacity() {
            return Err(Error::ContextFull {
                needed: prompt.len(),
                context: self.cache.capacity(),
            });
        }
        self.cache.reuse(0, prompt)
    }

    /// Takes in tokens in batches; of the last one there are the logits asked for.
    fn take_in(&mut self, tokens: &[u32], logits: Logits) -> Result<()> {
        let batches = tokens.len().div_ceil(BATCH);
        for (i, tokens) in tokens.chunks(BATCH).enumerate() {
            let input = Input {
                sequence: 0,
                tokens,
                logits: if i + 1 == batches {
                    logits
                } else {
                    Logits::None
                },
            };
            self.transformer
                .forward(&mut self.cache, &[input], &mut self.space)?;
        }
        Ok(())
    }

    /// Makes room in a full context: see [`Full::Shift`].
    fn shift(&mut self, keep: usize) -> Result<()> {
        let tokens = self.cache.tokens(0);
        let keep = keep.min(tokens.len() / 2);
        let dropped = (tokens.len() - keep).div_ceil(2);
        let rest = tokens[keep + dropped..].to_vec();
        self.cache.truncate(0, keep)?;
        self.take_in(&rest, Logits::None)
    }

    /// Generates a text after a prompt. Every token goes to `read` as soon as it is known, which may end the text.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &Options,
        read: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Report> {
        options.sampling.check()?;
        let start = Instant::now();
        let reused = self.begin(prompt)?;
        let is_cancelled = match self.take_in(&prompt[reused..], Logits::Last) {
            Err(Error::Cancelled) => true,
            other => other.map(|()| false)?,
        };
        let prefill = start.elapsed();
        let mut text = Text {
            options,
            start,
            read,
            cancel: self.space.cancel.clone(),
            report: Report {
                ids: Vec::new(),
                finish: Finish::MaxTokens,
                reused,
                prefilled: self.cache.len(0).saturating_sub(reused),
                prefill,
                first: prefill,
                decode: Duration::ZERO,
                shifts: 0,
            },
        };
        if is_cancelled {
            text.report.finish = Finish::Cancelled;
            return Ok(text.report);
        }
        if options.max_tokens == 0 {
            return Ok(text.report);
        }
        let done = match self.transformer.decoder().cloned() {
            Some(decoder) => {
                let mut sampler = device::sampler(&self.transformer, &options.sampling, prompt)?;
                self.decode_ahead(&decoder, &mut sampler, &mut text)
            }
            None => self.decode(prompt, &mut text),
        };
        match done {
            Err(Error::Cancelled) => text.report.finish = Finish::Cancelled,
            other => other?,
        }
        Ok(text.report)
    }

    /// Goes on after a prompt that was taken in, one token after the other.
    fn decode(
        &mut self,
        prompt: &[u32],
        text: &mut Text<'_, impl FnMut(u32) -> ControlFlow<()>>,
    ) -> Result<()> {
        let mut sampler = Sampler::new(text.options.sampling.clone())?;
        let mut seen = prompt.to_vec();
        loop {
            let token = sampler.next(self.space.logits_mut(), &seen)?;
            seen.push(token);
            if text.take(token) || text.report.ids.len() == text.options.max_tokens {
                return Ok(());
            }
            if self.cache.len(0) == self.cache.capacity() {
                let Full::Shift { keep } = self.full else {
                    text.report.finish = Finish::Context;
                    return Ok(());
                };
                self.shift(keep)?;
                text.report.shifts += 1;
            }
            self.take_in(&[token], Logits::Last)?;
        }
    }
}

/// A text that is being generated.
struct Text<'a, R> {
    options: &'a Options,
    start: Instant,
    read: R,
    cancel: Cancel,
    report: Report,
}

impl<R: FnMut(u32) -> ControlFlow<()>> Text<'_, R> {
    /// Notes a token; whether the text ends with it.
    fn take(&mut self, token: u32) -> bool {
        let report = &mut self.report;
        report.ids.push(token);
        let now = self.start.elapsed();
        match report.ids.len() {
            1 => report.first = now,
            _ => report.decode = now - report.first,
        }
        if (self.read)(token).is_break() {
            report.finish = Finish::Reader;
            return true;
        }
        if self.options.stops.contains(&token) {
            report.finish = Finish::Stop;
            return true;
        }
        if self.cancel.is_set() {
            report.finish = Finish::Cancelled;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests;
