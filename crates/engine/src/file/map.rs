//! Files used where they lie, without reading them first.
#![expect(
    unsafe_code,
    reason = "that a mapped file stays as it is, is for the caller to promise"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use bessemer_hal::NO_COPY_ALIGNMENT;
use memmap2::Mmap;

use super::safetensors::{Header, Safetensors};
use super::{Reader, bad};
use crate::storage::{Bytes, Storage};
use crate::{DType, Result, Tensor};

/// The largest folio of Linux's page cache. When a page is first read, those of its folio are mapped with it, and at
/// least those of 64 KiB.
const MAX_FOLIO_BYTES: usize = 2 << 20;

/// A file mapped into memory, for reading.
#[derive(Debug)]
pub struct Mapping {
    path: PathBuf,
    map: Mmap,
}

impl Mapping {
    /// Maps a regular file.
    ///
    /// # Safety
    /// Nobody may change or shorten the file as long as it is mapped. (Replacing it by renaming another one is fine.)
    pub unsafe fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        // SAFETY: the caller promises that the file stays as it is.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Self {
            path: path.to_owned(),
            map,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Takes the pages of a range out of this process's resident memory, with those that the kernel maps around a page
    /// fault. A later read maps them again, from the page cache or from the file. Windows does so by itself when it needs
    /// the memory.
    pub fn release(&self, range: Range<usize>) {
        let start = range.start.saturating_sub(MAX_FOLIO_BYTES);
        let end = range.end.saturating_add(MAX_FOLIO_BYTES);
        let end = end.min(self.map.len());
        #[cfg(unix)]
        if start < end {
            let dont_need = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the range lies inside the mapping, which is read-only and of a file: no page of it was ever
            // written, so that reading it again finds the same bytes.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(dont_need, start, end - start)
            };
        }
        #[cfg(not(unix))]
        let _ = (start, end);
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// A part of a mapped file.
struct Part {
    map: Arc<Mapping>,
    range: Range<usize>,
}

impl Bytes for Part {
    fn bytes(&self) -> &[u8] {
        &self.map.bytes()[self.range.clone()]
    }

    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        let base = NonNull::from(self.map.bytes()).cast::<u8>();
        if !base.addr().get().is_multiple_of(NO_COPY_ALIGNMENT) {
            return None;
        }
        let start = self.range.start / NO_COPY_ALIGNMENT * NO_COPY_ALIGNMENT;
        let end = self.range.end.next_multiple_of(NO_COPY_ALIGNMENT);
        // The last page of a file is there to its end.
        let mapped = self.map.bytes().len().next_multiple_of(PAGE);
        // SAFETY: `start` lies within the map.
        let first = unsafe { base.add(start) };
        (end <= mapped).then_some((first, end - start))
    }
}

/// The least size of a page on the systems there are.
const PAGE: usize = if cfg!(target_vendor = "apple") {
    NO_COPY_ALIGNMENT
} else {
    4096
};

/// Maps a file into memory: tensors are used where they lie, the system reads what is touched, and several
/// processes share it. Tensors that are not aligned, and those of `bool`, whose bytes are not all truth
/// values, are copied.
///
/// # Safety
/// Nobody may change or shorten the file as long as one of the tensors, or a view of one, is there.
/// (Replacing it, as [`save`](super::safetensors::save) does, is fine.)
pub unsafe fn map(path: impl AsRef<Path>) -> Result<Safetensors> {
    let path = path.as_ref();
    // SAFETY: the caller promises that the file stays as it is.
    let map = unsafe { Mapping::open(path) }.map_err(|e| bad(path, e))?;
    let map = Arc::new(map);
    let header = Header::of(map.bytes(), path)?;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for entry in header.tensors {
        // Both lie in the map, whose length is a `usize`.
        let start = (header.data_start + entry.start) as usize;
        let end = (header.data_start + entry.end) as usize;
        let bytes = &map.bytes()[start..end];
        let size = entry.dtype.size();
        let is_usable = bytes.as_ptr().align_offset(size) == 0
            && entry.dtype != DType::Bool
            && (cfg!(target_endian = "little") || size == 1);
        let tensor = if is_usable {
            let part = Part {
                map: Arc::clone(&map),
                range: start..end,
            };
            Tensor::from_storage(entry.dtype, entry.shape, Storage::of(part))
        } else {
            let mut part = Reader::new(bytes, bytes.len() as u64, path);
            part.tensor("safetensors::map", entry.dtype, entry.shape)?
        };
        tensors.push((entry.name, tensor));
    }
    Ok(Safetensors {
        tensors,
        metadata: header.metadata,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::file) fn map_unchanged(path: &Path) -> Safetensors {
        // SAFETY: a file in a directory of the test's own, not written to while it is mapped.
        unsafe { map(path) }.unwrap()
    }

    #[test]
    fn a_short_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // SAFETY: as above.
        assert!(unsafe { map(file.path()) }.is_err());
    }
}
