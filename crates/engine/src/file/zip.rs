//! ZIP archives, as far as `.npz` files and wheels need them: members stored or deflated, with ZIP64; no encryption, no
//! multi-part archives.
//!
//! Only the central directory is used, after a check that its members are inside the file, do not overlap and do not
//! claim an impossible compression ratio.
//!
//! A module of our own rather than a crate: `rawzip` leaves those checks to its caller, and its writer puts sizes into
//! data descriptors behind the members, which would change the bytes of the files we write. `zip` is many times larger
//! than this module, has several dependencies, and checks overlaps only on request.

use std::io::{self, BufReader, Read, Seek, SeekFrom, Take, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{bad, open};
use crate::{Error, Result};

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR64: [u8; 4] = *b"PK\x06\x07";

/// Value of a field whose actual value is in the ZIP64 extra field.
const ZIP64_MARKER: u32 = u32::MAX;
/// Values from here on need ZIP64.
pub(super) const MIN_ZIP64_VALUE: u64 = ZIP64_MARKER as u64;

/// Deflate's densest code is two bits for 258 bytes: no stream grows by more than this factor.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// How a member is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompressionMethod {
    Stored,
    Deflated,
}

/// A file of an archive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) method: CompressionMethod,
    pub(super) crc: u32,
    pub(super) size: u64,
    compressed: u64,
    /// Offset of its local header.
    offset: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Opens a member of an archive, decompressed, or `None` if there is no member with this name. The caller verifies the
/// checksum, since it may have a better one.
pub fn open_member(path: impl AsRef<Path>, name: &str) -> Result<Option<Box<dyn Read>>> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    let mut archive = Archive::new(BufReader::new(file), len, path)?;
    let members = archive.members()?;
    let Some(member) = members.iter().find(|member| member.name == name) else {
        return Ok(None);
    };
    archive.seek(member)?;
    let stored = archive.from.take(member.compressed);
    Ok(Some(match member.method {
        CompressionMethod::Stored => Box::new(stored),
        CompressionMethod::Deflated => Box::new(DeflateDecoder::new(stored).take(member.size)),
    }))
}

/// An archive being read.
pub(super) struct Archive<'a, R> {
    from: R,
    path: &'a Path,
    /// Offset of the central directory.
    start: u64,
    /// Length of the central directory in bytes.
    len: u64,
    /// Number of members.
    count: u64,
}

impl<'a, R: Read + Seek> Archive<'a, R> {
    /// Finds the central directory of an archive of `len` bytes.
    pub(super) fn new(mut from: R, len: u64, path: &'a Path) -> Result<Self> {
        let fail = |reason: &str| bad(path, reason);
        // Only a comment of at most 65535 bytes can follow the end record.
        let tail_len = len.min(22 + 65535);
        let tail = at(&mut from, len - tail_len, tail_len, path)?;
        let is_end = |i: &usize| {
            tail[*i..].starts_with(&END)
                && *i + 22 + usize::from(u16_at(&tail, *i + 20)) == tail.len()
        };
        let last = tail.len().checked_sub(22);
        let end = last.and_then(|last| (0..=last).rev().find(is_end));
        let end = end.ok_or_else(|| fail("not a ZIP archive: it has no end record"))?;
        let record = &tail[end..];
        let mut count = u64::from(u16_at(record, 10));
        let mut dir_len = u64::from(u32_at(record, 12));
        let mut start = u64::from(u32_at(record, 16));
        if count == 0xffff || dir_len == MIN_ZIP64_VALUE || start == MIN_ZIP64_VALUE {
            let end_at = len - tail_len + end as u64;
            let locator_at = end_at.checked_sub(20);
            let locator_at = locator_at.ok_or_else(|| fail("no ZIP64 locator"))?;
            let locator = at(&mut from, locator_at, 20, path)?;
            if !locator.starts_with(&LOCATOR64) {
                return Err(fail("no ZIP64 locator"));
            }
            let record_at = u64_at(&locator, 8);
            if record_at.checked_add(56).is_none_or(|end| end > locator_at) {
                return Err(fail("the ZIP64 end record is outside the file"));
            }
            let record = at(&mut from, record_at, 56, path)?;
            if !record.starts_with(&END64) {
                return Err(fail("no ZIP64 end record"));
            }
            count = u64_at(&record, 32);
            dir_len = u64_at(&record, 40);
            start = u64_at(&record, 48);
        }
        if start.checked_add(dir_len).is_none_or(|end| end > len) {
            return Err(fail("the directory is outside the file"));
        }
        Ok(Self {
            from,
            path,
            start,
            len: dir_len,
            count,
        })
    }

    /// All members, in the order of the directory.
    pub(super) fn members(&mut self) -> Result<Vec<Member>> {
        let path = self.path;
        let directory = at(&mut self.from, self.start, self.len, path)?;
        let mut rest = directory.as_slice();
        let mut members = Vec::new();
        while !rest.is_empty() {
            let (member, after) = self.member(rest)?;
            members.push(member);
            rest = after;
        }
        if members.len() as u64 != self.count {
            return Err(bad(
                path,
                "the number of members does not match the directory",
            ));
        }
        let mut spans: Vec<_> = members
            .iter()
            .map(|m| (m.offset, m.offset + 30 + m.compressed))
            .collect();
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(bad(path, "members overlap"));
        }
        Ok(members)
    }

    /// Parses the first member of a slice of the directory, and returns the rest.
    fn member<'d>(&self, record: &'d [u8]) -> Result<(Member, &'d [u8])> {
        let fail = |reason: &str| bad(self.path, reason);
        if record.len() < 46 || !record.starts_with(&CENTRAL) {
            return Err(fail("the directory is damaged"));
        }
        let lens = [28, 30, 32].map(|i| usize::from(u16_at(record, i)));
        let len = 46 + lens.iter().sum::<usize>();
        if record.len() < len {
            return Err(fail("the directory ends too early"));
        }
        let (record, after) = record.split_at(len);
        let name = &record[46..46 + lens[0]];
        let name = std::str::from_utf8(name).map_err(|_| fail("a name is not UTF-8"))?;
        let fail = |reason: &str| bad(self.path, format_args!("{name:?}: {reason}"));
        if u16_at(record, 8) & 1 != 0 {
            return Err(fail("is encrypted"));
        }
        let method = match u16_at(record, 10) {
            0 => CompressionMethod::Stored,
            8 => CompressionMethod::Deflated,
            n => return Err(fail(&format!("compression method {n} is not supported"))),
        };
        let mut wide = Zip64Field::new(&record[46 + lens[0]..][..lens[1]]);
        // In the order of the ZIP64 field.
        let size = wide.value(u32_at(record, 24));
        let compressed = wide.value(u32_at(record, 20));
        let offset = wide.value(u32_at(record, 42));
        let (Some(size), Some(compressed), Some(offset)) = (size, compressed, offset) else {
            return Err(fail("a ZIP64 field is missing"));
        };
        let end = offset
            .checked_add(30)
            .and_then(|at| at.checked_add(compressed));
        if end.is_none_or(|end| end > self.start) {
            return Err(fail("is outside the file"));
        }
        let possible = match method {
            CompressionMethod::Stored => size == compressed,
            CompressionMethod::Deflated => size / MAX_DEFLATE_RATIO <= compressed,
        };
        if !possible {
            return Err(fail(
                "its compressed size cannot give its uncompressed size",
            ));
        }
        let member = Member {
            name: name.to_owned(),
            method,
            crc: u32_at(record, 16),
            size,
            compressed,
            offset,
        };
        Ok((member, after))
    }

    /// The stored bytes of a member, not decompressed.
    pub(super) fn open(&mut self, member: &Member) -> Result<Take<&mut R>> {
        self.seek(member)?;
        Ok(self.from.by_ref().take(member.compressed))
    }

    /// Seeks to the first stored byte of a member.
    fn seek(&mut self, member: &Member) -> Result<()> {
        let header = at(&mut self.from, member.offset, 30, self.path)?;
        let fail = |reason: &str| bad(self.path, format_args!("{:?}: {reason}", member.name));
        if !header.starts_with(&LOCAL) {
            return Err(fail("has no local header"));
        }
        let skip = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        let data = member.offset + 30 + skip;
        if data + member.compressed > self.start {
            return Err(fail("is outside the file"));
        }
        self.from
            .seek(SeekFrom::Start(data))
            .map_err(|e| bad(self.path, e))?;
        Ok(())
    }
}

/// Reads `len` bytes from `start` on, which are known to be inside the file.
fn at<R: Read + Seek>(from: &mut R, start: u64, len: u64, path: &Path) -> Result<Vec<u8>> {
    let fail = |e: io::Error| -> Error { bad(path, e) };
    let len = usize::try_from(len).map_err(|_| bad(path, "larger than the address space"))?;
    from.seek(SeekFrom::Start(start)).map_err(fail)?;
    let mut out = vec![0; len];
    from.read_exact(&mut out).map_err(fail)?;
    Ok(out)
}

/// The ZIP64 extra field of a member: the values that exceed their 32-bit fields, in order.
struct Zip64Field<'a>(&'a [u8]);

impl<'a> Zip64Field<'a> {
    fn new(mut extra: &'a [u8]) -> Self {
        while extra.len() >= 4 {
            let (id, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
            let Some(field) = extra.get(4..4 + len) else {
                break;
            };
            if id == 1 {
                return Self(field);
            }
            extra = &extra[4 + len..];
        }
        Self(&[])
    }

    /// Returns the value of a 32-bit field, or the next one from here if that has the marker.
    fn value(&mut self, field: u32) -> Option<u64> {
        if field != ZIP64_MARKER {
            return Some(field.into());
        }
        let (value, rest) = self.0.split_at_checked(8)?;
        self.0 = rest;
        Some(u64_at(value, 0))
    }
}

/// An archive being written.
pub(super) struct ZipWriter<W> {
    to: W,
    /// Number of bytes written.
    at: u64,
    directory: Vec<u8>,
    count: u64,
    /// Values from here on are written as ZIP64; [`MIN_ZIP64_VALUE`] except in tests.
    limit: u64,
}

impl<W: Write> ZipWriter<W> {
    pub(super) fn new(to: W, limit: u64) -> Self {
        Self {
            to,
            at: 0,
            directory: Vec::new(),
            count: 0,
            limit,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    /// Returns the 32-bit field for a value, and appends the value to `wide` if it is too large.
    fn narrow(&self, value: u64, wide: &mut Vec<u8>) -> u32 {
        match u32::try_from(value) {
            Ok(small) if value < self.limit => small,
            _ => {
                wide.extend(value.to_le_bytes());
                ZIP64_MARKER
            }
        }
    }

    /// Adds a file with the concatenated bytes of `parts`.
    pub(super) fn add(
        &mut self,
        name: &str,
        method: CompressionMethod,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "the name is too long");
        let name_len = u16::try_from(name.len()).map_err(too_long)?;
        let mut crc = flate2::Crc::new();
        parts.iter().for_each(|part| crc.update(part));
        let size = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let deflated = match method {
            CompressionMethod::Stored => None,
            CompressionMethod::Deflated => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                for part in parts {
                    encoder.write_all(part)?;
                }
                Some(encoder.finish()?)
            }
        };
        let compressed = deflated.as_ref().map_or(size, |d| d.len() as u64);
        let offset = self.at;

        // A local header has both sizes in its ZIP64 field, or none.
        let is_wide = size.max(compressed) >= self.limit;
        let wide: Vec<u8> = if is_wide {
            [size.to_le_bytes(), compressed.to_le_bytes()].concat()
        } else {
            Vec::new()
        };
        let narrow = |value: u64| {
            if is_wide { ZIP64_MARKER } else { value as u32 }
        };
        let sizes = (narrow(compressed), narrow(size));
        let fields = HeaderFields {
            method,
            is_utf8: !name.is_ascii(),
            crc: crc.sum(),
            sizes,
            name_len,
        };
        let wide = field(&wide);
        let mut header = LOCAL.to_vec();
        header.extend(fields.bytes(&wide));
        header.extend(name.as_bytes());
        header.extend(&wide);
        self.put(&header)?;
        match &deflated {
            Some(bytes) => self.put(bytes)?,
            None => {
                for part in parts {
                    self.put(part)?;
                }
            }
        }

        let mut wide = Vec::new();
        let size = self.narrow(size, &mut wide);
        let compressed = self.narrow(compressed, &mut wide);
        let offset = self.narrow(offset, &mut wide);
        let wide = field(&wide);
        let fields = HeaderFields {
            sizes: (compressed, size),
            ..fields
        };
        self.directory.extend(CENTRAL);
        self.directory.extend(VERSION.to_le_bytes());
        self.directory.extend(fields.bytes(&wide));
        // No comment, the first disk, no attributes.
        self.directory.extend([0; 10]);
        self.directory.extend(offset.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.directory.extend(&wide);
        self.count += 1;
        Ok(())
    }

    /// Writes the directory.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let (start, directory) = (self.at, std::mem::take(&mut self.directory));
        let len = directory.len() as u64;
        self.put(&directory)?;
        let end = self.at;
        let small = u16::try_from(self.count).ok().filter(|&n| n < 0xffff);
        let fits = start < self.limit && len < self.limit;
        let fields = match small {
            Some(count) if fits => (count, len as u32, start as u32),
            _ => {
                let mut record = END64.to_vec();
                record.extend(44_u64.to_le_bytes());
                record.extend([VERSION, VERSION].map(u16::to_le_bytes).concat());
                record.extend([0; 8]);
                let values = [self.count, self.count, len, start];
                record.extend(values.map(u64::to_le_bytes).concat());
                record.extend(LOCATOR64);
                record.extend([0; 4]);
                record.extend(end.to_le_bytes());
                record.extend(1_u32.to_le_bytes());
                self.put(&record)?;
                (0xffff, ZIP64_MARKER, ZIP64_MARKER)
            }
        };
        let mut record = END.to_vec();
        record.extend([0; 4]);
        record.extend([fields.0, fields.0].map(u16::to_le_bytes).concat());
        record.extend([fields.1, fields.2].map(u32::to_le_bytes).concat());
        record.extend([0; 2]);
        self.put(&record)?;
        Ok(self.to)
    }
}

/// 4.5: the version of the format with ZIP64.
const VERSION: u16 = 45;

/// The common fields of a member's local and central headers.
struct HeaderFields {
    method: CompressionMethod,
    is_utf8: bool,
    crc: u32,
    /// Compressed and uncompressed.
    sizes: (u32, u32),
    name_len: u16,
}

impl HeaderFields {
    fn bytes(&self, wide: &[u8]) -> Vec<u8> {
        let method = match self.method {
            CompressionMethod::Stored => 0,
            CompressionMethod::Deflated => 8,
        };
        let mut out = Vec::new();
        out.extend(VERSION.to_le_bytes());
        out.extend((u16::from(self.is_utf8) << 11).to_le_bytes());
        out.extend(u16::to_le_bytes(method));
        // A fixed time stamp, the first day of the format: files of the same tensors are identical.
        out.extend([0, 0, 0x21, 0]);
        out.extend(self.crc.to_le_bytes());
        out.extend(self.sizes.0.to_le_bytes());
        out.extend(self.sizes.1.to_le_bytes());
        out.extend(self.name_len.to_le_bytes());
        out.extend((wide.len() as u16).to_le_bytes());
        out
    }
}

/// A ZIP64 extra field with these values; empty if there are none.
fn field(values: &[u8]) -> Vec<u8> {
    if values.is_empty() {
        return Vec::new();
    }
    let mut out = [1_u16, values.len() as u16].map(u16::to_le_bytes).concat();
    out.extend(values);
    out
}
