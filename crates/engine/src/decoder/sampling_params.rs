//! Sampling parameters.

use crate::{Error, Result};

/// Sampling parameters, for a device or the CPU. They apply in the order of the fields: logits are biased and
/// penalised, then truncated by each limit in turn, divided by the temperature and drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Biases of the logits of tokens: their sum, if a token is named more than once. Tokens outside the vocabulary are
    /// ignored.
    pub logit_bias: Vec<(u32, f32)>,
    /// Positive logits of tokens seen are divided by it, negative ones multiplied. 1 is none.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens seen.
    pub presence_penalty: f32,
    /// Subtracted from the logits of tokens, once for every occurrence.
    pub frequency_penalty: f32,
    /// Number of last tokens that count as seen.
    pub penalty_window: usize,
    /// Keeps this many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the tokens whose information is nearest to the expected one, up to this probability mass. 1 keeps all.
    pub typical: f32,
    /// Keeps the most likely tokens, up to this probability mass. 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens with at least this fraction of the most likely one's probability. 0 keeps all.
    pub min_p: f32,
    /// Divisor of logits before the draw; 0 always takes the most likely token.
    pub temperature: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 64,
            top_k: 0,
            typical: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            temperature: 0.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Checks that every parameter is in range.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first that is not, with the valid range.
    pub fn check(&self) -> Result<()> {
        let expect = |valid: bool, what: &str, value: f32, rule: &str| {
            if valid {
                Ok(())
            } else {
                Err(Error::Invalid {
                    op: "sample",
                    reason: format!("{what} {value} must be {rule}"),
                })
            }
        };
        for (what, share) in [
            ("top-p", self.top_p),
            ("typical", self.typical),
            ("min-p", self.min_p),
        ] {
            expect((0.0..=1.0).contains(&share), what, share, "from 0 to 1")?;
        }
        let temperature = self.temperature;
        let valid = temperature >= 0.0 && temperature.is_finite();
        expect(valid, "temperature", temperature, "0 or more")?;
        let factor = self.repetition_penalty;
        let valid = factor > 0.0 && factor.is_finite();
        expect(valid, "repetition penalty", factor, "above 0")?;
        for (what, value) in [
            ("presence penalty", self.presence_penalty),
            ("frequency penalty", self.frequency_penalty),
        ] {
            expect(value.is_finite(), what, value, "a number")?;
        }
        Ok(())
    }

    /// Whether logits depend on the tokens seen.
    pub fn penalises(&self) -> bool {
        let neutral = self.repetition_penalty == 1.0
            && self.presence_penalty == 0.0
            && self.frequency_penalty == 0.0;
        !neutral && self.penalty_window > 0
    }
}
