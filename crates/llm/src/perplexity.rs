//! Perplexity of a model on a text.

use bessemer::CacheType;

use crate::model::{Input, Logits, Workspace};
use crate::{Cache, Error, Result, Transformer};

/// Result of a perplexity measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    /// Number of predicted tokens.
    pub tokens: usize,
    /// Mean negative log-likelihood in nats.
    pub mean: f64,
    /// Standard error of the mean, as if tokens were independent.
    pub error: f64,
}

impl Perplexity {
    /// The perplexity, `exp(mean)`.
    pub fn value(&self) -> f64 {
        self.mean.exp()
    }
}

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Window length in tokens. A longer text is split into windows that overlap by a half: all tokens of the first
    /// window count, and the second half of the others. So every token counts once, with at least half a window of
    /// context if the text has that much before it.
    pub window: usize,
    /// BOS token of every window, if the model needs one; the text starts with it already.
    pub begin: Option<u32>,
    /// Element type of the KV cache.
    pub cache: CacheType,
}

/// Tokens whose logits are computed per call.
const LOGIT_ROWS: usize = 64;

/// Measures the perplexity of a text of at least two tokens. Calls `done` after every batch with the number of
/// counted tokens and the total.
pub fn measure(
    transformer: &Transformer,
    tokens: &[u32],
    options: &Options,
    mut done: impl FnMut(Perplexity, usize),
) -> Result<Perplexity> {
    let window = options.window;
    let total = tokens.len().saturating_sub(1);
    if total == 0 || window < 4 {
        return Err(Error::Invalid {
            what: format!("a text of {} tokens with windows of {window}", tokens.len()),
            reason: "a text must have at least 2 tokens, and a window 4".to_owned(),
        });
    }
    let mut cache = Cache::new(transformer, options.cache, 1, window)?;
    let mut workspace = Workspace::default();
    let mut sums = LikelihoodSums::default();
    // Tokens before this one are already counted, or have no context.
    let mut next = 1;
    while next < tokens.len() {
        let start = match next {
            1 => 0,
            _ => next - window / 2,
        };
        cache.truncate(0, 0)?;
        let begin = options.begin.filter(|_| start > 0);
        let end = tokens
            .len()
            .min(start + window - usize::from(begin.is_some()));
        // The last token is predicted, and predicts nothing.
        let seen: Vec<u32> = begin
            .into_iter()
            .chain(tokens[start..end - 1].iter().copied())
            .collect();
        // Row `i` of `seen` predicts the text's token `i + shift`.
        let shift = start + 1 - usize::from(begin.is_some());
        let mut at = 0;
        for piece in seen.chunks(LOGIT_ROWS) {
            let first = next.saturating_sub(shift + at).min(piece.len());
            let logits = if first < piece.len() {
                Logits::All
            } else {
                Logits::None
            };
            let input = Input {
                sequence: 0,
                tokens: piece,
                logits,
            };
            transformer.forward(&mut cache, &[input], &mut workspace)?;
            let rows = workspace.logits().chunks_exact(transformer.config().vocab);
            for (i, logits) in rows.enumerate().skip(first) {
                sums.add(negative_log_likelihood(logits, tokens[at + i + shift]));
            }
            at += piece.len();
            done(sums.result(), total);
        }
        next = end;
    }
    Ok(sums.result())
}

#[derive(Clone, Copy, Default)]
struct LikelihoodSums {
    count: usize,
    first: f64,
    second: f64,
}

impl LikelihoodSums {
    fn add(&mut self, x: f64) {
        self.count += 1;
        self.first += x;
        self.second += x * x;
    }

    fn result(&self) -> Perplexity {
        let n = self.count.max(1) as f64;
        let mean = self.first / n;
        let variance = (self.second / n - mean * mean).max(0.0);
        Perplexity {
            tokens: self.count,
            mean,
            error: (variance / (n - 1.0).max(1.0)).sqrt(),
        }
    }
}

/// Negative log-likelihood of a token.
fn negative_log_likelihood(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights = logits.iter().map(|l| f64::from((l - top).exp()));
    let total: f64 = weights.sum();
    let own = logits.get(token as usize).copied();
    total.ln() - f64::from(own.unwrap_or(f32::NEG_INFINITY) - top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_log_likelihood_matches_the_softmax() {
        let logits = [1.0, 3.0, 0.5];
        let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        for (i, &l) in logits.iter().enumerate() {
            let expected = -(f64::from(l).exp() / total).ln();
            let token = u32::try_from(i).unwrap();
            assert!((negative_log_likelihood(&logits, token) - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn sums_give_mean_and_standard_error() {
        let mut sums = LikelihoodSums::default();
        for x in [1.0, 2.0, 3.0, 6.0] {
            sums.add(x);
        }
        let result = sums.result();
        assert_eq!((result.tokens, result.mean), (4, 3.0));
        // A variance of 14 / 3 over 4 samples.
        assert!((result.error - (14.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert!((result.value() - 3.0_f64.exp()).abs() < 1e-9);
    }
}
