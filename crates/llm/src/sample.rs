//! Token sampling.
//!
//! The same seed, parameters and logits give the same tokens on every machine: the random generator is a counter with
//! a mixing function, and all arithmetic runs in a fixed order.

use std::collections::HashMap;

pub use bessemer::decoder::Sampling;

use crate::{Error, Result};

/// Samples tokens from logits.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    draws: u64,
    /// Candidate tokens with their logits, later with their probabilities.
    candidates: Vec<(u32, f32)>,
    counts: HashMap<u32, u32>,
}

impl Sampler {
    /// Creates a sampler at the start of its random sequence.
    pub fn new(sampling: Sampling) -> Result<Self> {
        sampling.check()?;
        Ok(Self {
            sampling,
            draws: 0,
            candidates: Vec::new(),
            counts: HashMap::new(),
        })
    }

    /// Samples the next token after `seen`. Applies biases and penalties to `logits`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no logits.
    pub fn next(&mut self, logits: &mut [f32], seen: &[u32]) -> Result<u32> {
        if logits.is_empty() {
            return Err(Error::Invalid {
                what: "sampling".to_owned(),
                reason: "there are no logits".to_owned(),
            });
        }
        self.adjust(logits, seen);
        if self.sampling.temperature == 0.0 {
            return Ok(argmax(logits));
        }
        self.select_candidates(logits);
        let total: f32 = self.candidates.iter().map(|(_, p)| p).sum();
        let mut rest = self.random() * total;
        for &(token, p) in &self.candidates {
            rest -= p;
            if rest < 0.0 {
                return Ok(token);
            }
        }
        // A rounding error is candidates over, or all logits are NaN.
        Ok(self
            .candidates
            .last()
            .map_or_else(|| argmax(logits), |l| l.0))
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

    /// Selects the candidates, most likely first, with their weights.
    fn select_candidates(&mut self, logits: &[f32]) {
        let s = &self.sampling;
        let candidates = &mut self.candidates;
        candidates.clear();
        let all = logits.iter().enumerate();
        candidates.extend(
            all.map(|(i, &l)| (i as u32, l))
                .filter(|(_, l)| !l.is_nan()),
        );
        // Ties are broken by token id, so that the result does not depend on the sorting algorithm.
        let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if s.top_k > 0 && s.top_k < candidates.len() {
            // Partitions the first `top_k` to the front.
            candidates.select_nth_unstable_by(s.top_k, order);
            candidates.truncate(s.top_k);
        }
        candidates.sort_unstable_by(order);
        let Some(&(_, top)) = candidates.first() else {
            return;
        };
        let weigh = |candidates: &mut Vec<(u32, f32)>, scale: f32| {
            for (_, l) in candidates.iter_mut() {
                *l = ((*l - top) * scale).exp();
            }
        };
        // The parameters are validated: these are the ends of their ranges.
        let unlimited = (s.typical, s.top_p, s.min_p) == (1.0, 1.0, 0.0);
        if !unlimited {
            // The limits apply to the probabilities at temperature 1; the logits are kept.
            let mut by_weight = candidates.clone();
            weigh(&mut by_weight, 1.0);
            let keep = limits(s, &mut by_weight);
            candidates.retain(|(token, _)| keep.binary_search(token).is_ok());
        }
        weigh(candidates, 1.0 / s.temperature);
    }

    /// A random number in `[0, 1)`.
    fn random(&mut self) -> f32 {
        // SplitMix64.
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

/// The tokens kept by typical-p, top-p and min-p, sorted by id; `candidates` are weights in descending order.
fn limits(s: &Sampling, candidates: &mut Vec<(u32, f32)>) -> Vec<u32> {
    let normalise = |candidates: &mut Vec<(u32, f32)>| {
        let total: f32 = candidates.iter().map(|(_, p)| p).sum();
        candidates.iter_mut().for_each(|(_, p)| *p /= total);
    };
    /// Length of the shortest prefix with a total probability of `share`: at threshold one.
    fn needed(candidates: &[(u32, f32)], share: f32) -> usize {
        let mut sum = 0.0;
        let reached = candidates.iter().position(|(_, p)| {
            sum += p;
            sum >= share
        });
        reached.map_or(candidates.len(), |i| i + 1)
    }
    if s.typical < 1.0 {
        normalise(candidates);
        let information = |p: f32| -p.ln();
        let bits = candidates.iter().filter(|(_, p)| *p > 0.0);
        let expected: f32 = bits.map(|&(_, p)| p * information(p)).sum();
        candidates.sort_by(|a, b| {
            let away = |p: f32| (information(p) - expected).abs();
            away(a.1).total_cmp(&away(b.1))
        });
        candidates.truncate(needed(candidates, s.typical));
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    }
    if s.top_p < 1.0 {
        normalise(candidates);
        candidates.truncate(needed(candidates, s.top_p));
    }
    let threshold = candidates.first().map_or(0.0, |(_, p)| p * s.min_p);
    candidates.retain(|(_, p)| *p >= threshold);
    let mut tokens: Vec<u32> = candidates.iter().map(|(t, _)| *t).collect();
    tokens.sort_unstable();
    tokens
}

/// Index of the first maximum.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &l) in logits.iter().enumerate() {
        if l > best.1 {
            best = (i, l);
        }
    }
    best.0 as u32
}

/// Detects stop strings in streamed text.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    stops: Vec<String>,
    pending: String,
}

impl Stops {
    /// Stops at the first of these strings; ignores empty ones.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self {
            stops: stops.into_iter().filter(|s| !s.is_empty()).collect(),
            pending: String::new(),
        }
    }

    /// Appends a piece of text. Returns the text that can be shown and whether a stop string was found. A suffix that
    /// may start a stop string is pending back.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.pending.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|s| self.pending.find(s.as_str()))
            .min();
        if let Some(at) = found {
            self.pending.truncate(at);
            return (std::mem::take(&mut self.pending), true);
        }
        let begun = |s: &String| {
            let ends = s.char_indices().map(|(i, _)| i).skip(1);
            ends.filter(|&i| self.pending.ends_with(&s[..i])).max()
        };
        let kept = self.stops.iter().filter_map(begun).max().unwrap_or(0);
        let rest = self.pending.split_off(self.pending.len() - kept);
        (std::mem::replace(&mut self.pending, rest), false)
    }

    /// Returns the text still pending back at the end.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests;
