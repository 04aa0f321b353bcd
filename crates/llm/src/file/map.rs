//! Files used where they lie.
#![expect(
    unsafe_code,
    reason = "maps model files, whose bytes are only ever read as plain numbers or copied before use"
)]

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::{Error, Result};

/// The largest folio of Linux's page cache. When a page is first read, those of its folio are mapped with it, and at
/// least those of 64 KiB.
const MAX_FOLIO_BYTES: usize = 2 << 20;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    path: PathBuf,
    map: Mmap,
}

impl Mapping {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let meta = file.metadata().map_err(|e| Error::io(path, e))?;
        if !meta.is_file() {
            return Err(Error::bad_file(path, "not a regular file"));
        }
        if meta.len() == 0 {
            return Err(Error::bad_file(path, "the file is empty"));
        }
        // SAFETY: the map is private and read-only. `file::Model::open` asks its caller to leave the file
        // alone; should someone write to it all the same, this crate sees other numbers and nothing worse:
        // headers are copied before they are checked, lengths come from the copies, and weights are plain
        // numbers, for which every bit pattern is valid. (A file that is cut short ends the process, as
        // reading a failing disk would.)
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            map,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Takes the pages of a range out of this process's resident memory, with those that the kernel maps around a page
    /// fault. A later read maps them again, from the page cache or from the file. Windows does so by itself when it needs
    /// the memory.
    pub(crate) fn release(&self, range: Range<usize>) {
        let start = range.start.saturating_sub(MAX_FOLIO_BYTES);
        let end = (range.end + MAX_FOLIO_BYTES).min(self.map.len());
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
