//! MSL as the user gives it: a file or standard input.

use crate::args::CompileArgs;
use crate::excerpt::Sources;
use crate::failure::Usage;
use anyhow::{Context as _, Result};
use bessemer_hal::CompileOptions;
use std::io::Read as _;
use std::path::Path;

/// A text with the name that messages about it have.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Source {
    /// Reads a file, or standard input for `-`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut bytes)
                .context("cannot read standard input")?;
            return Ok(Self {
                name: "<stdin>".to_owned(),
                text: lossy(bytes),
            });
        }
        let bytes = std::fs::read(path)
            .with_context(|| Usage::context(format!("cannot read {}", path.display())))?;
        Ok(Self {
            name: path.display().to_string(),
            text: lossy(bytes),
        })
    }

    /// Options that let messages point into the file; the label also tells the compiler where `#include "…"` looks first.
    pub(crate) fn options(&self, args: &CompileArgs) -> CompileOptions {
        CompileOptions {
            label: self.name.clone(),
            math_mode: args.math.into(),
            defines: args
                .define
                .iter()
                .map(|d| (d.0.clone(), d.1.clone()))
                .collect(),
            include_dirs: args.include.clone(),
        }
    }

    /// The text for excerpts.
    pub(crate) fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        sources.insert(&self.name, &self.text);
        sources
    }
}

/// Comments in old encodings are common and do no harm.
fn lossy(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}
