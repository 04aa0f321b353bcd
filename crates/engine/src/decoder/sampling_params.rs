//! How tokens are chosen.

use crate::{Error, Result};

/// How tokens are chosen, on a device or on the CPU. ViewStrides are taken in the order of the fields: logits are biased and
/// penalised, then cut down by each limit in turn, divided by the temperature and drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Added to the logits of tokens: all of them, where a token is named more than once. Tokens that there are not
    /// are left out.
    pub logit_bias: Vec<(u32, f32)>,
    /// Positive logits of tokens seen are divided by it, negative ones multiplied. 1 is none.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens seen.
    pub presence_penalty: f32,
    /// Subtracted from the logits of tokens, once for every time they were seen.
    pub frequency_penalty: f32,
    /// How many of the last tokens count as seen.
    pub penalty_window: usize,
    /// Only so many of the most likely tokens; 0 is all.
    pub top_k: usize,
    /// Only tokens whose information is nearest to the expected one, up to this much probability. 1 is all.
    pub typical: f32,
    /// Only the most likely tokens that have this much probability together. 1 is all.
    pub top_p: f32,
    /// Only tokens with at least this share of the most likely one's probability. 0 is all.
    pub min_p: f32,
    /// What logits are divided by before the draw; 0 always takes the most likely token.
    pub temperature: f32,
    /// What the draws depend on.
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
    /// Whether every number makes sense.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first that does not, with what would be right.
    pub fn check(&self) -> Result<()> {
        let expect = |holds: bool, what: &str, value: f32, rule: &str| {
            if holds {
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
        let heat = self.temperature;
        let holds = heat >= 0.0 && heat.is_finite();
        expect(holds, "temperature", heat, "0 or more")?;
        let factor = self.repetition_penalty;
        let holds = factor > 0.0 && factor.is_finite();
        expect(holds, "repetition penalty", factor, "above 0")?;
        for (what, value) in [
            ("presence penalty", self.presence_penalty),
            ("frequency penalty", self.frequency_penalty),
        ] {
            expect(value.is_finite(), what, value, "a number")?;
        }
        Ok(())
    }

    /// Whether anything depends on what was seen.
    pub fn penalises(&self) -> bool {
        let plain = self.repetition_penalty == 1.0
            && self.presence_penalty == 0.0
            && self.frequency_penalty == 0.0;
        !plain && self.penalty_window > 0
    }
}
