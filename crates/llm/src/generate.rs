//! Text generation, token by token.

mod device;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bessemer::CacheType;

use crate::model::{Cancel, Input, Logits, PREFILL_BATCH_TOKENS, Workspace};
use crate::{Cache, Error, Result, Sampler, Sampling, Transformer};

/// Generation parameters.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// Token ids that end generation; included in [`Report::ids`].
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

/// Why generation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// An end-of-text or stop token.
    Stop,
    /// `max_tokens` was reached.
    MaxTokens,
    /// The context is full.
    Context,
    /// The caller stopped reading.
    Reader,
    /// The caller cancelled: see [`Session::cancel_when`].
    Cancelled,
}

impl Finish {
    /// Name in reports.
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

/// What to do when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Stop with [`Finish::Context`].
    #[default]
    Stop,
    /// Shift the context: keep the first `keep` tokens, drop the older half of the rest, and recompute the remaining
    /// tokens at their new positions.
    /// The result depends only on the remaining tokens. Rotating the cached keys to new positions would be faster,
    /// but they would still contain the dropped tokens and be rounded again at every shift. The cost is the prefill
    /// of about one token per generated token.
    Shift {
        /// Tokens to keep; at most half of the context.
        keep: usize,
    },
}

/// Generated tokens and timings.
#[derive(Clone, Debug)]
pub struct Report {
    /// Generated token ids.
    pub ids: Vec<u32>,
    /// Why generation stopped.
    pub finish: Finish,
    /// Prompt tokens found in the KV cache.
    pub reused: usize,
    /// Prompt tokens that were computed.
    pub prefilled: usize,
    /// Time from the call to the logits of the prompt.
    pub prefill: Duration,
    /// Time to the first token.
    pub first: Duration,
    /// Time of all tokens after the first one.
    pub decode: Duration,
    /// Number of context shifts.
    pub shifts: usize,
}

impl Report {
    /// Prefill speed in tokens per second.
    pub fn prefill_speed(&self) -> f64 {
        rate(self.prefilled, self.prefill)
    }

    /// Decode speed in tokens per second, without the first token.
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

/// One sequence of a model with its KV cache, such as a conversation.
#[derive(Debug)]
pub struct Session {
    transformer: Arc<Transformer>,
    cache: Cache,
    workspace: Workspace,
    full: WhenFull,
}

impl Session {
    /// Creates an empty session with the transformer's context length.
    pub fn new(transformer: Arc<Transformer>, kind: CacheType) -> Result<Self> {
        let cache = Cache::new(&transformer, kind, 1, transformer.context())?;
        Ok(Self {
            transformer,
            cache,
            workspace: Workspace::default(),
            full: WhenFull::Stop,
        })
    }

    /// Sets what to do when the context is full; [`WhenFull::Stop`] by default.
    pub fn when_full(&mut self, full: WhenFull) {
        self.full = full;
    }

    /// Polls `is_cancelled` between tokens and several times per layer during prefill (on a Metal device, before
    /// every batch of [`PREFILL_BATCH_TOKENS`] tokens). If it returns true, generation ends with [`Finish::Cancelled`] and
    /// other calls with [`Error::Cancelled`]. The cache keeps all completed batches.
    pub fn cancel_when(&mut self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) {
        self.workspace.cancel_when(is_cancelled);
    }

    /// Compiles the kernels for decoding on a device, so that the first token does not wait for them.
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

    /// The KV cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Prefills a prompt, reusing the prefix in the KV cache. Returns the logits of the last token and the number of
    /// reused tokens.
    pub fn prefill(&mut self, prompt: &[u32]) -> Result<(&mut [f32], usize)> {
        let reused = self.begin(prompt)?;
        span!(
            INFO,
            "prefill",
            tokens = prompt.len() - reused,
            reused = reused
        );
        self.run_batches(&prompt[reused..], Logits::Last)?;
        Ok((self.workspace.logits_mut(), reused))
    }

    /// Checks a prompt and truncates the cache to the common prefix. Returns its length.
    fn begin(&mut self, prompt: &[u32]) -> Result<usize> {
        if prompt.is_empty() {
            return Err(Error::Invalid {
                what: "an empty prompt".to_owned(),
                reason: "at least one token is needed".to_owned(),
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

    /// Runs tokens in batches; `logits` applies to the last batch.
    fn run_batches(&mut self, tokens: &[u32], logits: Logits) -> Result<()> {
        let batches = tokens.len().div_ceil(PREFILL_BATCH_TOKENS);
        for (i, tokens) in tokens.chunks(PREFILL_BATCH_TOKENS).enumerate() {
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
                .forward(&mut self.cache, &[input], &mut self.workspace)?;
        }
        Ok(())
    }

    /// Shifts a full context: see [`WhenFull::Shift`].
    fn shift(&mut self, keep: usize) -> Result<()> {
        span!(INFO, "shift", keep = keep);
        let tokens = self.cache.tokens(0);
        let keep = keep.min(tokens.len() / 2);
        let dropped = (tokens.len() - keep).div_ceil(2);
        let rest = tokens[keep + dropped..].to_vec();
        self.cache.truncate(0, keep)?;
        self.run_batches(&rest, Logits::None)
    }

    /// Generates text after a prompt. Passes every token to `read`, which may stop generation.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &Options,
        read: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Report> {
        options.sampling.check()?;
        let start = Instant::now();
        let reused = self.begin(prompt)?;
        let is_cancelled = {
            span!(
                INFO,
                "prefill",
                tokens = prompt.len() - reused,
                reused = reused
            );
            match self.run_batches(&prompt[reused..], Logits::Last) {
                Err(Error::Cancelled) => true,
                other => other.map(|()| false)?,
            }
        };
        let prefill = start.elapsed();
        let mut text = Text {
            options,
            start,
            read,
            cancel: self.workspace.cancel.clone(),
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
        span!(INFO, "decode");
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

    /// Decodes after the prefill, token by token.
    fn decode(
        &mut self,
        prompt: &[u32],
        text: &mut Text<'_, impl FnMut(u32) -> ControlFlow<()>>,
    ) -> Result<()> {
        let mut sampler = Sampler::new(text.options.sampling.clone())?;
        let mut seen = prompt.to_vec();
        loop {
            let token = sampler.next(self.workspace.logits_mut(), &seen)?;
            seen.push(token);
            if text.take(token) || text.report.ids.len() == text.options.max_tokens {
                return Ok(());
            }
            if self.cache.len(0) == self.cache.capacity() {
                let WhenFull::Shift { keep } = self.full else {
                    text.report.finish = Finish::Context;
                    return Ok(());
                };
                self.shift(keep)?;
                text.report.shifts += 1;
            }
            self.run_batches(&[token], Logits::Last)?;
        }
    }
}

/// Text being generated.
struct Text<'a, R> {
    options: &'a Options,
    start: Instant,
    read: R,
    cancel: Cancel,
    report: Report,
}

impl<R: FnMut(u32) -> ControlFlow<()>> Text<'_, R> {
    /// Records a token. Returns whether generation ends with it.
    fn take(&mut self, token: u32) -> bool {
        let report = &mut self.report;
        report.ids.push(token);
        event!(TRACE, "token", id = token, count = report.ids.len());
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
