//! GGUF: metadata, tensors and their data in one file, or in several shards.
//!
//! ```text
//! "GGUF"  version: u32  tensors: u64  keys: u64
//! keys × (key: string, type: u32, value)
//! tensors × (name: string, rank: u32, axes: rank × u64 innermost first, format: u32, offset: u64)
//! padding to `general.alignment`, data
//! ```

use std::path::Path;
use std::sync::Arc;

use bessemer::Mapping;

use super::metadata::{Array, Metadata, Strings, Value};
use super::{Container, Contents, Format, TensorInfo, map};
use crate::{Error, Result};

/// Default alignment of data in bytes.
pub(super) const DEFAULT_ALIGNMENT_BYTES: usize = 32;
/// Maximum alignment in bytes; larger ones are not useful.
const MAX_ALIGNMENT_BYTES: u64 = 1 << 20;
/// Maximum number of axes, as in ggml.
const MAX_AXES: u32 = 4;
/// Bytes of the shortest key with its value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Bytes of the shortest description of a tensor.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// Type ids of values.
pub(super) mod kind {
    pub(in crate::file) const U8: u32 = 0;
    pub(in crate::file) const I8: u32 = 1;
    pub(in crate::file) const U16: u32 = 2;
    pub(in crate::file) const I16: u32 = 3;
    pub(in crate::file) const U32: u32 = 4;
    pub(in crate::file) const I32: u32 = 5;
    pub(in crate::file) const F32: u32 = 6;
    pub(in crate::file) const BOOL: u32 = 7;
    pub(in crate::file) const STRING: u32 = 8;
    pub(in crate::file) const ARRAY: u32 = 9;
    pub(in crate::file) const U64: u32 = 10;
    pub(in crate::file) const I64: u32 = 11;
    pub(in crate::file) const F64: u32 = 12;
}

pub(super) fn open(mapping: Arc<Mapping>) -> Result<Contents> {
    let mut contents = read(Arc::clone(&mapping), 0)?;
    let shards = contents.metadata.count("split.count")?.unwrap_or(0);
    if shards <= 1 {
        return Ok(contents);
    }
    let path = mapping.path();
    let Some(ShardName {
        stem,
        number: 1,
        total,
    }) = shard(path)
    else {
        let reason = "a shard of a model; open the first one, `…-00001-of-0000N.gguf`";
        return Err(Error::bad_file(path, reason));
    };
    if total != shards {
        let reason = format!("the file name is of {total} shards, the metadata of {shards}");
        return Err(Error::bad_file(path, reason));
    }
    for number in 2..=total {
        let name = format!("{stem}-{number:05}-of-{total:05}.gguf");
        let mapping = Arc::new(map::open(&path.with_file_name(name))?);
        let further = read(mapping, contents.mappings.len())?;
        contents.mappings.extend(further.mappings);
        contents.tensors.extend(further.tensors);
    }
    if let Some(expected) = contents.metadata.count("split.tensors.count")? {
        let found = contents.tensors.len();
        if found != expected {
            let reason = format!("the shards have {found} tensors in total instead of {expected}");
            return Err(Error::bad_file(path, reason));
        }
    }
    Ok(contents)
}

/// Parts of the file name of a shard: `stem-00001-of-00003.gguf`.
pub(super) struct ShardName {
    stem: String,
    /// From 1.
    pub(super) number: usize,
    total: usize,
}

/// Parses the file name of a shard.
pub(super) fn shard(path: &Path) -> Option<ShardName> {
    let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, total) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let five_digits = |digits: &str| match digits.len() {
        5 => digits.parse().ok(),
        _ => None,
    };
    Some(ShardName {
        stem: stem.to_owned(),
        number: five_digits(number)?,
        total: five_digits(total)?,
    })
}

/// Reads one file.
fn read(mapping: Arc<Mapping>, shard: usize) -> Result<Contents> {
    let path = mapping.path().to_owned();
    let mut cursor = Cursor {
        bytes: mapping.bytes(),
        at: 4,
        path: &path,
    };
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => {}
        1 => {
            return Err(
                cursor.bad("GGUF version 1 is not supported; convert the model to version 3")
            );
        }
        v if matches!(v.swap_bytes(), 1..=3) => {
            return Err(cursor.bad("a GGUF file for big-endian machines is not supported"));
        }
        v => {
            return Err(cursor.bad(format_args!(
                "GGUF version {v} is not supported; versions 2 and 3 are"
            )));
        }
    }
    let tensor_count = cursor.u64("the number of tensors")?;
    let entry_count = cursor.u64("the number of keys")?;
    cursor.check_count(entry_count, MIN_ENTRY_BYTES, "keys")?;
    cursor.check_count(tensor_count, MIN_TENSOR_BYTES, "tensors")?;

    let mut metadata = Metadata::default();
    for _ in 0..entry_count {
        let key = cursor.string("a key")?;
        let kind = cursor.u32("the type of a value")?;
        let value = cursor.value(kind, &key)?;
        metadata
            .insert(key, value)
            .map_err(|e| Error::bad_file(&path, e))?;
    }
    let alignment = alignment(&metadata, &path)?;

    // At most as many as fit in the file, as checked above.
    let mut tensors = Vec::with_capacity(tensor_count as usize);
    let mut offsets = Vec::with_capacity(tensor_count as usize);
    for _ in 0..tensor_count {
        let (info, offset) = cursor.tensor(shard)?;
        tensors.push(info);
        offsets.push(offset);
    }
    let data = cursor.at.next_multiple_of(alignment);
    for (info, offset) in tensors.iter_mut().zip(offsets) {
        locate(info, offset, data, alignment, &mapping)?;
    }
    Ok(Contents {
        container: Container::Gguf,
        mappings: vec![mapping],
        metadata,
        tensors,
    })
}

fn alignment(metadata: &Metadata, path: &Path) -> Result<usize> {
    let key = "general.alignment";
    match metadata
        .natural(key)
        .map_err(|e| Error::bad_file(path, e))?
    {
        None => Ok(DEFAULT_ALIGNMENT_BYTES),
        Some(n) if n.is_power_of_two() && n <= MAX_ALIGNMENT_BYTES => Ok(n as usize),
        Some(n) => Err(Error::bad_file(
            path,
            format_args!("`{key}` is {n}, which is not a power of two up to {MAX_ALIGNMENT_BYTES}"),
        )),
    }
}

/// Sets the byte range of a tensor.
fn locate(
    info: &mut TensorInfo,
    offset: u64,
    data: usize,
    alignment: usize,
    mapping: &Mapping,
) -> Result<()> {
    let wrong = |reason: String| Error::BadTensor {
        path: mapping.path().display().to_string(),
        name: info.name.clone(),
        reason,
    };
    let Some(len) = info.format.bytes(&info.shape) else {
        return Err(wrong(format!(
            "a shape of {:?} is not possible with {}, whose blocks have {} elements",
            info.shape,
            info.format,
            info.format.block_len()
        )));
    };
    if !offset.is_multiple_of(alignment as u64) {
        return Err(wrong(format!(
            "offset {offset} is not aligned to {alignment} bytes"
        )));
    }
    let start = usize::try_from(offset)
        .ok()
        .and_then(|o| o.checked_add(data));
    let end = start.and_then(|s| s.checked_add(len));
    match (start, end) {
        (Some(start), Some(end)) if end <= mapping.bytes().len() => {
            info.range = start..end;
            Ok(())
        }
        _ => Err(wrong(format!(
            "{len} bytes at offset {offset} reach past the end of the file, which has {} bytes: it may \
             be incomplete",
            mapping.bytes().len()
        ))),
    }
}

/// Reader of a file.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl<'a> Cursor<'a> {
    fn bad(&self, reason: impl ToString) -> Error {
        Error::bad_file(self.path, reason)
    }

    fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn check_count(&self, count: u64, min_bytes: u64, what: &str) -> Result<()> {
        match count.checked_mul(min_bytes) {
            Some(needed) if needed <= self.remaining() => Ok(()),
            _ => Err(self.bad(format_args!(
                "{count} {what} cannot fit in the {} bytes that are left: the file is damaged or \
                 incomplete",
                self.remaining()
            ))),
        }
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return Err(self.bad(format_args!(
                "{what} needs {len} bytes, but only {} are left: the file is damaged or incomplete",
                self.remaining()
            )));
        }
        // At most the remaining bytes, which are a `usize`.
        let len = len as usize;
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let len = self.u64(what)?;
        let bytes = self.take(len, what)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.bad(format_args!("{what} is not UTF-8")))
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value> {
        let what = "a value";
        Ok(match kind {
            kind::U8 => Value::U8(u8::from_le_bytes(self.array(what)?)),
            kind::I8 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            kind::U16 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            kind::I16 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            kind::U32 => Value::U32(u32::from_le_bytes(self.array(what)?)),
            kind::I32 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            kind::F32 => Value::F32(f32::from_le_bytes(self.array(what)?)),
            kind::BOOL => Value::Bool(self.boolean(key)?),
            kind::STRING => Value::String(self.string(what)?),
            kind::ARRAY => Value::Array(self.list(key)?),
            kind::U64 => Value::U64(u64::from_le_bytes(self.array(what)?)),
            kind::I64 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            kind::F64 => Value::F64(f64::from_le_bytes(self.array(what)?)),
            other => return Err(self.bad(format_args!("`{key}` has the unknown type {other}"))),
        })
    }

    fn boolean(&mut self, key: &str) -> Result<bool> {
        match self.array::<1>("a value")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(self.bad(format_args!("`{key}` is {other}, not true or false"))),
        }
    }

    fn list(&mut self, key: &str) -> Result<Array> {
        let kind = self.u32("the type of an array")?;
        let count = self.u64("the length of an array")?;
        Ok(match kind {
            kind::U8 => Array::U8(self.numbers(count, key, u8::from_le_bytes)?),
            kind::I8 => Array::I8(self.numbers(count, key, i8::from_le_bytes)?),
            kind::U16 => Array::U16(self.numbers(count, key, u16::from_le_bytes)?),
            kind::I16 => Array::I16(self.numbers(count, key, i16::from_le_bytes)?),
            kind::U32 => Array::U32(self.numbers(count, key, u32::from_le_bytes)?),
            kind::I32 => Array::I32(self.numbers(count, key, i32::from_le_bytes)?),
            kind::F32 => Array::F32(self.numbers(count, key, f32::from_le_bytes)?),
            kind::U64 => Array::U64(self.numbers(count, key, u64::from_le_bytes)?),
            kind::I64 => Array::I64(self.numbers(count, key, i64::from_le_bytes)?),
            kind::F64 => Array::F64(self.numbers(count, key, f64::from_le_bytes)?),
            kind::BOOL => {
                self.check_count(count, 1, "elements of an array")?;
                let booleans = (0..count).map(|_| self.boolean(key));
                Array::Bool(booleans.collect::<Result<_>>()?)
            }
            kind::STRING => {
                self.check_count(count, 8, "strings of an array")?;
                let mut strings = Strings::default();
                strings.reserve(count as usize);
                for _ in 0..count {
                    strings.push(&self.string("a string of an array")?);
                }
                Array::String(strings)
            }
            kind::ARRAY => {
                return Err(self.bad(format_args!(
                    "`{key}` is an array of arrays, which is not supported"
                )));
            }
            other => {
                return Err(self.bad(format_args!(
                    "`{key}` is an array of the unknown type {other}"
                )));
            }
        })
    }

    fn numbers<T, const N: usize>(
        &mut self,
        count: u64,
        key: &str,
        read: fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        self.check_count(count, N as u64, "elements of an array")?;
        let bytes = self.take(count * N as u64, key)?;
        let element = |chunk: &[u8]| {
            let mut element = [0; N];
            element.copy_from_slice(chunk);
            read(element)
        };
        Ok(bytes.chunks_exact(N).map(element).collect())
    }

    /// Reads the description of a tensor without its byte range, and its offset.
    fn tensor(&mut self, shard: usize) -> Result<(TensorInfo, u64)> {
        let name = self.string("the name of a tensor")?;
        let path = self.path.display().to_string();
        let wrong = |reason: String| Error::BadTensor {
            path: path.clone(),
            name: name.clone(),
            reason,
        };
        let rank = self.u32("the rank of a tensor")?;
        if rank > MAX_AXES {
            return Err(wrong(format!(
                "{rank} axes are more than the {MAX_AXES} that GGUF has"
            )));
        }
        let mut shape = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            let len = self.u64("an axis of a tensor")?;
            match usize::try_from(len) {
                Ok(len) if len > 0 => shape.push(len),
                _ => return Err(wrong(format!("an axis has length {len}"))),
            }
        }
        shape.reverse();
        let id = self.u32("the format of a tensor")?;
        let offset = self.u64("the offset of a tensor")?;
        let Some(format) = Format::of_ggml_id(id) else {
            return Err(wrong(format!("format {id} is not known")));
        };
        let info = TensorInfo {
            name,
            source: None,
            format,
            shape,
            shard,
            range: 0..0,
        };
        Ok((info, offset))
    }
}
