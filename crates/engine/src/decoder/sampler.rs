//! Sampling on the device.
//!
//! The result is that of the CPU's sampler: logits are biased and penalised, truncated by each limit in turn, divided
//! by the temperature and drawn from, and the same seed draws the same random numbers. Weights are rounded to 2^-40 and
//! added exactly here, where the CPU adds floats; so the two sample the same token unless a sum comes that close to a
//! limit. If the greatest logit is infinite there are no probabilities, and the first of the greatest is taken.

use std::sync::Arc;

use bessemer_hal::BufferSlice;
use bytemuck::NoUninit;

use super::{Decoder, Sampling};
use crate::metal::decoder_args::{LogitBias, SampleArgs, SamplerState, TokenRecord};
use crate::metal::{Block, Kernel, Launch, Metal, Recorder};
use crate::{Device, Error, Result};

const OP: &str = "sample";

/// Maximum vocabulary size that fits the entries of the kernel.
const MAX_VOCAB_TOKENS: usize = 1 << 20;

/// Maximum threads of the only threadgroup.
const MAX_THREADS: usize = 1024;

/// The penalty history.
struct PenaltyHistory {
    /// A [`TokenRecord`] of every token.
    records: Block,
    /// The last tokens, number `n` at `n` modulo the window.
    history: Block,
}

/// Buffers of a sampling launch.
pub(super) struct SampleBuffers<'a> {
    /// A logit for every token.
    pub(super) logits: &'a BufferSlice,
    /// The token that the next step processes, a `uint`.
    pub(super) token: &'a BufferSlice,
    /// The copy for the host to read, a `uint`.
    pub(super) id: &'a BufferSlice,
}

/// Samples tokens on a Metal device without a round trip to the host: the state of the random numbers and the tokens
/// seen are in device memory, and every token is the same launch.
pub struct DeviceSampler {
    metal: Arc<Metal>,
    sampling: Sampling,
    vocab: usize,
    kernel: Kernel,
    options: SampleArgs,
    biases: Option<Block>,
    state: Option<Block>,
    penalty_history: Option<PenaltyHistory>,
}

impl DeviceSampler {
    /// Creates a sampler at the start of its random numbers, with no tokens seen.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a parameter is out of range, [`Error::Unsupported`] on the CPU, and if memory runs out.
    pub fn new(device: &Device, sampling: Sampling, vocab: usize) -> Result<Self> {
        let metal = device.metal_backend().ok_or_else(|| Error::Unsupported {
            op: OP,
            what: "sampling by a kernel; the CPU has its own sampler".to_owned(),
            device: device.name().to_owned(),
        })?;
        sampling.check()?;
        if vocab == 0 || vocab > MAX_VOCAB_TOKENS {
            return Err(Error::Invalid {
                op: OP,
                reason: format!(
                    "unsupported vocabulary {vocab}: must be from 1 to {MAX_VOCAB_TOKENS}"
                ),
            });
        }
        let biases = biases(&sampling, vocab);
        let mut sampler = Self::build(metal, sampling, vocab);
        if !biases.is_empty() {
            sampler.biases = Some(copy_of(metal, &biases)?);
        }
        sampler.reset(&[])?;
        Ok(sampler)
    }

    fn build(metal: &Arc<Metal>, sampling: Sampling, vocab: usize) -> Self {
        let biases = biases(&sampling, vocab);
        let (is_greedy, penalises) = (sampling.temperature == 0.0, sampling.penalises());
        let fraction = |share: f32| (f64::from(share) * 2.0_f64.powi(64)) as u64;
        let options = SampleArgs {
            typical: fraction(sampling.typical),
            top_p: fraction(sampling.top_p),
            vocab: vocab as u32,
            biases: biases.len() as u32,
            // A longer window would exceed any text.
            window: sampling.penalty_window.min(MAX_VOCAB_TOKENS) as u32,
            top_k: sampling.top_k.min(MAX_VOCAB_TOKENS) as u32,
            repetition: sampling.repetition_penalty,
            presence: sampling.presence_penalty,
            frequency: sampling.frequency_penalty,
            min_p: sampling.min_p,
            sharpness: if is_greedy {
                0.0
            } else {
                1.0 / sampling.temperature
            },
            padding: 0,
        };
        let kernel = Kernel::new("sample", "sample")
            .flag("BIAS", !biases.is_empty())
            .flag("PENALTY", penalises)
            .flag("GREEDY", is_greedy)
            .flag("TOP_K", sampling.top_k > 0 && sampling.top_k < vocab)
            .flag("TYPICAL", sampling.typical < 1.0)
            .flag("TOP_P", sampling.top_p < 1.0)
            .flag("STATE", penalises || !is_greedy)
            .flag("IN_PLACE", penalises || !biases.is_empty())
            .flag("READ_ONLY", !penalises && biases.is_empty());
        Self {
            metal: Arc::clone(metal),
            sampling,
            vocab,
            kernel,
            options,
            biases: None,
            state: None,
            penalty_history: None,
        }
    }

    /// A greedy sampler: always the most likely token, the first of equals.
    pub fn greedy(decoder: &Decoder) -> Self {
        Self::build(decoder.metal(), Sampling::default(), decoder.vocab())
    }

    /// The sampling parameters.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Returns to the start of the random numbers, with these tokens seen.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn reset(&mut self, seen: &[u32]) -> Result<()> {
        self.resume(seen, 0)
    }

    /// Continues after `draws` draws, with these tokens seen. Steps in flight keep the state they use.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn resume(&mut self, seen: &[u32], draws: u64) -> Result<()> {
        let window = self.options.window as usize;
        if self.sampling.penalises() {
            let mut records = vec![TokenRecord::default(); self.vocab];
            let mut history = vec![u32::MAX; window];
            let first = seen.len().saturating_sub(window);
            for (number, &token) in seen.iter().enumerate().skip(first) {
                if let Some(record) = records.get_mut(token as usize) {
                    record.count += 1;
                    record.last = number as u32;
                    history[number % window] = token;
                }
            }
            self.penalty_history = Some(PenaltyHistory {
                records: copy_of(&self.metal, &records)?,
                history: copy_of(&self.metal, &history)?,
            });
        }
        if !self.has_state() {
            return Ok(());
        }
        let state = SamplerState {
            seed: self.sampling.seed,
            draws,
            seen: seen.len() as u32,
            padding: 0,
        };
        self.state = Some(copy_of(&self.metal, &[state])?);
        Ok(())
    }

    /// Whether any state is carried from token to token.
    fn has_state(&self) -> bool {
        self.sampling.temperature != 0.0 || self.sampling.penalises()
    }

    /// Whether logits are changed in place.
    fn changes(&self) -> bool {
        self.options.biases > 0 || self.sampling.penalises()
    }

    /// Samples the next token from logits on the host. The token counts as seen from now on.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are not as many logits as tokens, and if the device fails.
    pub fn next(&mut self, logits: &[f32]) -> Result<u32> {
        if logits.len() != self.vocab {
            return Err(Error::Invalid {
                op: OP,
                reason: format!("{} logits for {} tokens", logits.len(), self.vocab),
            });
        }
        let logits = copy_of(&self.metal, logits)?;
        let words = copy_of(&self.metal, &[0_u32; 128])?;
        let [token, id] = [0, 256].map(|at| words.slice(at..at + 4));
        let launches = self.launches(&SampleBuffers {
            logits: &logits.all(),
            token: &token,
            id: &id,
        })?;
        let run = || {
            let mut commands = self.metal.commands("sample");
            launches.iter().try_for_each(|l| l.record(&mut commands))?;
            commands.commit()?.wait()?;
            let mut word = [0_u32];
            id.buffer().read(id.offset(), &mut word)?;
            Ok(word[0])
        };
        run().map_err(|e| Error::device(OP, e))
    }

    /// The launch that samples a token. Biases and penalties change the logits in place.
    pub(super) fn launches(&self, buffers: &SampleBuffers<'_>) -> Result<Vec<Launch>> {
        if self.vocab > MAX_VOCAB_TOKENS || buffers.logits.length() != 4 * self.vocab {
            return Err(Error::Invalid {
                op: OP,
                reason: format!(
                    "{} logits for {} tokens, of which at most {MAX_VOCAB_TOKENS} are supported",
                    buffers.logits.length() / 4,
                    self.vocab
                ),
            });
        }
        let mut recorder = Recorder::new(&self.metal, OP);
        let mut launch = recorder.launch(&self.kernel)?;
        let limit = launch.max_threads().min(MAX_THREADS);
        let threads = self.vocab.next_power_of_two().clamp(32, 1 << limit.ilog2());
        launch = if self.changes() {
            launch.skip().update(buffers.logits)
        } else {
            launch.read(buffers.logits).skip()
        };
        launch = match &self.biases {
            Some(biases) => launch.read(biases.all()),
            None => launch.skip(),
        };
        launch = match &self.state {
            Some(state) => launch.update(state.all()),
            None => launch.skip(),
        };
        launch = match &self.penalty_history {
            Some(history) => {
                let records = history.records.all();
                launch.update(records).update(history.history.all())
            }
            None => launch.skip().skip(),
        };
        launch
            .write(buffers.token)
            .write(buffers.id)
            .value(&self.options)
            .groups(&mut recorder, 1, threads);
        recorder.into_launches()
    }
}

impl std::fmt::Debug for DeviceSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSampler")
            .field("sampling", &self.sampling)
            .field("vocab", &self.vocab)
            .finish_non_exhaustive()
    }
}

/// Biases of tokens in the vocabulary, each token once.
fn biases(sampling: &Sampling, vocab: usize) -> Vec<LogitBias> {
    let mut biases: Vec<LogitBias> = Vec::new();
    for &(token, added) in &sampling.logit_bias {
        match biases.iter_mut().find(|b| b.token == token) {
            Some(bias) => bias.added += added,
            None if (token as usize) < vocab => biases.push(LogitBias { token, added }),
            None => {}
        }
    }
    biases
}

fn copy_of<T: NoUninit>(metal: &Arc<Metal>, values: &[T]) -> Result<Block> {
    Block::copy_of(metal, OP, bytemuck::cast_slice(values))
}
