//! Reading files from archives: wheels, which are ZIP files, and `.tgz`.

use std::fs::File;
use std::io::{BufReader, Read, Take};
use std::path::Path;

use flate2::read::GzDecoder;

use crate::{Error, Result};

/// Opens a file in an archive for reading.
pub(super) fn open(archive: &Path, member: &str) -> Result<Box<dyn Read>> {
    if archive.extension().is_some_and(|e| e == "whl") {
        zip(archive, member)
    } else {
        tgz(archive, member)
    }
}

fn bad(archive: &Path, reason: &str) -> Error {
    Error::bad_file(archive, format_args!("the archive is damaged: {reason}"))
}

fn absent(archive: &Path, member: &str) -> Error {
    Error::bad_file(
        archive,
        format_args!("there is no `{member}` in the archive"),
    )
}

fn zip(archive: &Path, member: &str) -> Result<Box<dyn Read>> {
    let found = bessemer::zip::open_member(archive, member).map_err(|error| match error {
        bessemer::Error::File { reason, .. } => bad(archive, &reason),
        other => other.into(),
    })?;
    found.ok_or_else(|| absent(archive, member))
}

/// Block size of tar in bytes: the size of a header, and the alignment of contents.
const TAR_BLOCK_BYTES: usize = 512;

fn tgz(archive: &Path, member: &str) -> Result<Box<dyn Read>> {
    let io = |e| Error::io(archive, e);
    let file = File::open(archive).map_err(io)?;
    let mut from = GzDecoder::new(BufReader::new(file));
    loop {
        let mut head = [0; TAR_BLOCK_BYTES];
        from.read_exact(&mut head).map_err(io)?;
        if head[0] == 0 {
            return Err(absent(archive, member));
        }
        let name = |range: std::ops::Range<usize>| {
            let field = &head[range];
            field.split(|&b| b == 0).next().unwrap_or_default().to_vec()
        };
        let size = std::str::from_utf8(&head[124..136]).ok();
        let size = size.map(|s| s.trim_matches(['\0', ' ']));
        let size = size.and_then(|s| u64::from_str_radix(s, 8).ok());
        let size = size.ok_or_else(|| bad(archive, "a length is invalid"))?;
        let mut path = name(345..500);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(name(0..100));
        let is_file = matches!(head[156], 0 | b'0');
        if is_file && path == member.as_bytes() {
            let contents: Take<_> = from.take(size);
            return Ok(Box::new(contents));
        }
        let padded = size.next_multiple_of(TAR_BLOCK_BYTES as u64);
        let skipped = std::io::copy(&mut from.by_ref().take(padded), &mut std::io::sink());
        if skipped.map_err(io)? != padded {
            return Err(bad(archive, "it is truncated"));
        }
    }
}
