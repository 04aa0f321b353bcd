//! Memory-mapped files.
#![expect(
    unsafe_code,
    reason = "only the caller can guarantee that a mapped file does not change"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use bessemer_hal::NO_COPY_ALIGNMENT_BYTES;
use memmap2::Mmap;

use super::safetensors::{Header, Safetensors};
use super::{Reader, bad};
use crate::storage::{Bytes, Storage};
use crate::{DType, Result, Tensor};

/// The largest folio of Linux's page cache. A page fault maps all pages of the folio, and at least 64 KiB.
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
    /// The file must not be changed or shortened as long as it is mapped. (Replacing it by renaming another one is
    /// fine.)
    pub unsafe fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        // SAFETY: the caller guarantees that the file does not change.
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

    /// Removes the pages of a range, and those that the kernel maps around a page fault, from this process's resident
    /// memory. A later read maps them again, from the page cache or the file. Windows does this itself when it needs
    /// the memory.
    pub fn release(&self, range: Range<usize>) {
        let start = range.start.saturating_sub(MAX_FOLIO_BYTES);
        let end = range.end.saturating_add(MAX_FOLIO_BYTES);
        let end = end.min(self.map.len());
        #[cfg(unix)]
        if start < end {
            let dont_need = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the range is inside the mapping, which is read-only and backed by a file: no page of it was ever
            // written, so that reading it again yields the same bytes.
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

/// A byte range of a mapped file.
struct MappedRange {
    map: Arc<Mapping>,
    range: Range<usize>,
}

impl Bytes for MappedRange {
    fn bytes(&self) -> &[u8] {
        &self.map.bytes()[self.range.clone()]
    }

    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        let base = NonNull::from(self.map.bytes()).cast::<u8>();
        if !base.addr().get().is_multiple_of(NO_COPY_ALIGNMENT_BYTES) {
            return None;
        }
        let start = self.range.start / NO_COPY_ALIGNMENT_BYTES * NO_COPY_ALIGNMENT_BYTES;
        let end = self.range.end.next_multiple_of(NO_COPY_ALIGNMENT_BYTES);
        // The last page of a file is mapped completely.
        let mapped = self.map.bytes().len().next_multiple_of(MIN_PAGE_BYTES);
        // SAFETY: `start` is within the map.
        let first = unsafe { base.add(start) };
        (end <= mapped).then_some((first, end - start))
    }
}

/// The minimum page size of the supported systems.
const MIN_PAGE_BYTES: usize = if cfg!(target_vendor = "apple") {
    NO_COPY_ALIGNMENT_BYTES
} else {
    4096
};

/// Maps a file into memory: tensors are used in place, pages are read on first access, and processes share them.
/// Tensors that are not aligned are copied, as are those of `bool`, whose bytes may not be 0 or 1.
///
/// # Safety
/// The file must not be changed or shortened as long as one of the tensors, or a view of one, exists.
/// (Replacing it, as [`save`](super::safetensors::save) does, is fine.)
pub unsafe fn map(path: impl AsRef<Path>) -> Result<Safetensors> {
    let path = path.as_ref();
    // SAFETY: the caller guarantees that the file does not change.
    let map = unsafe { Mapping::open(path) }.map_err(|e| bad(path, e))?;
    let map = Arc::new(map);
    let header = Header::of(map.bytes(), path)?;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for entry in header.tensors {
        // Both are inside the map, whose length is a `usize`.
        let start = (header.data_start + entry.start) as usize;
        let end = (header.data_start + entry.end) as usize;
        let bytes = &map.bytes()[start..end];
        let size = entry.dtype.size();
        let is_usable = bytes.as_ptr().align_offset(size) == 0
            && entry.dtype != DType::Bool
            && (cfg!(target_endian = "little") || size == 1);
        let tensor = if is_usable {
            let range = MappedRange {
                map: Arc::clone(&map),
                range: start..end,
            };
            Tensor::from_storage(entry.dtype, entry.shape, Storage::of(range))
        } else {
            let mut reader = Reader::new(bytes, bytes.len() as u64, path);
            reader.tensor("safetensors::map", entry.dtype, entry.shape)?
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
        // SAFETY: a file in the test's own directory, which is not written to while it is mapped.
        unsafe { map(path) }.unwrap()
    }

    #[test]
    fn rejects_an_empty_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // SAFETY: as above.
        assert!(unsafe { map(file.path()) }.is_err());
    }
}
