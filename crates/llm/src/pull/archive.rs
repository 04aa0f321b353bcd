//! Files in archives: wheels, which are ZIP files, and `.tgz`.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom, Take};
use std::path::Path;

use flate2::read::{DeflateDecoder, GzDecoder};

use crate::{Error, Result};

/// Opens a file in an archive for reading, from its beginning.
pub(super) fn open(archive: &Path, member: &str) -> Result<Box<dyn Read>> {
    let file = File::open(archive).map_err(|e| Error::io(archive, e))?;
    match archive.extension().is_some_and(|e| e == "whl") {
        true => zip(archive, file, member),
        false => tgz(archive, file, member),
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

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(number(bytes, at)?).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u32::from_le_bytes(number(bytes, at)?).into())
}

/// The directory at the end of a ZIP file is at most so long, in the packages there are.
const MOST_DIRECTORY: u64 = 16 << 20;
/// Bytes of the record that ends a ZIP file, without its comment.
const END: u64 = 22;

fn zip(archive: &Path, mut file: File, member: &str) -> Result<Box<dyn Read>> {
    let io = |e| Error::io(archive, e);
    let len = file.metadata().map_err(io)?.len();
    // The record at the end, which a comment of at most 64 KiB may follow.
    let reach = len.min(END + 0xffff);
    let mut tail = vec![0; reach as usize];
    file.seek(SeekFrom::Start(len - reach)).map_err(io)?;
    file.read_exact(&mut tail).map_err(io)?;
    let end = tail.windows(4).rposition(|w| w == b"PK\x05\x06");
    let end = end.ok_or_else(|| bad(archive, "it has no end"))?;
    let place = || Some((u32_at(&tail, end + 12)?, u32_at(&tail, end + 16)?));
    let (size, start) = place().ok_or_else(|| bad(archive, "its end is cut off"))?;
    if size > MOST_DIRECTORY || start + size > len {
        return Err(bad(archive, "its directory is not there"));
    }
    let mut directory = vec![0; size as usize];
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    file.read_exact(&mut directory).map_err(io)?;
    let entry =
        find(&directory, member).ok_or_else(|| bad(archive, "its directory makes no sense"))?;
    let Some((method, packed, offset)) = entry else {
        return Err(absent(archive, member));
    };
    let mut head = [0; 30];
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    file.read_exact(&mut head).map_err(io)?;
    if !head.starts_with(b"PK\x03\x04") {
        return Err(bad(archive, "a file does not begin where it should"));
    }
    let skip = u16_at(&head, 26).unwrap_or(0) + u16_at(&head, 28).unwrap_or(0);
    file.seek(SeekFrom::Current(skip as i64)).map_err(io)?;
    let data = BufReader::new(file).take(packed);
    match method {
        0 => Ok(Box::new(data)),
        8 => Ok(Box::new(DeflateDecoder::new(data))),
        other => Err(bad(archive, &format!("compression {other} is unknown"))),
    }
}

/// Method, packed length and offset of a file in a ZIP file's directory; `None` for nonsense.
#[expect(clippy::option_option, reason = "nonsense is not the same as absence")]
fn find(directory: &[u8], member: &str) -> Option<Option<(usize, u64, u64)>> {
    let mut at = 0;
    while at < directory.len() {
        let entry = directory.get(at..)?;
        if !entry.starts_with(b"PK\x01\x02") {
            return None;
        }
        let name_len = u16_at(entry, 28)?;
        let name = entry.get(46..46 + name_len)?;
        if name == member.as_bytes() {
            return Some(Some((
                u16_at(entry, 10)?,
                u32_at(entry, 20)?,
                u32_at(entry, 42)?,
            )));
        }
        at += 46 + name_len + u16_at(entry, 30)? + u16_at(entry, 32)?;
    }
    Some(None)
}

/// Bytes of a header, and what all contents are padded to.
const BLOCK: usize = 512;

fn tgz(archive: &Path, file: File, member: &str) -> Result<Box<dyn Read>> {
    let io = |e| Error::io(archive, e);
    let mut from = GzDecoder::new(BufReader::new(file));
    loop {
        let mut head = [0; BLOCK];
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
        let size = size.ok_or_else(|| bad(archive, "a length makes no sense"))?;
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
        let padded = size.next_multiple_of(BLOCK as u64);
        let skipped = std::io::copy(&mut from.by_ref().take(padded), &mut std::io::sink());
        if skipped.map_err(io)? != padded {
            return Err(bad(archive, "it is cut off"));
        }
    }
}
