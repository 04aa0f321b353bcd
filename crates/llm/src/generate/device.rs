//! Generation on a Metal device: sampling runs on the device, and tokens are submitted before the host has read the
//! last.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bessemer::decoder::{Counts, Decoder, DeviceSampler, Pending};

use super::{Finish, Session, Text, WhenFull};
use crate::{Cache, Error, Result, Sampling, Transformer};

/// Tokens in flight: one that the device computes, and the next ones, so that it never waits for the host.
const TOKENS_IN_FLIGHT: usize = 3;

/// Creates a device sampler whose penalties include `seen`.
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
    /// Counts the launches and bytes of a decoded token after `len` others. `None` on the CPU.
    pub fn counts(&mut self, sampling: &Sampling, len: usize) -> Result<Option<Counts>> {
        let Some(decoder) = self.transformer.decoder() else {
            return Ok(None);
        };
        let sampler = sampler(&self.transformer, sampling, &[])?;
        let sequences = self.cache.on_device().ok_or_else(wrong_device)?;
        Ok(Some(decoder.counts(sequences, &sampler, len)?))
    }

    /// Decodes after the prefill with several tokens in flight. Tokens submitted past the end are dropped.
    pub(super) fn decode_ahead(
        &mut self,
        decoder: &Decoder,
        sampler: &mut DeviceSampler,
        text: &mut Text<'_, impl FnMut(u32) -> ControlFlow<()>>,
    ) -> Result<()> {
        let result = self.decode_pipelined(decoder, sampler, text);
        let len = self.cache.len(0);
        let cut = self.cache.truncate(0, len);
        result.and(cut)
    }

    fn decode_pipelined(
        &mut self,
        decoder: &Decoder,
        sampler: &mut DeviceSampler,
        text: &mut Text<'_, impl FnMut(u32) -> ControlFlow<()>>,
    ) -> Result<()> {
        let max_tokens = text.options.max_tokens;
        let mut submitted = 0;
        let mut in_flight: VecDeque<Pending> = VecDeque::new();
        // The launch that ran this token also sampled the next one.
        let mut last = None;
        loop {
            while in_flight.len() < TOKENS_IN_FLIGHT && submitted < max_tokens {
                let Some(pending) = next(decoder, &mut self.cache, sampler, submitted == 0)? else {
                    break;
                };
                in_flight.push_back(pending);
                submitted += 1;
            }
            let Some(pending) = in_flight.pop_front() else {
                let (WhenFull::Shift { keep }, Some(token)) = (self.full, last) else {
                    text.report.finish = Finish::Context;
                    return Ok(());
                };
                self.shift(keep)?;
                text.report.shifts += 1;
                let sequences = self.cache.on_device().ok_or_else(wrong_device)?;
                sequences.set_next(0, token)?;
                continue;
            };
            let token = pending.wait()?;
            self.cache.push(0, last.as_slice());
            last = Some(token);
            if text.take(token) || text.report.ids.len() == max_tokens {
                return Ok(());
            }
        }
    }
}

/// Submits a token: the first one after the prompt, or the successor of the last sampled one. `None` if the context
/// is full.
fn next(
    decoder: &Decoder,
    cache: &mut Cache,
    sampler: &mut DeviceSampler,
    is_first: bool,
) -> Result<Option<Pending>> {
    let capacity = cache.capacity();
    let sequences = cache.on_device().ok_or_else(wrong_device)?;
    Ok(if is_first {
        Some(decoder.choose(sequences, 0, sampler)?)
    } else if sequences.len(0) == capacity {
        None
    } else {
        Some(decoder.step(sequences, 0, sampler)?)
    })
}

fn wrong_device() -> Error {
    Error::Invalid {
        what: "a cache".to_owned(),
        reason: "is not on its transformer's device".to_owned(),
    }
}
