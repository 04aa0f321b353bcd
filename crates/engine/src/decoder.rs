//! Language models on a Metal device: transformers that process tokens and sample the next ones without a round trip to
//! the host.
//!
//! A [`Spec`] describes a transformer: sizes and weights, whatever file they come from. A [`Decoder`] is one loaded
//! onto a device, and [`Sequences`] holds the KV caches. [`Decoder::forward`] processes tokens of any sequences and
//! returns logits; [`Decoder::step`] processes the token sampled last and samples the next one, and returns before
//! either is done:
//!
//! ```no_run
//! # fn f(decoder: &bessemer::decoder::Decoder, prompt: &[u32]) -> bessemer::Result<()> {
//! use bessemer::decoder::{DeviceSampler, Logits, Run, Sequences};
//! use bessemer::CacheType;
//!
//! let mut sequences = Sequences::new(decoder, CacheType::F16, 1, 2048)?;
//! let mut sampler = DeviceSampler::greedy(decoder);
//! let run = Run { slot: 0, tokens: prompt, logits: Logits::Last };
//! decoder.forward(&mut sequences, &[run], &mut Vec::new())?;
//! let first = decoder.choose(&mut sequences, 0, &mut sampler)?;
//! let second = decoder.step(&mut sequences, 0, &mut sampler)?;
//! let third = decoder.step(&mut sequences, 0, &mut sampler)?;
//! println!("{} {} {}", first.wait()?, second.wait()?, third.wait()?);
//! // Drop the tokens after a stop token.
//! sequences.truncate(0, prompt.len() + 1)?;
//! # Ok(()) }
//! ```
//!
//! A token is one command buffer whose launches are the same for every token: its id and position live in device
//! memory, and only kernels change them. A layer is five launches, six if its attention is split across threadgroups
//! (flash decoding), and one more for families that normalise queries and keys.

mod count;
mod pending;
mod plan;
mod prefill;
mod sampler;
mod sampling_params;
mod sequence;
mod spec;
mod weight;

use std::fmt;
use std::sync::Arc;

use bessemer_hal::Residency;

use self::plan::DecodePlan;
use self::sampler::SampleBuffers;
use self::weight::DecoderWeights;
use crate::kernel::CacheType;
use crate::metal::{Launch, Metal};
use crate::{Device, Error, Result};

pub use self::count::Counts;
pub use self::pending::Pending;
pub use self::sampler::DeviceSampler;
pub use self::sampling_params::Sampling;
pub use self::sequence::Sequences;
pub use self::spec::{Layer, Projection, Spec};

/// The op that errors name.
const OP: &str = "decoder";

/// A transformer on a Metal device. Cheap to clone, and can be shared by threads.
#[derive(Clone)]
pub struct Decoder(Arc<DecoderInner>);

struct DecoderInner {
    metal: Arc<Metal>,
    spec: Spec,
    weights: DecoderWeights,
    /// Keeps the weights resident, so that the first token after a pause does not wait for them.
    _resident: Residency,
}

/// Logits that a call returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// None: the tokens only extend the KV cache.
    None,
    /// Logits after the last token.
    #[default]
    Last,
    /// Logits after every token.
    All,
}

/// Tokens to append to a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Index of the sequence.
    pub slot: usize,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Logits to return.
    pub logits: Logits,
}

/// Device memory of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of matrices, each counted once.
    pub matrices: usize,
    /// Bytes of matrices that are the file's own mapped pages and take no further memory.
    pub shared: usize,
    /// Bytes of norms, biases and tables.
    pub vectors: usize,
}

impl Decoder {
    /// Loads a transformer onto a device. Matrices in a mapped file are used in place if the device supports it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the sizes do not match; [`Error::Unsupported`] on the CPU; [`Error::OutOfMemory`].
    pub fn new(device: &Device, spec: Spec) -> Result<Self> {
        spec.check()?;
        let Some(metal) = device.metal_backend() else {
            return Err(Error::Unsupported {
                op: OP,
                what: "a decoder of kernels; the CPU has a transformer of its own".to_owned(),
                device: device.name().to_owned(),
            });
        };
        let weights = DecoderWeights::new(metal, &spec)?;
        Ok(Self(Arc::new(DecoderInner {
            metal: Arc::clone(metal),
            spec,
            weights,
            _resident: metal.device.keep_resident(),
        })))
    }

    /// The specification it was made from.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// Vocabulary size.
    pub fn vocab(&self) -> usize {
        self.0.spec.vocab
    }

    /// Memory of the weights.
    pub fn memory(&self) -> Footprint {
        self.0.weights.footprint()
    }

    /// Compiles all kernels that decoding and prefill need, several at a time, so that no token waits for the compiler.
    ///
    /// # Errors
    /// [`Error::Device`], if a kernel cannot be compiled.
    pub fn warm_up(&self, sequences: &mut Sequences) -> Result<()> {
        self.check_owner(sequences)?;
        sequences.plan(self, 0)?;
        prefill::compile(self, sequences)
    }

    /// Processes tokens of several sequences and appends them to the KV caches. `to` receives the requested logits in
    /// the order of the runs, a row of the vocabulary's length for each. Waits for them.
    ///
    /// # Errors
    /// [`Error::BadIndex`] for a token or a sequence that does not exist, [`Error::Invalid`] if the tokens exceed a
    /// sequence's capacity or a sequence occurs twice, [`Error::Device`]. The sequences are then unchanged.
    pub fn forward(
        &self,
        sequences: &mut Sequences,
        runs: &[Run<'_>],
        to: &mut Vec<f32>,
    ) -> Result<()> {
        self.check_owner(sequences)?;
        for run in runs {
            sequences.wait_for(run.slot);
        }
        to.clear();
        for (i, run) in runs.iter().enumerate() {
            let len = sequences.checked_len(run.slot)?;
            if runs[..i].iter().any(|other| other.slot == run.slot) {
                return Err(invalid(format!("sequence {} occurs twice", run.slot)));
            }
            sequences.check_capacity(len + run.tokens.len())?;
            for &token in run.tokens {
                self.check_token(token)?;
            }
        }
        prefill::forward(self, sequences, runs, to)?;
        for run in runs.iter().filter(|run| !run.tokens.is_empty()) {
            sequences.extend(run.slot, run.tokens.len(), run.logits != Logits::None);
        }
        Ok(())
    }

    /// Samples a token from the logits that the last [`Decoder::forward`] left for this sequence, which must be the
    /// last of its runs. The next [`Decoder::step`] processes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no such logits; [`Error::Device`].
    pub fn choose(
        &self,
        sequences: &mut Sequences,
        slot: usize,
        sampler: &mut DeviceSampler,
    ) -> Result<Pending> {
        self.check_owner(sequences)?;
        sequences.drop_failed();
        sequences.checked_len(slot)?;
        if !sequences.has_logits(slot) {
            return Err(invalid(format!(
                "the last call has left no logits of sequence {slot} to sample from"
            )));
        }
        sequences.write_state(slot, 0)?;
        self.submit(sequences, slot, sampler, false)
    }

    /// Processes the token sampled last, or set by [`Sequences::set_next`], and samples the next one. Does not wait:
    /// several steps may be in flight.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no token or the sequence is full; [`Error::Device`]. The sequence is then
    /// unchanged.
    pub fn step(
        &self,
        sequences: &mut Sequences,
        slot: usize,
        sampler: &mut DeviceSampler,
    ) -> Result<Pending> {
        self.check_owner(sequences)?;
        sequences.drop_failed();
        let len = sequences.checked_len(slot)?;
        sequences.check_capacity(len + 1)?;
        sequences.write_next(slot)?;
        self.submit(sequences, slot, sampler, true)
    }

    /// Submits a sampling launch, preceded by the launches of a decoding step if `decodes` is set.
    fn submit(
        &self,
        sequences: &mut Sequences,
        slot: usize,
        sampler: &mut DeviceSampler,
        decodes: bool,
    ) -> Result<Pending> {
        let plan = sequences.plan(self, slot)?;
        let id = sequences.next_id_buffer();
        let buffers = SampleBuffers {
            logits: &sequences.logits(),
            token: &sequences.token(slot),
            id: &id,
        };
        let sampling = sampler.launches(&buffers)?;
        let mut commands = self.0.metal.commands("decode");
        let decoding = plan.token().filter(|_| decodes);
        let recorded = decoding
            .chain(&sampling)
            .try_for_each(|launch| launch.record(&mut commands));
        let submission = recorded.and_then(|()| commands.commit());
        let submission = submission.map_err(|e| Error::device(OP, e))?;
        Ok(sequences.register(slot, submission, id, decodes))
    }

    /// Cost of decoding a token after `len` others, in a sequence with the capacity of these, and of sampling the next
    /// one.
    ///
    /// # Errors
    /// [`Error::Device`], if a kernel cannot be compiled.
    pub fn counts(
        &self,
        sequences: &mut Sequences,
        sampler: &DeviceSampler,
        len: usize,
    ) -> Result<Counts> {
        self.check_owner(sequences)?;
        let len = len.min(sequences.positions() - 1);
        let plan = sequences.plan(self, 0)?;
        let id = sequences.next_id_buffer();
        let buffers = SampleBuffers {
            logits: &sequences.logits(),
            token: &sequences.token(0),
            id: &id,
        };
        let sampling = sampler.launches(&buffers)?;
        let mut counts = count::count(self, plan.token().chain(&sampling))?;
        let spec = &self.0.spec;
        let split_traffic = plan::split_traffic(spec, sequences.positions(), len + 1);
        counts.bytes_read += spec.cache_read(sequences.cache_type(), len + 1) + split_traffic;
        counts.bytes_written += split_traffic;
        Ok(counts)
    }

    /// Cost of prefilling an empty sequence with `tokens` tokens in one batch, with the logits of the last.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they exceed one batch or the capacity; [`Error::Device`], if a kernel cannot be compiled.
    pub fn prefill_counts(&self, sequences: &Sequences, tokens: usize) -> Result<Counts> {
        self.check_owner(sequences)?;
        prefill::counts(self, sequences, tokens)
    }

    /// Bytes of weights that decoding a token reads.
    pub fn bytes_per_token(&self) -> usize {
        self.0.weights.bytes_per_token()
    }

    fn check_token(&self, token: u32) -> Result<()> {
        if (token as usize) < self.vocab() {
            return Ok(());
        }
        Err(Error::BadIndex {
            op: OP,
            index: i64::from(token),
            len: self.vocab(),
        })
    }

    /// Returns an error if the sequences belong to another decoder.
    fn check_owner(&self, sequences: &Sequences) -> Result<()> {
        if Arc::ptr_eq(&self.0, sequences.owner()) {
            return Ok(());
        }
        Err(invalid(
            "the sequences belong to another decoder".to_owned(),
        ))
    }

    fn metal(&self) -> &Arc<Metal> {
        &self.0.metal
    }
}

impl Spec {
    /// Bytes of the keys, or of the values, of a token in a layer.
    fn cache_row(&self, kind: CacheType) -> usize {
        self.kv_heads * kind.row_bytes(self.head_dim)
    }

    /// Bytes of keys and values that the `len`-th token of a sequence reads.
    fn cache_read(&self, kind: CacheType, len: usize) -> u64 {
        let row = 2 * self.cache_row(kind);
        let seen = |layer: &Layer| layer.window.map_or(len, |w| len.min(w));
        let positions: usize = self.layers.iter().map(seen).sum();
        (plan::passes(self) * positions * row) as u64
    }
}

fn invalid(reason: String) -> Error {
    Error::Invalid { op: OP, reason }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.0.spec;
        write!(
            f,
            "Decoder({} layers, width {}, vocabulary {})",
            spec.layers.len(),
            spec.width,
            spec.vocab
        )
    }
}

const _: fn() = || {
    // Callers move these between threads, and sequences own their plans.
    fn shared<T: Send + Sync>() {}
    shared::<Decoder>();
    shared::<Pending>();
    shared::<Sequences>();
    shared::<Vec<Launch>>();
    shared::<Arc<DecodePlan>>();
};
