//! From a prompt to tokens, one after the other.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bessemer::kernel::CacheType;

use crate::model::{BATCH, Input, Logits, Space};
use crate::{Cache, Result, Sampler, Sampling, Transformer};

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

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends texts.
    Stop,
    /// As many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    Context,
    /// Whoever reads had enough.
    Reader,
}

impl Finish {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::MaxTokens => "length",
            Self::Context => "context",
            Self::Reader => "reader",
        }
    }
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
}

impl Session {
    /// An empty sequence, with room for as many tokens as the transformer was made for.
    pub fn new(transformer: Arc<Transformer>, kind: CacheType) -> Result<Self> {
        let cache = Cache::new(transformer.config(), kind, transformer.context())?;
        Ok(Self {
            transformer,
            cache,
            space: Space::default(),
        })
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
        let reused = self.cache.reuse(prompt);
        let mut rest = &prompt[reused..];
        if self.cache.len() + rest.len() > self.cache.capacity() {
            return Err(crate::Error::ContextFull {
                needed: prompt.len(),
                context: self.cache.capacity(),
            });
        }
        if rest.is_empty() {
            return Err(crate::Error::Invalid {
                what: "an empty prompt".to_owned(),
                reason: "there must be a token to begin with".to_owned(),
            });
        }
        while !rest.is_empty() {
            let (tokens, later) = rest.split_at(BATCH.min(rest.len()));
            rest = later;
            let logits = if rest.is_empty() {
                Logits::Last
            } else {
                Logits::None
            };
            self.forward(tokens, logits)?;
        }
        Ok((self.space.logits_mut(), reused))
    }

    fn forward(&mut self, tokens: &[u32], logits: Logits) -> Result<()> {
        let input = Input {
            cache: &mut self.cache,
            tokens,
            logits,
        };
        self.transformer.forward(&mut [input], &mut self.space)
    }

    /// Generates a text after a prompt. Every token goes to `read` as soon as it is known, which may end the text.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &Options,
        mut read: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Report> {
        let mut sampler = Sampler::new(options.sampling.clone())?;
        let start = Instant::now();
        let (_, reused) = self.prefill(prompt)?;
        let prefill = start.elapsed();
        let mut seen = prompt.to_vec();
        let mut ids = Vec::new();
        let mut first = prefill;
        let mut decode = Duration::ZERO;
        let finish = loop {
            if ids.len() == options.max_tokens {
                break Finish::MaxTokens;
            }
            let token = sampler.next(self.space.logits_mut(), &seen);
            ids.push(token);
            seen.push(token);
            if ids.len() == 1 {
                first = start.elapsed();
            } else {
                decode = start.elapsed() - first;
            }
            if read(token).is_break() {
                break Finish::Reader;
            }
            if options.stops.contains(&token) {
                break Finish::Stop;
            }
            if ids.len() == options.max_tokens {
                break Finish::MaxTokens;
            }
            if self.cache.len() == self.cache.capacity() {
                break Finish::Context;
            }
            self.forward(&[token], Logits::Last)?;
        };
        Ok(Report {
            ids,
            finish,
            reused,
            prefilled: prompt.len() - reused,
            prefill,
            first,
            decode,
        })
    }
}
