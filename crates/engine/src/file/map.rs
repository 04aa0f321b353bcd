//! Files used where they lie, without reading them first.
#![expect(
    unsafe_code,
    reason = "that a mapped file stays as it is, is for the caller to promise"
)]

use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use bessemer_hal::NO_COPY_ALIGNMENT;
use memmap2::Mmap;

use super::safetensors::{Header, Safetensors};
use super::{Reader, bad, open};
use crate::storage::{Bytes, Storage};
use crate::{DType, Result, Tensor};

/// A part of a mapped file.
struct Part {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl Bytes for Part {
    fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        let base = NonNull::from(&self.map[..]).cast::<u8>();
        if !base.addr().get().is_multiple_of(NO_COPY_ALIGNMENT) {
            return None;
        }
        let start = self.range.start / NO_COPY_ALIGNMENT * NO_COPY_ALIGNMENT;
        let end = self.range.end.next_multiple_of(NO_COPY_ALIGNMENT);
        // The last page of a file is there to its end.
        let mapped = self.map.len().next_multiple_of(PAGE);
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
    let (file, _) = open(path)?;
    // SAFETY: the caller promises that the file stays as it is.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| bad(path, e))?;
    let map = Arc::new(map);
    let mut reader = Reader::new(&map[..], map.len() as u64, path);
    let header = Header::read(&mut reader)?;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for (name, entry) in header.tensors {
        // Both lie in the map, whose length is a `usize`.
        let start = (header.data_start + entry.start) as usize;
        let end = (header.data_start + entry.end) as usize;
        let bytes = &map[start..end];
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
        tensors.push((name, tensor));
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
