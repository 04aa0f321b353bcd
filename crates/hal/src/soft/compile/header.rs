//! The shim headers on disk, as text and precompiled.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use super::KernelCompiler;
use super::flag::{flags, shim_digest};
use crate::error::{Error, Result};
use crate::soft::cache::{Key, unique};
use crate::soft::shim;
use crate::soft::toolchain::{Compiler, tail};

/// Name prefix of the header directory.
const SHIM_DIR_PREFIX: &str = "shim";

/// Header files that are on disk.
#[derive(Debug, Default)]
pub(super) struct Headers {
    pub(super) directory: Option<PathBuf>,
    precompiled: HashMap<Vec<String>, PathBuf>,
}

impl KernelCompiler {
    pub(super) fn lock_headers(&self) -> MutexGuard<'_, Headers> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory with `include` and `stub`.
    pub(super) fn headers(&self) -> Result<PathBuf> {
        self.write_headers(&mut self.lock_headers(), true)
    }

    pub(super) fn write_headers(&self, headers: &mut Headers, in_cache: bool) -> Result<PathBuf> {
        if let Some(directory) = &headers.directory {
            return Ok(directory.clone());
        }
        let include = shim::HEADERS
            .iter()
            .map(|(path, text)| ("include", path, text));
        let stub = shim::STUBS.iter().map(|(path, text)| ("stub", path, text));
        let files: Vec<(String, &[u8])> = include
            .chain(stub)
            .map(|(dir, path, text)| (format!("{dir}/{path}"), text.as_bytes()))
            .collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let name = format!("{SHIM_DIR_PREFIX}-{}", &shim_digest()[..16]);
        let directory = self
            .cache
            .directory(&name, &files, in_cache)
            .map_err(|error| Error::Toolchain {
                message: format!("Metal's headers cannot be written to disk: {error}"),
            })?;
        headers.directory = Some(directory.clone());
        Ok(directory)
    }

    /// Returns the precompiled headers for these flags, and builds them if necessary: in the cache, or in a private
    /// directory if the cache is full.
    pub(super) fn precompiled(&self, compiler: &Compiler, arguments: &[String]) -> Result<PathBuf> {
        // Held while clang runs: other threads that need the headers would only repeat the work.
        let mut headers = self.lock_headers();
        if let Some(path) = headers.precompiled.get(arguments)
            && path.is_file()
        {
            return Ok(path.clone());
        }
        let fingerprint = self.fingerprint();
        // The instruction set is among the arguments.
        let key_parts = arguments
            .iter()
            .map(String::as_bytes)
            .chain([compiler.version.as_bytes(), fingerprint.as_bytes()]);
        let name = Key::new("pch", key_parts);
        let mut outcome = Ok(PathBuf::new());
        for in_cache in [true, false] {
            let directory = self.write_headers(&mut headers, in_cache)?;
            let path = directory.join(name.as_str());
            outcome = if path.is_file() {
                Ok(path)
            } else {
                self.precompile(compiler, arguments, &directory, &path)
                    .map(|()| path)
            };
            if let Ok(path) = &outcome {
                headers.precompiled.insert(arguments.to_vec(), path.clone());
                break;
            }
            *headers = Headers::default();
        }
        outcome
    }

    pub(super) fn precompile(
        &self,
        compiler: &Compiler,
        arguments: &[String],
        directory: &Path,
        target: &Path,
    ) -> Result<()> {
        let temporary = directory.join(unique());
        let mut all = arguments.to_vec();
        all.extend(flags("quiet"));
        all.extend(["-Xclang", "-fno-pch-timestamp", "-x", "c++-header"].map(str::to_owned));
        all.push(directory.join("include/shim.h").display().to_string());
        all.push("-o".to_owned());
        all.push(temporary.display().to_string());
        let _permit = self.permits.take();
        let output = compiler.run(&all, Vec::new())?;
        if !output.success {
            let _ = std::fs::remove_file(&temporary);
            return Err(Error::Toolchain {
                message: format!(
                    "`{}` cannot precompile Metal's headers{}",
                    compiler.path.display(),
                    tail(&output.stderr)
                ),
            });
        }
        std::fs::rename(&temporary, target).map_err(|error| Error::Toolchain {
            message: format!("precompiled headers cannot be renamed: {error}"),
        })
    }
}
