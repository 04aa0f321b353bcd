//! From logits to a token.
//!
//! The same seed, options and logits give the same tokens on every machine: the random numbers are a counter put
//! through a mixing function, and everything else is arithmetic in a fixed order.

use std::collections::HashMap;

pub use bessemer::decoder::Sampling;

use crate::{Error, Result};

/// Draws tokens, one after the other.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    draws: u64,
    /// Tokens that are left, with their logits; then with their probabilities.
    left: Vec<(u32, f32)>,
    counts: HashMap<u32, u32>,
}

impl Sampler {
    /// A sampler at the beginning of its random numbers.
    pub fn new(sampling: Sampling) -> Result<Self> {
        sampling.check()?;
        Ok(Self {
            sampling,
            draws: 0,
            left: Vec::new(),
            counts: HashMap::new(),
        })
    }

    /// The token that comes next, after `seen`. Logits are changed by biases and penalties.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there are no logits.
    pub fn next(&mut self, logits: &mut [f32], seen: &[u32]) -> Result<u32> {
        if logits.is_empty() {
            return Err(Error::Invalid {
                what: "sampling".to_owned(),
                reason: "there is no token to choose".to_owned(),
            });
        }
        self.adjust(logits, seen);
        if self.sampling.temperature == 0.0 {
            return Ok(greatest(logits));
        }
        self.narrow(logits);
        let total: f32 = self.left.iter().map(|(_, p)| p).sum();
        let mut rest = self.random() * total;
        for &(token, p) in &self.left {
            rest -= p;
            if rest < 0.0 {
                return Ok(token);
            }
        }
        // Rounding left a little over, or no logit was a number.
        Ok(self.left.last().map_or_else(|| greatest(logits), |l| l.0))
    }

    fn adjust(&mut self, logits: &mut [f32], seen: &[u32]) {
        let s = &self.sampling;
        for &(token, bias) in &s.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        if !s.penalises() {
            return;
        }
        self.counts.clear();
        for &token in &seen[seen.len().saturating_sub(s.penalty_window)..] {
            *self.counts.entry(token).or_default() += 1;
        }
        for (&token, &count) in &self.counts {
            let Some(logit) = logits.get_mut(token as usize) else {
                continue;
            };
            if *logit > 0.0 {
                *logit /= s.repetition_penalty;
            } else {
                *logit *= s.repetition_penalty;
            }
            *logit -= s.presence_penalty + s.frequency_penalty * count as f32;
        }
    }

    /// Leaves the tokens that may be drawn, most likely first, with weights.
    fn narrow(&mut self, logits: &[f32]) {
        let s = &self.sampling;
        let left = &mut self.left;
        left.clear();
        let all = logits.iter().enumerate();
        left.extend(
            all.map(|(i, &l)| (i as u32, l))
                .filter(|(_, l)| !l.is_nan()),
        );
        // Ties are in the order of tokens, so that nothing depends on how they are sorted.
        let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if s.top_k > 0 && s.top_k < left.len() {
            // Whatever comes there, what is before it are the first `top_k`.
            left.select_nth_unstable_by(s.top_k, order);
            left.truncate(s.top_k);
        }
        left.sort_unstable_by(order);
        let Some(&(_, top)) = left.first() else {
            return;
        };
        let weigh = |left: &mut Vec<(u32, f32)>, scale: f32| {
            for (_, l) in left.iter_mut() {
                *l = ((*l - top) * scale).exp();
            }
        };
        // The sampler was checked: these are the ends of their ranges.
        let unlimited = (s.typical, s.top_p, s.min_p) == (1.0, 1.0, 0.0);
        if !unlimited {
            // Limits are about probabilities as the model gave them; the logits are kept beside.
            let mut by_weight = left.clone();
            weigh(&mut by_weight, 1.0);
            let keep = limits(s, &mut by_weight);
            left.retain(|(token, _)| keep.binary_search(token).is_ok());
        }
        weigh(left, 1.0 / s.temperature);
    }

    /// A number from 0 up to, but without, 1.
    fn random(&mut self) -> f32 {
        // SplitMix64: a counter, mixed.
        self.draws += 1;
        let mut z = self
            .sampling
            .seed
            .wrapping_add(self.draws.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// The tokens that typical, top-p and min-p leave, in order of their numbers; `left` are weights, greatest first.
fn limits(s: &Sampling, left: &mut Vec<(u32, f32)>) -> Vec<u32> {
    let normalise = |left: &mut Vec<(u32, f32)>| {
        let total: f32 = left.iter().map(|(_, p)| p).sum();
        left.iter_mut().for_each(|(_, p)| *p /= total);
    };
    /// How many of the first are needed for a probability: at least one.
    fn needed(left: &[(u32, f32)], share: f32) -> usize {
        let mut sum = 0.0;
        let enough = left.iter().position(|(_, p)| {
            sum += p;
            sum >= share
        });
        enough.map_or(left.len(), |i| i + 1)
    }
    if s.typical < 1.0 {
        normalise(left);
        let information = |p: f32| -p.ln();
        let bits = left.iter().filter(|(_, p)| *p > 0.0);
        let expected: f32 = bits.map(|&(_, p)| p * information(p)).sum();
        left.sort_by(|a, b| {
            let away = |p: f32| (information(p) - expected).abs();
            away(a.1).total_cmp(&away(b.1))
        });
        left.truncate(needed(left, s.typical));
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    }
    if s.top_p < 1.0 {
        normalise(left);
        left.truncate(needed(left, s.top_p));
    }
    let least = left.first().map_or(0.0, |(_, p)| p * s.min_p);
    left.retain(|(_, p)| *p >= least);
    let mut tokens: Vec<u32> = left.iter().map(|(t, _)| *t).collect();
    tokens.sort_unstable();
    tokens
}

/// The first of the greatest logits.
pub fn greatest(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &l) in logits.iter().enumerate() {
        if l > best.1 {
            best = (i, l);
        }
    }
    best.0 as u32
}

/// Watches a text as it grows for strings that end it.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
}

impl Stops {
    /// Ends at the first of these; empty ones are left out.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self {
            stops: stops.into_iter().filter(|s| !s.is_empty()).collect(),
            held: String::new(),
        }
    }

    /// Takes in a piece of text. Returns what can be shown, and whether the text ends here. What may be the
    /// beginning of a stop is held back until it is known.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|s| self.held.find(s.as_str()))
            .min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begun = |s: &String| {
            let ends = s.char_indices().map(|(i, _)| i).skip(1);
            ends.filter(|&i| self.held.ends_with(&s[..i])).max()
        };
        let kept = self.stops.iter().filter_map(begun).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What is still held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests;
