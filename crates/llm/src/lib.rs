//! Language models: from a file to words.
//!
//! # The map
//!
//! | where | what |
//! |---|---|
//! | [`file`] | GGUF, safetensors and llama2.c, mapped; one set of names for metadata and tensors |
//! | [`Config`] | one description of a transformer, read from the file |
//!
//! Rules of the layer: a family of models is data in [`Config`], never a fork of the code; what a file says
//! is not believed before it is checked; nothing here knows of a device, which is the engine's part.

pub mod config;
mod error;
pub mod file;

pub use config::Config;
pub use error::{Error, Result};
