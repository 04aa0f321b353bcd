//! safetensors: named tensors behind a JSON header.
//!
//! The `safetensors` crate collects the header in a hash map: of two tensors with the same name it keeps the last, and
//! the order of the header is lost. This module's [`Header`] is parsed with `serde_json` and rejects duplicates.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

pub use super::map::map;
use super::{Data, Reader, bad, distinct, read, swap_bytes, write};
use crate::{DType, Error, Result, Shape, Tensor, graph};

/// The key of the header that is not a tensor.
const METADATA: &str = "__metadata__";

/// Maximum header length of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub struct Safetensors {
    /// The tensors, in the order of the header.
    pub tensors: Vec<(String, Tensor)>,
    /// The writer's metadata.
    pub metadata: BTreeMap<String, String>,
}

impl Safetensors {
    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let found = self.tensors.iter().find(|(n, _)| n == name);
        found.map(|(_, tensor)| tensor)
    }
}

/// Reads all tensors into memory.
pub fn load(path: impl AsRef<Path>) -> Result<Safetensors> {
    file(read(path.as_ref())?)
}

pub(super) fn file<R: Read + Seek>(mut from: Reader<'_, R>) -> Result<Safetensors> {
    let header = Header::read(&mut from)?;
    let (path, data) = (from.path, from.left);
    let mut tensors = Vec::with_capacity(header.tensors.len());
    let mut at = 0;
    for entry in header.tensors {
        // Tensors are usually in the order of the header; then there is no seek, which would discard the read buffer.
        if entry.start != at {
            let start = SeekFrom::Start(header.data_start + entry.start);
            from.from.seek(start).map_err(|e| bad(path, e))?;
        }
        from.left = data - entry.start;
        let tensor = from.tensor("safetensors::load", entry.dtype, entry.shape)?;
        at = entry.end;
        tensors.push((entry.name, tensor));
    }
    Ok(Safetensors {
        tensors,
        metadata: header.metadata,
    })
}

/// Writes named tensors; see [`save_with_metadata`].
///
/// ```no_run
/// # use bessemer::{DType, Tensor, safetensors};
/// let weight = Tensor::zeros([2, 3], DType::BF16);
/// safetensors::save("model.safetensors", &[("weight", &weight)])?;
/// assert!(safetensors::load("model.safetensors")?.get("weight").is_some());
/// # Ok::<(), bessemer::Error>(())
/// ```
pub fn save(
    path: impl AsRef<Path>,
    tensors: &[(impl AsRef<str>, impl Borrow<Tensor>)],
) -> Result<()> {
    save_with_metadata(path, tensors, &BTreeMap::new())
}

/// Writes named tensors and metadata. The header is in the given order; the data is ordered by decreasing element size,
/// so that every tensor is aligned and can be used in place when the file is mapped.
pub fn save_with_metadata(
    path: impl AsRef<Path>,
    tensors: &[(impl AsRef<str>, impl Borrow<Tensor>)],
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    const OP: &str = "safetensors::save";
    let path = path.as_ref();
    let names = || tensors.iter().map(|(name, _)| name.as_ref());
    distinct(OP, names().chain([METADATA]))?;
    let all: Vec<&Tensor> = tensors.iter().map(|(_, t)| t.borrow()).collect();
    graph::eval(&all)?;

    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(all[i].dtype().size()));
    let mut offsets = vec![(0, 0); all.len()];
    let mut at = 0;
    for &i in &order {
        let len = all[i].count() * all[i].dtype().size();
        offsets[i] = (at, at + len);
        at += len;
    }

    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut entries = Vec::with_capacity(all.len() + 1);
    if !metadata.is_empty() {
        let pairs: Vec<_> = metadata
            .iter()
            .map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)))
            .collect();
        entries.push(format!("{}:{{{}}}", quoted(METADATA), pairs.join(",")));
    }
    for ((name, tensor), (start, end)) in names().zip(&all).zip(offsets) {
        let dims: Vec<_> = tensor.shape().iter().map(ToString::to_string).collect();
        entries.push(format!(
            r#"{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{start},{end}]}}"#,
            quoted(name),
            tensor.dtype().name().to_ascii_uppercase(),
            dims.join(",")
        ));
    }
    let mut header = format!("{{{}}}", entries.join(","));
    let len = header.len().next_multiple_of(8);
    header.extend((header.len()..len).map(|_| ' '));
    if len as u64 > MAX_HEADER_BYTES {
        return Err(Error::Invalid {
            op: OP,
            reason: format!("a header of {len} bytes is more than the format allows"),
        });
    }

    write(path, |file| {
        let fail = |e| bad(path, e);
        file.write_all(&(len as u64).to_le_bytes()).map_err(fail)?;
        file.write_all(header.as_bytes()).map_err(fail)?;
        for &i in &order {
            let data = Data::new(all[i])?;
            if cfg!(target_endian = "big") {
                let mut bytes = data.bytes().to_vec();
                swap_bytes(&mut bytes, all[i].dtype().size());
                file.write_all(&bytes).map_err(fail)?;
            } else {
                file.write_all(data.bytes()).map_err(fail)?;
            }
        }
        Ok(())
    })
}

/// A tensor of a [`Header`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// Offset of its first byte in the data.
    pub start: u64,
    /// Offset of the byte after its last in the data.
    pub end: u64,
}

/// The checked header of a file: the tensors have distinct names and cover the data without gaps or overlaps, so that
/// all programs read the same from a file.
#[derive(Clone, Debug)]
pub struct Header {
    /// The tensors, in the order of the header.
    pub tensors: Vec<Entry>,
    /// The writer's metadata.
    pub metadata: BTreeMap<String, String>,
    /// Offset of the data in the file.
    pub data_start: u64,
}

impl Header {
    /// Parses the header of a file in memory. It is copied before it is checked. Errors name `path`.
    pub fn of(bytes: &[u8], path: &Path) -> Result<Self> {
        Self::read(&mut Reader::new(bytes, bytes.len() as u64, path))
    }

    /// Reads the header at the beginning of a file.
    pub(super) fn read<R: Read>(from: &mut Reader<'_, R>) -> Result<Self> {
        let file_bytes = from.left;
        let len = u64::from_le_bytes(from.array("the header's length")?);
        if len > from.left {
            return Err(from.bad(format_args!(
                "a header of {len} bytes does not fit in a file of {file_bytes}: not safetensors, damaged or incomplete"
            )));
        }
        if len > MAX_HEADER_BYTES {
            return Err(from.bad(format_args!(
                "a header of {len} bytes is more than the format allows"
            )));
        }
        let bytes = from.bytes(len, "the header")?;
        let raw: RawHeader =
            serde_json::from_slice(&bytes).map_err(|e| from.bad(format_args!("header: {e}")))?;
        drop(bytes);
        distinct("header", raw.tensors.iter().map(|(name, _)| name.as_str()))
            .map_err(|e| from.bad(e))?;
        let mut tensors = Vec::with_capacity(raw.tensors.len());
        for (name, entry) in raw.tensors {
            tensors.push(entry.check(name, from)?);
        }
        check_coverage(&tensors, from)?;
        Ok(Self {
            tensors,
            metadata: raw.metadata.0,
            data_start: 8 + len,
        })
    }
}

/// Returns an error unless the tensors cover the data without gaps or overlaps.
fn check_coverage<R: Read>(tensors: &[Entry], from: &Reader<'_, R>) -> Result<()> {
    let mut order: Vec<&Entry> = tensors.iter().collect();
    order.sort_unstable_by_key(|e| (e.start, e.end));
    let (mut at, mut before) = (0, "");
    for entry in order {
        if entry.start != at {
            let name = &entry.name;
            return Err(from.bad(if entry.start < at {
                format!("{name:?} overlaps with {before:?}")
            } else {
                format!("{name:?} leaves a gap in the data after byte {at}")
            }));
        }
        (at, before) = (entry.end, &entry.name);
    }
    if at != from.left {
        let data = from.left;
        return Err(from.bad(format_args!("the tensors have {at} bytes, the data {data}")));
    }
    Ok(())
}

/// The header before it is checked.
#[derive(Default)]
struct RawHeader {
    tensors: Vec<(String, RawEntry)>,
    metadata: Metadata,
}

/// A tensor of a [`RawHeader`].
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Default)]
struct Metadata(BTreeMap<String, String>);

/// Keys of a [`RawEntry`]; others are errors.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryKey {
    Dtype,
    Shape,
    DataOffsets,
}

/// Stores a value, or fails if there is one already: `serde_json` itself keeps the last of duplicate keys.
fn set<T, E: serde::de::Error>(slot: &mut Option<T>, value: T, name: &str) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom(format_args!("duplicate key {name}"))),
    }
}

// Implemented manually, because derived implementations also accept lists as dictionaries.

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let (mut tensors, mut metadata) = (Vec::new(), None);
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        set(&mut metadata, map.next_value()?, METADATA)?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(RawHeader {
                    tensors,
                    metadata: metadata.unwrap_or_default(),
                })
            }
        }
        from.deserialize_map(Tensors)
    }
}

impl<'de> Deserialize<'de> for RawEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = RawEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary of dtype, shape and data_offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawEntry, A::Error> {
                let (mut dtype, mut shape, mut offsets) = (None, None, None);
                while let Some(key) = map.next_key()? {
                    match key {
                        EntryKey::Dtype => set(&mut dtype, map.next_value()?, "dtype")?,
                        EntryKey::Shape => set(&mut shape, map.next_value()?, "shape")?,
                        EntryKey::DataOffsets => {
                            set(&mut offsets, map.next_value()?, "data_offsets")?
                        }
                    }
                }
                Ok(RawEntry {
                    dtype: dtype.ok_or_else(|| A::Error::missing_field("dtype"))?,
                    shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
                    data_offsets: offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?,
                })
            }
        }
        from.deserialize_map(Keys)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if pairs.insert(key, value).is_some() {
                        return Err(A::Error::custom("duplicate key in __metadata__"));
                    }
                }
                Ok(Metadata(pairs))
            }
        }
        from.deserialize_map(Pairs)
    }
}

impl RawEntry {
    fn check<R: Read>(self, name: String, from: &Reader<'_, R>) -> Result<Entry> {
        let bad = |reason: &dyn fmt::Display| from.bad(format_args!("{name:?}: {reason}"));
        let known = DType::ALL
            .into_iter()
            .find(|d| d.name().to_ascii_uppercase() == self.dtype);
        let dtype = known.ok_or_else(|| {
            bad(&format_args!(
                "type {:?} is not supported; {} are",
                self.dtype,
                DType::ALL.map(DType::name).join(", ")
            ))
        })?;
        let shape = Shape::new("safetensors::load", &self.shape)?;
        let [start, end] = self.data_offsets;
        let need = (shape.count() * dtype.size()) as u64;
        if end.checked_sub(start) != Some(need) {
            return Err(bad(&format_args!(
                "{dtype} {shape} has {need} bytes, but the offsets are {start} to {end}"
            )));
        }
        if end > from.left {
            return Err(bad(&format_args!(
                "offset {end} is past the end of the data, which has {} bytes: the file may be incomplete",
                from.left
            )));
        }
        Ok(Entry {
            name,
            dtype,
            shape,
            start,
            end,
        })
    }
}
