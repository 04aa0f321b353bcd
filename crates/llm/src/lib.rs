//! Language model inference: from a model file to generated text.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`file`](mod@file) | memory-mapped GGUF, safetensors and llama2.c files, all under GGUF's names |
//! | [`Config`] | hyperparameters of a transformer, read from the file |
//! | [`Tokenizer`] | encoding and decoding of text |
//! | [`pull`] | downloading models by name, with checksums |
//! | [`ChatTemplate`] | rendering a conversation into a prompt |
//! | [`mod@quantize`] | quantising a model's weights |
//! | [`Transformer`], [`Cache`] | decoder-only transformer and its KV cache |
//! | [`Encoder`] | BERT text embeddings |
//! | [`Sampler`] | sampling a token from logits |
//! | [`generate`] | text generation, token by token |
//! | [`perplexity`] | perplexity of a model on a text |
//! | [`memory`] | memory estimates |
//!
//! Rules of this crate: a model family is data in [`Config`], never a fork of the code; nothing in a file is trusted
//! before it is checked; device code belongs to the engine.

#[macro_use]
mod trace;

mod cache;
mod chat;
pub mod config;
mod encoder;
mod error;
pub mod file;
pub mod generate;
#[cfg(test)]
mod kernels;
pub mod memory;
pub mod model;
pub mod perplexity;
pub mod pull;
pub mod quantize;
pub mod sample;
mod tokenizer;

pub use cache::Cache;
pub use chat::{ChatTemplate, Message, Prompt};
pub use config::Config;
pub use encoder::Encoder;
pub use error::{Error, Result};
pub use model::Transformer;
pub use sample::{Sampler, Sampling};
pub use tokenizer::{EncodeOptions, Stream, Tokenizer};
