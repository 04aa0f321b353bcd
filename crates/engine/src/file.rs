//! Tensors in files: NumPy's `.npy` and `.npz`, and safetensors.
//!
//! Files are not trusted: every length is compared with the length of the file before memory is allocated, and an
//! inconsistency is an [`Error::File`]. Files are written under a temporary name and renamed when they are complete, so
//! that readers never see a partial file.

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

/// The rest of a file, or of a section of one.
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

    /// Returns an error if fewer than `len` bytes are left.
    fn expect_left(&self, len: u64, what: &str) -> Result<()> {
        if len <= self.left {
            return Ok(());
        }
        let left = self.left;
        Err(self.bad(format_args!(
            "{what} needs {len} bytes, but only {left} are left"
        )))
    }

    /// Reads the next bytes into `to`.
    fn fill(&mut self, to: &mut [u8], what: &str) -> Result<()> {
        self.expect_left(to.len() as u64, what)?;
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

    /// Reads the next `len` bytes.
    fn bytes(&mut self, len: u64, what: &str) -> Result<Vec<u8>> {
        self.expect_left(len, what)?;
        let len = usize::try_from(len).map_err(|_| self.bad("larger than the address space"))?;
        let mut out = vec![0; len];
        self.fill(&mut out, what)?;
        Ok(out)
    }

    /// Reads the next bytes as a tensor, row-major, little-endian.
    fn tensor(&mut self, op: &'static str, dtype: DType, shape: Shape) -> Result<Tensor> {
        let mut storage = self.storage(op, dtype, shape)?;
        if cfg!(target_endian = "big") {
            swap_bytes(storage.bytes_mut().expect("not shared"), dtype.size());
        }
        Ok(Tensor::from_storage(dtype, shape, storage))
    }

    /// Reads the bytes of a tensor, without changing their byte order.
    fn storage(&mut self, op: &'static str, dtype: DType, shape: Shape) -> Result<Storage> {
        let len = shape.count() * dtype.size();
        self.expect_left(len as u64, "the data")?;
        let mut storage = Storage::new(op, len)?;
        let bytes = storage.bytes_mut().expect("not shared");
        self.fill(bytes, "the data")?;
        if dtype == DType::Bool {
            normalize_bools(bytes);
        }
        Ok(storage)
    }
}

/// Replaces nonzero bytes with 1, as kernels expect of `bool`.
fn normalize_bools(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
}

/// Reverses the byte order of every element.
fn swap_bytes(bytes: &mut [u8], size: usize) {
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// Opens a file for reading, and returns its length.
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

/// Writes a file atomically: it has either its old or its complete new contents.
fn write(path: &Path, body: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let fail = |e: io::Error| bad(path, e);
    let temporary = temporary_path(path)?;
    let create = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary);
    let mut writer = BufWriter::with_capacity(1 << 16, create.map_err(fail)?);
    let finish = |mut writer: BufWriter<File>| -> io::Result<()> {
        writer.flush()?;
        writer.get_ref().sync_all()?;
        drop(writer);
        fs::rename(&temporary, path)
    };
    let result = body(&mut writer).and_then(|()| finish(writer).map_err(fail));
    if result.is_err() {
        // The first error is the one to return.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// A path in the same directory that no other process or thread uses.
fn temporary_path(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(bad(path, "is not the path of a file"));
    };
    let mut unique = std::ffi::OsString::from(".");
    unique.push(name);
    let (process, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    unique.push(format!(".{process}.{n}.tmp"));
    Ok(path.with_file_name(unique))
}

/// The elements of an evaluated tensor in row-major order, as written to files.
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

/// Returns an error if a name is repeated.
fn distinct<'a>(op: &'static str, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(Error::Invalid {
            op,
            reason: format!("duplicate name {name:?}"),
        }),
    }
}

#[cfg(test)]
mod tests;
