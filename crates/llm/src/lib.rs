//! Language models: from a file to words.
//!
//! # The map
//!
//! | where | what |
//! |---|---|
//! | [`file`] | GGUF, safetensors and llama2.c, mapped; one set of names for metadata and tensors |
//! | [`Config`] | one description of a transformer, read from the file |
//! | [`Tokenizer`] | text to tokens and back |
//! | [`pull`] | models by name, fetched and checked |
//! | [`ChatTemplate`] | a conversation as the text that a model was trained on |
//!
//! Rules of the layer: a family of models is data in [`Config`], never a fork of the code; what a file says
//! is not believed before it is checked; nothing here knows of a device, which is the engine's part.

mod chat;
pub mod config;
mod error;
pub mod file;
pub mod pull;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use config::Config;
pub use error::{Error, Result};
pub use tokenizer::{EncodeOptions, Stream, Tokenizer};
