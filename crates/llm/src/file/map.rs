//! Files used where they lie.
#![expect(
    unsafe_code,
    reason = "maps model files, whose bytes are only ever read as plain numbers or copied before use"
)]

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::{Error, Result};

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
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
