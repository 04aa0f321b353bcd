//! Mapping model files.
#![expect(
    unsafe_code,
    reason = "maps model files, whose bytes are only read as plain numbers or copied before use"
)]

use std::path::Path;

use bessemer::Mapping;

use crate::{Error, Result};

/// Maps a file that is not empty.
pub(super) fn open(path: &Path) -> Result<Mapping> {
    let meta = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Err(Error::bad_file(path, "not a regular file"));
    }
    if meta.len() == 0 {
        return Err(Error::bad_file(path, "the file is empty"));
    }
    // SAFETY: `file::Model::open` requires that the file is not modified. If it is written to nevertheless, this crate
    // only sees other numbers: headers are copied before they are checked, lengths are taken from the copies, and
    // weights are plain numbers, for which every bit pattern is valid. (A truncated file kills the process, as reading
    // a failing disk would.)
    unsafe { Mapping::open(path) }.map_err(|e| Error::io(path, e))
}
