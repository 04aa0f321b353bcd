//! Tensors and metadata of a model as a GGUF file has them.
//!
//! A GGUF model is that already. safetensors keep llama's queries and keys in another order, Gemma's norms less 1,
//! vectors in the type of everything, and the tokenizer in a file of its own: `tokenizer.json` goes into the metadata
//! as it is, under the key that GGUF has for that.

use std::borrow::Cow;

use crate::config::Architecture;
use crate::file::{Container, Format, Metadata, Model, TensorView, Value};
use crate::{Config, Error, Result, Tokenizer};

/// Where a GGUF file keeps a `tokenizer.json`.
pub(crate) const TOKENIZER: &str = "tokenizer.huggingface.json";

/// A tensor to be written.
pub(super) struct Source {
    pub(super) view: TensorView,
    /// Rows are those of heads of so many rows, the first of which are turned in halves and shall be neighbours.
    order: Option<Halves>,
    /// Its numbers, where they are not those of the view.
    vector: Option<Vec<f32>>,
}

/// How a head's rows lie.
#[derive(Clone, Copy)]
struct Halves {
    head: usize,
    turned: usize,
}

impl Halves {
    /// Where the row is that shall be row `i`.
    fn source(self, i: usize) -> usize {
        let (head, row) = (i / self.head * self.head, i % self.head);
        head + if row < self.turned {
            row % 2 * (self.turned / 2) + row / 2
        } else {
            row
        }
    }
}

impl Source {
    /// All tensors of a model.
    pub(super) fn all(model: &Model) -> Result<Vec<Self>> {
        let plain = |view| Self {
            view,
            order: None,
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
                source.arrange(&config)?;
                Ok(source)
            })
            .collect()
    }

    fn arrange(&mut self, config: &Config) -> Result<()> {
        let name = self.view.name();
        let is_turned = [".attn_q.", ".attn_k."].iter().any(|p| name.contains(p));
        let rope = config.rope.as_ref();
        self.order = match (config.architecture, rope) {
            (Architecture::Llama, Some(rope)) if is_turned => Some(Halves {
                head: config.head_dim,
                turned: rope.dims,
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

    /// Where the row is that shall be row `i`.
    pub(super) fn row(&self, i: usize) -> usize {
        self.order.map_or(i, |order| order.source(i))
    }

    /// Its bytes in [`Source::format`].
    pub(super) fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(vector) = &self.vector {
            let bytes = vector.iter().flat_map(|v| v.to_le_bytes());
            return Ok(Cow::Owned(bytes.collect()));
        }
        if self.order.is_none() {
            return Ok(Cow::Borrowed(self.view.bytes()));
        }
        let mut bytes = Vec::with_capacity(self.view.bytes().len());
        for i in 0..self.view.shape()[0] {
            let row = self.row(i);
            bytes.extend(self.view.rows(row..row + 1)?.bytes());
        }
        Ok(Cow::Owned(bytes))
    }

    /// The format that it is in before it is quantised.
    pub(super) fn format(&self) -> Format {
        match self.vector {
            Some(_) => Format::F32,
            None => self.view.format(),
        }
    }
}

/// What the file shall say about the model.
pub(super) fn metadata(model: &Model) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    for (key, value) in model.metadata().iter() {
        // The new file is in one part.
        if key.starts_with("split.") {
            continue;
        }
        let value = match (model.container(), value) {
            (Container::Gguf, value) => value.clone(),
            // As most files have them.
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
            metadata.set(TOKENIZER, Value::String(text));
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
