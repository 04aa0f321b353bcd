//! Tensors in files: NumPy's `.npy` and `.npz`, and safetensors.
//!
//! What a file says is not believed: every length is compared with the length of the file before memory
//! is asked for, and whatever does not fit is an [`Error::File`]. Files are written under another name
//! and renamed when they are complete, so that a file is never seen half written.

mod map;
pub mod npy;
pub mod npz;
pub mod safetensors;
pub mod zip;

pub use map::Mapping;

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::storage::Storage;
use crate::{DType, Error, Result, Shape, Tensor};

fn bad(path: &Path, reason: impl Display) -> Error {
    Error::File {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

/// What is left of a file, or of a part of one.
struct Reader<'a, R> {
    from: R,
    left: u64,
    path: &'a Path,
}

impl<'a, R: Read> Reader<'a, R> {
    fn new(from: R, left: u64, path: &'a Path) -> Self {
        Self { from, left, path }
    }

    fn bad(&self, reason: impl Display) -> Error {
        bad(self.path, reason)
    }

    /// An error where fewer than `len` bytes are left.
    fn has(&self, len: u64, what: &str) -> Result<()> {
        if len <= self.left {
            return Ok(());
        }
        let left = self.left;
        Err(self.bad(format_args!(
            "{what} needs {len} bytes, but only {left} are left"
        )))
    }

    /// The next bytes.
    fn fill(&mut self, to: &mut [u8], what: &str) -> Result<()> {
        self.has(to.len() as u64, what)?;
        self.from
            .read_exact(to)
            .map_err(|e| self.bad(format_args!("{what}: {e}")))?;
        self.left -= to.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.fill(&mut out, what)?;
        Ok(out)
    }

    /// As many of the next bytes, if there are as many.
    fn bytes(&mut self, len: u64, what: &str) -> Result<Vec<u8>> {
        self.has(len, what)?;
        let len = usize::try_from(len).map_err(|_| self.bad("larger than the address space"))?;
        let mut out = vec![0; len];
        self.fill(&mut out, what)?;
        Ok(out)
    }

    /// The next bytes as a tensor, row-major, little-endian.
    fn tensor(&mut self, op: &'static str, dtype: DType, shape: Shape) -> Result<Tensor> {
        let mut storage = self.storage(op, dtype, shape)?;
        if cfg!(target_endian = "big") {
            swap(storage.bytes_mut().expect("just made"), dtype.size());
        }
        Ok(Tensor::from_storage(dtype, shape, storage))
    }

    /// The next bytes, as many as a tensor has, in the order they have.
    fn storage(&mut self, op: &'static str, dtype: DType, shape: Shape) -> Result<Storage> {
        let len = shape.count() * dtype.size();
        self.has(len as u64, "the data")?;
        let mut storage = Storage::new(op, len)?;
        let bytes = storage.bytes_mut().expect("just made");
        self.fill(bytes, "the data")?;
        if dtype == DType::Bool {
            truths(bytes);
        }
        Ok(storage)
    }
}

/// Makes every byte that is not 0 a 1: what kernels expect of `bool`.
fn truths(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
}

/// Turns the byte order of every element round.
fn swap(bytes: &mut [u8], size: usize) {
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// Opens a file for reading, and says how long it is.
fn open(path: &Path) -> Result<(File, u64)> {
    let open = || -> io::Result<_> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        Ok((file, meta))
    };
    let (file, meta) = open().map_err(|e| bad(path, e))?;
    if meta.is_dir() {
        return Err(bad(path, "is a directory"));
    }
    Ok((file, meta.len()))
}

fn read(path: &Path) -> Result<Reader<'_, BufReader<File>>> {
    let (file, len) = open(path)?;
    Ok(Reader::new(BufReader::new(file), len, path))
}

/// Writes a file all at once: it has its old contents or all the new ones, whatever happens.
fn write(path: &Path, body: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let fail = |e: io::Error| bad(path, e);
    let beside = beside(path)?;
    let create = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside);
    let mut writer = BufWriter::with_capacity(1 << 16, create.map_err(fail)?);
    let finish = |mut writer: BufWriter<File>| -> io::Result<()> {
        writer.flush()?;
        writer.get_ref().sync_all()?;
        drop(writer);
        fs::rename(&beside, path)
    };
    let result = body(&mut writer).and_then(|()| finish(writer).map_err(fail));
    if result.is_err() {
        // The error that stopped the writing is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    result
}

/// A name in the same directory that no other process or thread uses.
fn beside(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(bad(path, "names no file"));
    };
    let mut own = std::ffi::OsString::from(".");
    own.push(name);
    let (process, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    own.push(format!(".{process}.{n}.tmp"));
    Ok(path.with_file_name(own))
}

/// The elements of a computed tensor in row-major order, as they are written to files.
struct Data(Tensor);

impl Data {
    fn new(tensor: &Tensor) -> Result<Self> {
        let dense = if tensor.check()?.layout().is_contiguous() {
            tensor.clone()
        } else {
            tensor.contiguous()
        };
        dense.eval()?;
        Ok(Self(dense))
    }

    fn bytes(&self) -> &[u8] {
        let storage = self.0.node.value.get().expect("evaluated");
        let size = self.0.dtype().size();
        match self.0.count() {
            0 => &[],
            n => &storage.bytes()[self.0.layout().offset() * size..][..n * size],
        }
    }
}

/// An error where a name is there twice.
fn distinct<'a>(op: &'static str, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(Error::Invalid {
            op,
            reason: format!("the name {name:?} is there twice"),
        }),
    }
}

#[cfg(test)]
mod tests;
