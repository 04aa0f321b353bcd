//! Decoder-only transformer: weights from a file, one code path for all families.
//!
//! [`Transformer::forward`] runs tokens of one or several sequences of a [`Cache`]. Linear layers run on the whole
//! batch; attention runs per sequence. It calls the engine's kernels on slices instead of building a graph of
//! tensors: a token of a small model is some 300 calls in a few milliseconds, and memory is allocated once. On a
//! Metal device the engine's [`Decoder`] runs the same model.

mod device;
mod layer;
mod matrix;

use std::fmt;
use std::sync::Arc;

use bessemer::decoder::Decoder;
use bessemer::quant::{self, Precision, Product, QuantMatrix};
use bessemer::slice_kernel::{self as kernel, Rotation};
use bessemer::{Device, RopeTable};

use self::layer::Layer;
pub(crate) use self::matrix::{matrix, vector, weights};
use crate::cache::Cache;
use crate::config::Architecture;
use crate::{Config, Error, Result, file};

/// Options of a [`Transformer`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Precision of matmuls with quantised weights. [`Precision::Fast`] repacks the weights in memory.
    pub precision: Precision,
    /// Maximum context length in use; some RoPE scalings depend on it.
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

/// A transformer on the CPU or a Metal device. Can be shared between threads.
#[derive(Debug)]
pub struct Transformer {
    config: Config,
    precision: Precision,
    context: usize,
    embedding: QuantMatrix,
    /// The embedding in the file, if no other weight uses its pages.
    embedding_pages: Option<file::TensorView>,
    head: QuantMatrix,
    output_norm: Vec<f32>,
    layers: Vec<Layer>,
    /// RoPE of global and of local (sliding-window) layers.
    rotations: [Rotation; 2],
    device: Device,
    /// Runs the model on a device other than the CPU; the fields above are then only its source.
    decoder: Option<Decoder>,
}

pub use bessemer::decoder::Logits;

/// Tokens that extend a sequence of a [`Cache`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Index of the sequence in the cache.
    pub sequence: usize,
    /// Tokens to append.
    pub tokens: &'a [u32],
    /// Which logits to compute.
    pub logits: Logits,
}

/// Scratch memory of [`Transformer::forward`], reused between calls.
#[derive(Debug, Default)]
pub struct Workspace {
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

/// Cancellation callback.
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

impl Workspace {
    /// Makes [`Transformer::forward`] poll `is_cancelled` before every layer and every large matmul (on a Metal
    /// device, once per call). The call fails with [`Error::Cancelled`] if it returns true.
    pub fn cancel_when(&mut self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) {
        self.cancel = Cancel(Some(Arc::new(is_cancelled)));
    }

    /// Logits of the last call: one row of the vocabulary's length per requested token.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Mutable access to the logits; see [`Workspace::logits`].
    pub fn logits_mut(&mut self) -> &mut [f32] {
        &mut self.logits
    }
}

/// Prompt tokens per forward call: enough rows for GEMM, few enough for the CPU's caches.
pub const PREFILL_BATCH_TOKENS: usize = 256;

impl Transformer {
    /// Loads a model on the CPU.
    pub fn new(model: &file::Model, options: Options) -> Result<Self> {
        Self::on(&Device::cpu(), model, options)
    }

    /// Loads a model on a device. On a Metal device activations are always `f32`, whatever the precision, and weights
    /// of a mapped file are used in place if the device can.
    pub fn on(device: &Device, model: &file::Model, options: Options) -> Result<Self> {
        bessemer::env::check()?;
        let config = Config::of(model)?;
        if config.architecture == Architecture::Bert {
            return Err(Error::unsupported(
                "generation with an encoder",
                "BERT models compute embeddings: use `embed`",
            ));
        }
        span!(
            INFO,
            "load",
            architecture = format_args!("{}", config.architecture),
            layers = config.layers,
            device = device.name(),
            context = options.context
        );
        let precision = if device.is_cpu() {
            options.precision
        } else {
            Precision::Exact
        };
        // Repacked weights are resident once: the file's pages are released as soon as they are copied.
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
            // Any layer will do if no layer is of this kind: the table is then unused.
            let layer = config.local_layers.iter().position(|&l| l == is_local);
            let table = config.rope_table(layer.unwrap_or(0), options.context)?;
            table.ok_or_else(|| {
                Error::unsupported("a decoder without RoPE", "no such model is known")
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

    /// The model's config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Precision of matmuls with quantised weights.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Maximum context length.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Device of the weights.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of weights read per token.
    pub fn bytes_per_token(&self) -> usize {
        let row = self.embedding.bytes().len() / self.config.vocab.max(1);
        let norms = 4 * self.output_norm.len();
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        layers + self.head.bytes_read() + row + norms
    }

    /// Appends tokens to sequences, each given at most once. [`Workspace::logits`] then holds the requested logits,
    /// in the order of the inputs. On an error the sequences are unchanged.
    pub fn forward(
        &self,
        cache: &mut Cache,
        inputs: &[Input<'_>],
        workspace: &mut Workspace,
    ) -> Result<()> {
        self.check(cache, inputs)?;
        workspace.cancel.check()?;
        span!(
            DEBUG,
            "forward",
            sequences = inputs.len(),
            tokens = inputs.iter().map(|i| i.tokens.len()).sum::<usize>()
        );
        if let Some(decoder) = &self.decoder {
            return device::forward(decoder, cache, inputs, &mut workspace.logits);
        }
        let width = self.config.width;
        let count: usize = inputs.iter().map(|i| i.tokens.len()).sum();
        grow(&mut workspace.x, count * width);
        let ids = inputs.iter().flat_map(|i| i.tokens);
        for (&id, x) in ids.zip(workspace.x.chunks_exact_mut(width)) {
            self.embed(id as usize, x);
        }
        if self.config.embedding_scale != 1.0 {
            let scale = self.config.embedding_scale as f32;
            workspace.x[..count * width]
                .iter_mut()
                .for_each(|x| *x *= scale);
        }
        for (rotation, angles) in self.rotations.iter().zip(&mut workspace.angles) {
            grow(angles, count * rotation.len());
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
            self.layer(i, layer, cache, inputs, count, workspace)?;
        }
        for input in inputs {
            cache.push(input.sequence, input.tokens);
        }
        self.logits(inputs, workspace)
    }

    /// Reads a row of the embedding and releases its pages: with read-ahead every row brings in 64 KiB to 2 MiB, soon
    /// the whole matrix, in addition to the repacked output head.
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
                        "is given twice".to_owned()
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

    fn logits(&self, inputs: &[Input<'_>], workspace: &mut Workspace) -> Result<()> {
        let width = self.config.width;
        let mut at = 0;
        let mut rows = 0;
        // Moves the requested rows to the front; a row never moves backwards.
        for input in inputs {
            let n = input.tokens.len();
            let wanted = match input.logits {
                Logits::None => 0,
                Logits::Last => n.min(1),
                Logits::All => n,
            };
            let from = (at + n - wanted) * width..(at + n) * width;
            workspace.x.copy_within(from, rows * width);
            rows += wanted;
            at += n;
        }
        let vocab = self.config.vocab;
        workspace.logits.resize(rows * vocab, 0.0);
        if rows == 0 {
            return Ok(());
        }
        let x = &workspace.x[..rows * width];
        let normed = &mut workspace.normed[..rows * width];
        let eps = self.config.norm.eps as f32;
        kernel::rms_norm(x, &self.output_norm, eps, normed);
        let to = &mut workspace.logits;
        let matrix = &self.head;
        let products = &mut [Product { matrix, to }];
        // Higher precision costs nothing for the one row of many, and this matmul causes a third of the error of
        // rounding activations to 8 bits (KL divergence, SmolLM2 in Q4_1: 0.0044 to 0.0031). Q, K and V come next
        // (0.0016), but would make prefill a sixth slower. V alone removes a fifth of the error, for a second call
        // per layer.
        match self.precision {
            Precision::Fast => quant::multiply_fine(normed, products)?,
            Precision::Exact => quant::multiply(normed, self.precision, products)?,
        }
        if let Some(cap) = self.config.final_softcap {
            kernel::soft_cap(&mut workspace.logits, cap as f32);
        }
        Ok(())
    }
}

/// Grows a buffer to at least `len` elements.
fn grow(buffer: &mut Vec<f32>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}

/// Adds the family's offset to the weights of a norm.
fn offset(config: &Config, weights: &mut [f32]) {
    for w in weights {
        *w += config.norm.offset as f32;
    }
}
