//! How well a model foretells a text.

use bessemer::CacheType;

use crate::model::{Input, Logits, Space};
use crate::{Cache, Error, Result, Transformer};

/// How well a model foretold the tokens of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    /// Tokens that were to be foretold.
    pub tokens: usize,
    /// The mean of their information in nats, which is the negative logarithm of their probability.
    pub mean: f64,
    /// The standard error of that mean, as if tokens had nothing to do with each other.
    pub error: f64,
}

impl Perplexity {
    /// The perplexity: of as many equally likely tokens every one was, on average.
    pub fn value(&self) -> f64 {
        self.mean.exp()
    }
}

/// How a text is taken in.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Tokens that are seen at once. Of a longer text, windows that overlap by a half are taken: all tokens of the
    /// first one count, and of the others the second half. So every token counts once, after at least half a window
    /// where there is so much before it.
    pub window: usize,
    /// What every window begins with, where the model wants that; the text begins with it already.
    pub begin: Option<u32>,
    /// What keys and values are kept as.
    pub cache: CacheType,
}

/// Tokens whose logits are there at a time.
const ROWS: usize = 64;

/// The perplexity of a text of at least two tokens. After every piece, `done` gets how many tokens were counted and
/// how many there are to count.
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
            what: format!("a text of {} tokens in windows of {window}", tokens.len()),
            reason: "a text must have at least 2 tokens, and a window 4".to_owned(),
        });
    }
    let mut cache = Cache::new(transformer, options.cache, 1, window)?;
    let mut space = Space::default();
    let mut sums = Sums::default();
    // Tokens before this one have been counted, or come first.
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
        // The last token is foretold, and foretells nothing.
        let seen: Vec<u32> = begin
            .into_iter()
            .chain(tokens[start..end - 1].iter().copied())
            .collect();
        // The row after the token at `i` of `seen` is about the token of the text at `i + shift`.
        let shift = start + 1 - usize::from(begin.is_some());
        let mut at = 0;
        for piece in seen.chunks(ROWS) {
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
            transformer.forward(&mut cache, &[input], &mut space)?;
            let rows = space.logits().chunks_exact(transformer.config().vocab);
            for (i, logits) in rows.enumerate().skip(first) {
                sums.add(information(logits, tokens[at + i + shift]));
            }
            at += piece.len();
            done(sums.result(), total);
        }
        next = end;
    }
    Ok(sums.result())
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: usize,
    first: f64,
    second: f64,
}

impl Sums {
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

/// The negative logarithm of a token's probability.
fn information(logits: &[f32], token: u32) -> f64 {
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
    fn information_is_that_of_a_softmax() {
        let logits = [1.0, 3.0, 0.5];
        let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        for (i, &l) in logits.iter().enumerate() {
            let expected = -(f64::from(l).exp() / total).ln();
            let token = u32::try_from(i).unwrap();
            assert!((information(&logits, token) - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn sums_become_mean_and_error() {
        let mut sums = Sums::default();
        for x in [1.0, 2.0, 3.0, 6.0] {
            sums.add(x);
        }
        let result = sums.result();
        assert_eq!((result.tokens, result.mean), (4, 3.0));
        // A variance of 14 / 3 among 4.
        assert!((result.error - (14.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert!((result.value() - 3.0_f64.exp()).abs() < 1e-9);
    }
}
