//! Language models on a Metal device: transformers that take in tokens and choose the next ones, without the host
//! between them.
//!
//! A [`Spec`] is a transformer: sizes and weights, whatever file they are from. A [`Decoder`] is one on a device. What
//! sequences have seen is in their memory, [`Sequences`]. [`Decoder::forward`] takes in any tokens of any of them and
//! gives logits; [`Decoder::step`] takes in the token that was chosen last and chooses the next, and returns before
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
//! // Whatever came after a stop is dropped.
//! sequences.truncate(0, prompt.len() + 1)?;
//! # Ok(()) }
//! ```
//!
//! A token is one command buffer of launches that are the same for every token: its id and its position are in memory
//! of the device, and only kernels change them. A layer is five launches, or six where the keys are so many that
//! threadgroups share them, and one more for families with norms of queries and keys.

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

use self::plan::Plan;
use self::sampler::Choice;
use self::weight::Weights;
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
pub struct Decoder(Arc<Inner>);

struct Inner {
    metal: Arc<Metal>,
    spec: Spec,
    weights: Weights,
    /// The first token after a pause is not to wait for the weights.
    _resident: Residency,
}

/// Which logits a call gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// None: the tokens only go into the memory of the sequence.
    None,
    /// Those after the last token.
    #[default]
    Last,
    /// Those after every token.
    All,
}

/// Tokens of a sequence that continue what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Which sequence.
    pub slot: usize,
    /// What comes next.
    pub tokens: &'a [u32],
    /// Which logits are wanted.
    pub logits: Logits,
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of matrices, each counted once.
    pub matrices: usize,
    /// Bytes of those that are the file's own pages and take no memory besides.
    pub shared: usize,
    /// Bytes of norms, biases and tables.
    pub vectors: usize,
}

impl Decoder {
    /// Brings a transformer to a device. Matrices in a mapped file stay where they are, if the device can use them
    /// there.
    ///
    /// # Errors
    /// [`Error::Invalid`], where sizes do not go together; [`Error::Unsupported`] on the CPU; [`Error::OutOfMemory`].
    pub fn new(device: &Device, spec: Spec) -> Result<Self> {
        spec.check()?;
        let Some(metal) = device.metal_backend() else {
            return Err(Error::Unsupported {
                op: OP,
                what: "a transformer of launches: use one on slices, or a Metal device".to_owned(),
                device: device.name().to_owned(),
            });
        };
        let weights = Weights::new(metal, &spec)?;
        Ok(Self(Arc::new(Inner {
            metal: Arc::clone(metal),
            spec,
            weights,
            _resident: metal.device.keep_resident(),
        })))
    }

    /// What it was made from.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// Tokens there are.
    pub fn vocab(&self) -> usize {
        self.0.spec.vocab
    }

    /// Memory that the weights take.
    pub fn memory(&self) -> Footprint {
        self.0.weights.footprint()
    }

    /// Compiles all kernels that tokens need, one after the other or many at once, so that none waits for a compiler.
    ///
    /// # Errors
    /// [`Error::Device`], if a kernel cannot be compiled.
    pub fn warm_up(&self, sequences: &mut Sequences) -> Result<()> {
        self.expect(sequences)?;
        sequences.plan(self, 0)?;
        prefill::compile(self, sequences)
    }

    /// Takes in tokens of several sequences, which grow by them. `to` gets the logits asked for, in the order of the
    /// runs, a row of the vocabulary's length each. Waits for them.
    ///
    /// # Errors
    /// [`Error::BadIndex`] for a token or a sequence that does not exist, [`Error::Invalid`] where there is no room for
    /// the tokens or a sequence comes twice, [`Error::Device`]. The sequences then hold what they held.
    pub fn forward(
        &self,
        sequences: &mut Sequences,
        runs: &[Run<'_>],
        to: &mut Vec<f32>,
    ) -> Result<()> {
        self.expect(sequences)?;
        for run in runs {
            sequences.rest(run.slot);
        }
        to.clear();
        for (i, run) in runs.iter().enumerate() {
            let len = sequences.checked_len(run.slot)?;
            if runs[..i].iter().any(|other| other.slot == run.slot) {
                return Err(invalid(format!("sequence {} comes twice", run.slot)));
            }
            sequences.expect_room(len + run.tokens.len())?;
            for &token in run.tokens {
                self.check_token(token)?;
            }
        }
        prefill::forward(self, sequences, runs, to)?;
        for run in runs.iter().filter(|run| !run.tokens.is_empty()) {
            sequences.took(run.slot, run.tokens.len(), run.logits != Logits::None);
        }
        Ok(())
    }

    /// Chooses a token from the logits that the last [`Decoder::forward`] has left for this sequence, which must have been
    /// the last of its runs. The next [`Decoder::step`] takes it in.
    ///
    /// # Errors
    /// [`Error::Invalid`], where there are no such logits; [`Error::Device`].
    pub fn choose(
        &self,
        sequences: &mut Sequences,
        slot: usize,
        sampler: &mut DeviceSampler,
    ) -> Result<Pending> {
        self.expect(sequences)?;
        sequences.settle();
        sequences.checked_len(slot)?;
        if !sequences.has_logits(slot) {
            return Err(invalid(format!(
                "the last call has left no logits of sequence {slot} to choose from"
            )));
        }
        sequences.place(slot, 0)?;
        self.submit(sequences, slot, sampler, false)
    }

    /// Takes in the token that was chosen last, or set by [`Sequences::set_next`], and chooses the next. Does not wait:
    /// several steps may be on their way.
    ///
    /// # Errors
    /// [`Error::Invalid`], where there is no token or no room; [`Error::Device`]. The sequence then holds what it held.
    pub fn step(
        &self,
        sequences: &mut Sequences,
        slot: usize,
        sampler: &mut DeviceSampler,
    ) -> Result<Pending> {
        self.expect(sequences)?;
        sequences.settle();
        let len = sequences.checked_len(slot)?;
        sequences.expect_room(len + 1)?;
        sequences.place_next(slot)?;
        self.submit(sequences, slot, sampler, true)
    }

    /// Hands a choice to the device, and before it a token where `takes` is set.
    fn submit(
        &self,
        sequences: &mut Sequences,
        slot: usize,
        sampler: &mut DeviceSampler,
        takes: bool,
    ) -> Result<Pending> {
        let plan = sequences.plan(self, slot)?;
        let id = sequences.room_for_id();
        let choice = Choice {
            logits: &sequences.logits(),
            token: &sequences.token(slot),
            id: &id,
        };
        let choosing = sampler.launches(&choice)?;
        let mut commands = self.0.metal.commands("decode");
        let taking = plan.token().filter(|_| takes);
        let recorded = taking
            .chain(&choosing)
            .try_for_each(|launch| launch.record(&mut commands));
        let submission = recorded.and_then(|()| commands.commit());
        let submission = submission.map_err(|e| Error::device(OP, e))?;
        Ok(sequences.launched(slot, submission, id, takes))
    }

    /// What a token costs after `len` others of a sequence with room for as many as these have, and what choosing the
    /// next costs.
    ///
    /// # Errors
    /// [`Error::Device`], if a kernel cannot be compiled.
    pub fn counts(
        &self,
        sequences: &mut Sequences,
        sampler: &DeviceSampler,
        len: usize,
    ) -> Result<Counts> {
        self.expect(sequences)?;
        let len = len.min(sequences.positions() - 1);
        let plan = sequences.plan(self, 0)?;
        let id = sequences.room_for_id();
        let choice = Choice {
            logits: &sequences.logits(),
            token: &sequences.token(0),
            id: &id,
        };
        let choosing = sampler.launches(&choice)?;
        let mut counts = count::of(self, plan.token().chain(&choosing))?;
        let spec = &self.0.spec;
        let joined = plan::joined(spec, sequences.positions(), len + 1);
        counts.bytes_read += spec.cache_read(sequences.cache_type(), len + 1) + joined;
        counts.bytes_written += joined;
        Ok(counts)
    }

    /// What taking in so many tokens of an empty sequence at once costs, with the logits of the last.
    ///
    /// # Errors
    /// [`Error::Invalid`], where that is more than one batch; [`Error::Device`], if a kernel cannot be compiled.
    pub fn prefill_counts(&self, sequences: &Sequences, tokens: usize) -> Result<Counts> {
        self.expect(sequences)?;
        prefill::counts(self, sequences, tokens)
    }

    /// Bytes of weights that a token reads.
    pub fn bytes_per_token(&self) -> usize {
        self.0.weights.read_by_a_token()
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

    /// An error where the memory is another transformer's.
    fn expect(&self, sequences: &Sequences) -> Result<()> {
        if Arc::ptr_eq(&self.0, sequences.owner()) {
            return Ok(());
        }
        Err(invalid("the sequences are another decoder's".to_owned()))
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

    /// Bytes of keys and values that a token reads which is the `len`-th of its sequence.
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

#[expect(dead_code, reason = "says at compile time what callers rely on")]
fn can_be_shared() {
    fn of<T: Send + Sync>() {}
    of::<Decoder>();
    of::<Pending>();
    of::<Sequences>();
    of::<Vec<Launch>>();
    of::<Plan>();
}
