//! A transformer that runs: weights from a file, one description for all families.
//!
//! [`Transformer::forward`] takes in tokens of one or several sequences at once; what sequences have seen is in a
//! [`Cache`]. Products are of all tokens together, attention is each sequence's own. It is written over the
//! engine's kernels on slices and not as a graph of tensors: a small model's token is some 300 calls in a few
//! milliseconds, and memory is asked for once. On a Metal device, the engine's [`Decoder`] runs the same description.

mod device;
mod layer;
mod matrix;

use std::fmt;
use std::sync::Arc;

use bessemer::decoder::Decoder;
use bessemer::kernel::{self, Rotation};
use bessemer::quant::{self, Precision, Product, QuantMatrix};
use bessemer::{Device, RopeTable};

use self::layer::Layer;
pub(crate) use self::matrix::{matrix, vector, weights};
use crate::cache::Cache;
use crate::config::Architecture;
use crate::{Config, Error, Result, file};

/// How a [`Transformer`] is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How quantised weights are multiplied. [`Precision::Fast`] repacks them in memory.
    pub precision: Precision,
    /// Positions that sequences will have at most: some scalings of positions depend on it.
    pub context: usize,
}

impl Default for Options {
    /// [`Precision::Fast`] and a context of 2048 tokens.
    fn default() -> Self {
        Self {
            precision: Precision::Fast,
            context: 2048,
        }
    }
}

/// A decoder, ready to run on the CPU or on a Metal device. Can be shared by threads.
#[derive(Debug)]
pub struct Transformer {
    config: Config,
    precision: Precision,
    context: usize,
    embedding: QuantMatrix,
    /// The embedding in the file, where nothing else is read from there.
    embedding_pages: Option<file::TensorView>,
    head: QuantMatrix,
    output_norm: Vec<f32>,
    layers: Vec<Layer>,
    /// Of layers that see everything, and of local ones.
    rotations: [Rotation; 2],
    device: Device,
    /// What computes on a device that is not the CPU; what is above is then only what it was made from.
    decoder: Option<Decoder>,
}

pub use bessemer::decoder::Logits;

/// Tokens that continue a sequence of a [`Cache`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Which of the cache's sequences.
    pub sequence: usize,
    /// What comes next.
    pub tokens: &'a [u32],
    /// Which logits are wanted.
    pub logits: Logits,
}

/// Memory that calls of [`Transformer::forward`] use one after the other.
#[derive(Debug, Default)]
pub struct Space {
    pub(crate) cancel: Cancel,
    x: Vec<f32>,
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    angles: [Vec<f32>; 2],
    logits: Vec<f32>,
}

/// Asked again and again whether to go on.
#[derive(Clone, Default)]
pub(crate) struct Cancel(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancel {
    pub(crate) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|is_set| is_set())
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").finish_non_exhaustive()
    }
}

impl Space {
    /// Calls of [`Transformer::forward`] ask this before every layer and every large product of it (on a device
    /// that is not the CPU, once a call), and end with [`Error::Cancelled`] when it says so.
    pub fn cancel_when(&mut self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) {
        self.cancel = Cancel(Some(Arc::new(is_cancelled)));
    }

    /// The logits of the last call, a row of the vocabulary's length for every one asked for.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// As [`Space::logits`], to be changed.
    pub fn logits_mut(&mut self) -> &mut [f32] {
        &mut self.logits
    }
}

/// Tokens that a prompt is taken in at a time: enough for products of matrices, few enough for the caches.
pub const BATCH: usize = 256;

impl Transformer {
    /// Reads the weights of a model, for the CPU.
    pub fn new(model: &file::Model, options: Options) -> Result<Self> {
        Self::on(&Device::cpu(), model, options)
    }

    /// Reads the weights of a model for a device. On a Metal device activations are always `f32`, whatever the
    /// precision, and a mapped file's weights stay where they are if the device can use them there.
    pub fn on(device: &Device, model: &file::Model, options: Options) -> Result<Self> {
        let config = Config::of(model)?;
        if config.architecture == Architecture::Bert {
            return Err(Error::unsupported(
                "generation with an encoder",
                "BERT models make vectors of texts: use `embed`",
            ));
        }
        let precision = if device.is_cpu() {
            options.precision
        } else {
            Precision::Exact
        };
        // Weights that are repacked are resident once: the file's pages go as soon as they were copied.
        let load = |view: &file::TensorView| {
            let matrix = matrix(view)?;
            Ok::<_, Error>(match precision {
                Precision::Fast => matrix.repacked_with(&|range| view.release(range)),
                Precision::Exact => matrix,
            })
        };
        let weight = |name: &str| config.weight(model, name);
        let layers = (0..config.layers)
            .map(|i| Layer::new(&config, model, i, &load))
            .collect::<Result<_>>()?;
        let embedding_view = weight("token_embd.weight")?;
        let embedding = matrix(&embedding_view)?;
        let head = if config.tied_head {
            load(&embedding_view)?
        } else {
            load(&weight("output.weight")?)?
        };
        let is_only_embedding = !config.tied_head || head.is_repacked();
        let embedding_pages = (device.is_cpu() && is_only_embedding).then_some(embedding_view);
        let mut output_norm = vector(&weight("output_norm.weight")?)?;
        offset(&config, &mut output_norm);
        let table = |is_local: bool| {
            // A layer of the kind, or any where there is none: then it is not used.
            let layer = config.local_layers.iter().position(|&l| l == is_local);
            let table = config.rope_table(layer.unwrap_or(0), options.context)?;
            table.ok_or_else(|| {
                Error::unsupported("a decoder without rotary embeddings", "none is known")
            })
        };
        let tables: [RopeTable; 2] = [table(false)?, table(true)?];
        let mut transformer = Self {
            rotations: [Rotation::new(&tables[0])?, Rotation::new(&tables[1])?],
            precision,
            context: options.context,
            embedding,
            embedding_pages,
            head,
            output_norm,
            layers,
            config,
            device: device.clone(),
            decoder: None,
        };
        if !device.is_cpu() {
            let spec = transformer.spec(tables);
            transformer.decoder = Some(Decoder::new(device, spec)?);
        }
        Ok(transformer)
    }

    /// The description.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How quantised weights are multiplied.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Positions that sequences may have.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of weights that one token reads.
    pub fn bytes_per_token(&self) -> usize {
        let row = self.embedding.bytes().len() / self.config.vocab.max(1);
        let norms = 4 * self.output_norm.len();
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        layers + self.head.bytes_read() + row + norms
    }

    /// Takes in tokens of these sequences, each of which is there at most once. They grow by them, and
    /// [`Space::logits`] has the logits asked for, in the order of the inputs. On an error they hold what they held.
    pub fn forward(
        &self,
        cache: &mut Cache,
        inputs: &[Input<'_>],
        space: &mut Space,
    ) -> Result<()> {
        self.check(cache, inputs)?;
        space.cancel.check()?;
        if let Some(decoder) = &self.decoder {
            return device::forward(decoder, cache, inputs, &mut space.logits);
        }
        let width = self.config.width;
        let count: usize = inputs.iter().map(|i| i.tokens.len()).sum();
        room(&mut space.x, count * width);
        let ids = inputs.iter().flat_map(|i| i.tokens);
        for (&id, x) in ids.zip(space.x.chunks_exact_mut(width)) {
            self.embed(id as usize, x);
        }
        if self.config.embedding_scale != 1.0 {
            let scale = self.config.embedding_scale as f32;
            space.x[..count * width]
                .iter_mut()
                .for_each(|x| *x *= scale);
        }
        for (rotation, angles) in self.rotations.iter().zip(&mut space.angles) {
            room(angles, count * rotation.len());
            let mut rows = angles.chunks_exact_mut(rotation.len().max(1));
            for input in inputs {
                let first = cache.len(input.sequence);
                for i in 0..input.tokens.len() {
                    if let Some(row) = rows.next() {
                        rotation.angles(first + i, row);
                    }
                }
            }
        }
        for (i, layer) in self.layers.iter().enumerate() {
            self.layer((i, layer), cache, inputs, count, space)?;
        }
        for input in inputs {
            cache.push(input.sequence, input.tokens);
        }
        self.logits(inputs, space)
    }

    /// The row of a token in the embedding. Its pages do not stay resident: with those around it every row brings
    /// 64 KiB to 2 MiB, which would soon be all of the matrix, beside the output head that it is repacked as.
    fn embed(&self, id: usize, to: &mut [f32]) {
        self.embedding.row(id, to);
        if let Some(pages) = &self.embedding_pages {
            let row = self.embedding.bytes().len() / self.embedding.rows().max(1);
            pages.release(id * row..(id + 1) * row);
        }
    }

    fn check(&self, cache: &Cache, inputs: &[Input<'_>]) -> Result<()> {
        if !cache.fits(&self.config, self.decoder.is_none()) {
            return Err(Error::Invalid {
                what: "the cache".to_owned(),
                reason: "was made for another transformer".to_owned(),
            });
        }
        for (i, input) in inputs.iter().enumerate() {
            let again = inputs[..i].iter().any(|o| o.sequence == input.sequence);
            if again || input.sequence >= cache.sequences() {
                return Err(Error::Invalid {
                    what: format!("sequence {}", input.sequence),
                    reason: if again {
                        "is there twice".to_owned()
                    } else {
                        format!("the cache has {}", cache.sequences())
                    },
                });
            }
            if let Some(id) = input
                .tokens
                .iter()
                .find(|&&t| t as usize >= self.config.vocab)
            {
                return Err(Error::Invalid {
                    what: format!("token {id}"),
                    reason: format!("the vocabulary has {}", self.config.vocab),
                });
            }
            let len = cache.len(input.sequence) + input.tokens.len();
            if len > cache.capacity() {
                return Err(Error::ContextFull {
                    needed: len,
                    context: cache.capacity(),
                });
            }
        }
        Ok(())
    }

    fn logits(&self, inputs: &[Input<'_>], space: &mut Space) -> Result<()> {
        let width = self.config.width;
        let mut at = 0;
        let mut rows = 0;
        // The rows asked for, moved to the front; they never move backwards.
        for input in inputs {
            let n = input.tokens.len();
            let wanted = match input.logits {
                Logits::None => 0,
                Logits::Last => n.min(1),
                Logits::All => n,
            };
            let from = (at + n - wanted) * width..(at + n) * width;
            space.x.copy_within(from, rows * width);
            rows += wanted;
            at += n;
        }
        let vocab = self.config.vocab;
        space.logits.resize(rows * vocab, 0.0);
        if rows == 0 {
            return Ok(());
        }
        let x = &space.x[..rows * width];
        let normed = &mut space.normed[..rows * width];
        let eps = self.config.norm.eps as f32;
        kernel::rms_norm(x, &self.output_norm, eps, normed);
        let to = &mut space.logits;
        let matrix = &self.head;
        let products = &mut [Product { matrix, to }];
        // One row of many: more precision costs nothing here, and a third of what rounding activations to 8 bits
        // does to the probabilities of tokens is done by this product (Kullback-Leibler, SmolLM2 in Q4_1: 0.0044 to
        // 0.0031). Keys, queries and values are the next (0.0016), but prompts would take a sixth longer. Values
        // alone take off a fifth of it, for a second call a layer.
        match self.precision {
            Precision::Fast => quant::multiply_fine(normed, products)?,
            Precision::Exact => quant::multiply(normed, self.precision, products)?,
        }
        if let Some(cap) = self.config.final_softcap {
            kernel::soft_cap(&mut space.logits, cap as f32);
        }
        Ok(())
    }
}

/// Makes sure that there is room for `len` numbers.
fn room(buffer: &mut Vec<f32>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}

/// Adds what the family adds to the weights of norms.
fn offset(config: &Config, weights: &mut [f32]) {
    for w in weights {
        *w += config.norm.offset as f32;
    }
}
