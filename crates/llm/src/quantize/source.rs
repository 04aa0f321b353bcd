//! Tensors and metadata of a model in GGUF's conventions.
//!
//! A GGUF model is unchanged. safetensors differ: Llama's Q and K rows are in half-split permutation, Gemma's norm weights
//! lack the 1, vectors have the type of the matrices, and the tokenizer is a separate file: `tokenizer.json` is
//! embedded in the metadata, under GGUF's key for it.

use std::borrow::Cow;

use crate::config::Architecture;
use crate::file::{Container, Format, Metadata, Model, TensorView, Value};
use crate::{Config, Error, Result, Tokenizer};

/// GGUF's metadata key for an embedded `tokenizer.json`.
pub(crate) const TOKENIZER_KEY: &str = "tokenizer.huggingface.json";

/// A tensor to write.
pub(super) struct SourceTensor {
    pub(super) view: TensorView,
    /// Permutation of the rows of Q and K from half-split to interleaved RoPE pairs.
    permutation: Option<RopePermutation>,
    /// Its values, if they differ from the view's.
    vector: Option<Vec<f32>>,
}

/// Order of the rows of a head.
#[derive(Clone, Copy)]
struct RopePermutation {
    head: usize,
    rotated: usize,
}

impl RopePermutation {
    /// Index of the source row of output row `i`.
    fn source(self, i: usize) -> usize {
        let (head, row) = (i / self.head * self.head, i % self.head);
        head + if row < self.rotated {
            row % 2 * (self.rotated / 2) + row / 2
        } else {
            row
        }
    }
}

impl SourceTensor {
    /// All tensors of a model.
    pub(super) fn all(model: &Model) -> Result<Vec<Self>> {
        let plain = |view| Self {
            view,
            permutation: None,
            vector: None,
        };
        let views = model.tensors().map(|t| model.tensor(&t.name));
        if model.container() == Container::Gguf {
            return views.map(|view| Ok(plain(view?))).collect();
        }
        let config = Config::of(model)?;
        views
            .map(|view| {
                let mut source = plain(view?);
                source.reorder_for_gguf(&config)?;
                Ok(source)
            })
            .collect()
    }

    fn reorder_for_gguf(&mut self, config: &Config) -> Result<()> {
        let name = self.view.name();
        let is_rotated = [".attn_q.", ".attn_k."].iter().any(|p| name.contains(p));
        let rope = config.rope.as_ref();
        self.permutation = match (config.architecture, rope) {
            (Architecture::Llama, Some(rope)) if is_rotated => Some(RopePermutation {
                head: config.head_dim,
                rotated: rope.dims,
            }),
            _ => None,
        };
        if self.view.shape().len() == 1 {
            let offset = if name.contains("norm") && name.ends_with(".weight") {
                config.norm.offset as f32
            } else {
                0.0
            };
            let own = self.view.to_f32()?;
            let number = |i| own[self.row(i)] + offset;
            self.vector = Some((0..own.len()).map(number).collect());
        }
        Ok(())
    }

    /// Index of the source row of output row `i`.
    pub(super) fn row(&self, i: usize) -> usize {
        self.permutation
            .map_or(i, |permutation| permutation.source(i))
    }

    /// Its bytes in [`SourceTensor::format`].
    pub(super) fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(vector) = &self.vector {
            let bytes = vector.iter().flat_map(|v| v.to_le_bytes());
            return Ok(Cow::Owned(bytes.collect()));
        }
        if self.permutation.is_none() {
            return Ok(Cow::Borrowed(self.view.bytes()));
        }
        let mut bytes = Vec::with_capacity(self.view.bytes().len());
        for i in 0..self.view.shape()[0] {
            let row = self.row(i);
            bytes.extend(self.view.rows(row..row + 1)?.bytes());
        }
        Ok(Cow::Owned(bytes))
    }

    /// Its format before quantisation.
    pub(super) fn format(&self) -> Format {
        match self.vector {
            Some(_) => Format::F32,
            None => self.view.format(),
        }
    }
}

/// The metadata to write.
pub(super) fn metadata(model: &Model) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    for (key, value) in model.metadata().iter() {
        // The output is a single file.
        if key.starts_with("split.") {
            continue;
        }
        let value = match (model.container(), value) {
            (Container::Gguf, value) => value.clone(),
            // The types that most GGUF files use.
            (_, Value::U64(n)) => u32::try_from(*n).map_or(Value::U64(*n), Value::U32),
            (_, Value::F64(n)) => Value::F32(*n as f32),
            (_, value) => value.clone(),
        };
        metadata.set(key, value);
    }
    if model.container() == Container::Safetensors {
        let tokenizer = Tokenizer::of(model)?;
        if let Some(path) = model.beside("tokenizer.json") {
            let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            metadata.set(TOKENIZER_KEY, Value::String(text));
        }
        for (name, id) in [("bos", tokenizer.bos()), ("eos", tokenizer.eos())] {
            if let Some(id) = id {
                let key = format!("tokenizer.ggml.{name}_token_id");
                metadata.set(&key, Value::U32(id));
            }
        }
    }
    Ok(metadata)
}
