//! Language models: from a file to words.
//!
//! # The map
//!
//! | where | what |
//! |---|---|
//! | [`file`](mod@file) | GGUF, safetensors and llama2.c, mapped; one set of names for metadata and tensors |
//! | [`Config`] | one description of a transformer, read from the file |
//! | [`Tokenizer`] | text to tokens and back |
//! | [`pull`] | models by name, fetched and checked |
//! | [`ChatTemplate`] | a conversation as the text that a model was trained on |
//! | [`mod@quantize`] | a model's weights in fewer bits |
//! | [`Transformer`], [`Cache`] | a decoder that runs, and what a sequence has seen |
//! | [`Encoder`] | a BERT that makes vectors of texts |
//! | [`Sampler`] | from logits to a token |
//! | [`generate`] | from a prompt to a text, piece by piece |
//! | [`perplexity`] | how well a model foretells a text |
//! | [`memory`] | how much a model will need |
//!
//! Rules of the layer: a family of models is data in [`Config`], never a fork of the code; what a file says
//! is not believed before it is checked; nothing here knows of a device, which is the engine's part.

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
