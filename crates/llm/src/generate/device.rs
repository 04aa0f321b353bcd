//! Generation on a device: tokens are chosen there, and the next ones begun before the host has seen the last.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bessemer::decoder::{Counts, Decoder, DeviceSampler, Pending};

use super::{Finish, Full, Session, Text};
use crate::{Cache, Error, Result, Sampling, Transformer};

/// Tokens on their way at once: one that the device works on, and those that it finds when it is done.
const AHEAD: usize = 3;

/// A sampler on the device that has seen these tokens.
pub(super) fn sampler(
    transformer: &Transformer,
    sampling: &Sampling,
    seen: &[u32],
) -> Result<DeviceSampler> {
    let vocab = transformer.config().vocab;
    let mut sampler = DeviceSampler::new(transformer.device(), sampling.clone(), vocab)?;
    sampler.reset(seen)?;
    Ok(sampler)
}

impl Session {
    /// What a token costs after so many others, where the model is on a device that is not the CPU.
    pub fn counts(&mut self, sampling: &Sampling, len: usize) -> Result<Option<Counts>> {
        let Some(decoder) = self.transformer.decoder() else {
            return Ok(None);
        };
        let sampler = sampler(&self.transformer, sampling, &[])?;
        let sequences = self.cache.on_device().ok_or_else(elsewhere)?;
        Ok(Some(decoder.counts(sequences, &sampler, len)?))
    }

    /// Goes on after a prompt that was taken in, with several tokens on their way. What was begun after the end is
    /// forgotten.
    pub(super) fn decode_ahead(
        &mut self,
        decoder: &Decoder,
        sampler: &mut DeviceSampler,
        text: &mut Text<'_, impl FnMut(u32) -> ControlFlow<()>>,
    ) -> Result<()> {
        let result = self.ahead(decoder, sampler, text);
        let len = self.cache.len(0);
        let cut = self.cache.truncate(0, len);
        result.and(cut)
    }

    fn ahead(
        &mut self,
        decoder: &Decoder,
        sampler: &mut DeviceSampler,
        text: &mut Text<'_, impl FnMut(u32) -> ControlFlow<()>>,
    ) -> Result<()> {
        let most = text.options.max_tokens;
        let mut asked = 0;
        let mut coming: VecDeque<Pending> = VecDeque::new();
        // The token that comes next was chosen by the step that took this one in.
        let mut last = None;
        loop {
            while coming.len() < AHEAD && asked < most {
                let Some(pending) = next(decoder, &mut self.cache, sampler, asked == 0)? else {
                    break;
                };
                coming.push_back(pending);
                asked += 1;
            }
            let Some(pending) = coming.pop_front() else {
                let (Full::Shift { keep }, Some(token)) = (self.full, last) else {
                    text.report.finish = Finish::Context;
                    return Ok(());
                };
                self.shift(keep)?;
                text.report.shifts += 1;
                let sequences = self.cache.on_device().ok_or_else(elsewhere)?;
                sequences.set_next(0, token)?;
                continue;
            };
            let token = pending.wait()?;
            self.cache.push(0, last.as_slice());
            last = Some(token);
            if text.take(token) || text.report.ids.len() == most {
                return Ok(());
            }
        }
    }
}

/// Begins a token: the first one after a prompt, or the one after the token that was chosen last. `None` where there
/// is no room for that one.
fn next(
    decoder: &Decoder,
    cache: &mut Cache,
    sampler: &mut DeviceSampler,
    is_first: bool,
) -> Result<Option<Pending>> {
    let capacity = cache.capacity();
    let sequences = cache.on_device().ok_or_else(elsewhere)?;
    Ok(if is_first {
        Some(decoder.choose(sequences, 0, sampler)?)
    } else if sequences.len(0) == capacity {
        None
    } else {
        Some(decoder.step(sequences, 0, sampler)?)
    })
}

fn elsewhere() -> Error {
    Error::Invalid {
        what: "a cache".to_owned(),
        reason: "is not on the device of its transformer".to_owned(),
    }
}
