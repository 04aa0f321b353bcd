//! MSL sources: files or standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bessemer_hal::CompileOptions;

use crate::args::CompileArgs;
use crate::excerpt::Sources;
use crate::failure::Usage;

/// A source text with its name in messages.
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

    /// Compile options; the label makes messages point into the file and is searched first by `#include "…"`.
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
            include_files: args.include_files.clone(),
            warnings: args.warnings.clone(),
        }
    }

    /// The text for excerpts.
    pub(crate) fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        sources.insert(&self.name, &self.text);
        sources
    }
}

/// Expands directories recursively to the files with an extension, sorted by name. Hidden directories are skipped, as
/// are symbolic links, which may form cycles.
pub(crate) fn expand(paths: &[PathBuf], extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        collect(path, extension, &mut files)?;
        if files.len() == before {
            return Err(Usage::error(format!(
                "no .{extension} file in {}",
                path.display()
            )));
        }
    }
    Ok(files)
}

fn collect(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    let cannot = || Usage::context(format!("cannot read {}", directory.display()));
    let entries = std::fs::read_dir(directory).with_context(cannot)?;
    let mut entries = entries
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(cannot)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().with_context(cannot)?);
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if kind.is_dir() && !is_hidden {
            collect(&path, extension, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    Ok(())
}

/// Decodes lossily: comments in old encodings are common and harmless.
fn lossy(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}
