//! safetensors: named tensors behind a JSON header.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::json::{Json, Parsed, quoted};
pub use super::map::map;
use super::{Data, Reader, bad, distinct, read, swap, write};
use crate::shape::MAX_RANK;
use crate::{DType, Error, Result, Shape, Tensor, graph};

/// The key of the header that is no tensor.
const METADATA: &str = "__metadata__";

/// Longer headers are refused, as the format says.
const MOST_HEADER: u64 = 100_000_000;

/// What a file holds.
#[derive(Clone, Debug, Default)]
pub struct Safetensors {
    /// The tensors, in the order of the header.
    pub tensors: Vec<(String, Tensor)>,
    /// Whatever else the writer noted.
    pub metadata: BTreeMap<String, String>,
}

impl Safetensors {
    /// The tensor of a name.
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
    for (name, entry) in header.tensors {
        // Tensors mostly lie in the order of the header: then nothing is skipped, and no buffer lost.
        if entry.start != at {
            let place = SeekFrom::Start(header.data_start + entry.start);
            from.from.seek(place).map_err(|e| bad(path, e))?;
        }
        from.left = data - entry.start;
        let tensor = from.tensor("safetensors::load", entry.dtype, entry.shape)?;
        at = entry.end;
        tensors.push((name, tensor));
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

/// Writes named tensors and notes. The header has them in the order given; the data is ordered by the
/// size of the elements, so that every tensor is aligned and can be used where it lies when the file is
/// mapped.
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

    let mut entries = Vec::with_capacity(all.len() + 1);
    if !metadata.is_empty() {
        let notes: Vec<_> = metadata
            .iter()
            .map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)))
            .collect();
        entries.push(format!("{}:{{{}}}", quoted(METADATA), notes.join(",")));
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
    if len as u64 > MOST_HEADER {
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
                swap(&mut bytes, all[i].dtype().size());
                file.write_all(&bytes).map_err(fail)?;
            } else {
                file.write_all(data.bytes()).map_err(fail)?;
            }
        }
        Ok(())
    })
}

/// A tensor of the header.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// Where its bytes are in the data.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The header, found to be consistent.
pub(super) struct Header {
    pub(super) tensors: Vec<(String, Entry)>,
    pub(super) metadata: BTreeMap<String, String>,
    /// Where in the file the data begins.
    pub(super) data_start: u64,
}

impl Header {
    /// Reads it. The tensors cover the data exactly, without gaps and without overlapping: no two
    /// programs can see different things in one file.
    pub(super) fn read<R: Read>(from: &mut Reader<'_, R>) -> Result<Self> {
        let len = u64::from_le_bytes(from.array("the header's length")?);
        if len > MOST_HEADER {
            return Err(from.bad(format_args!(
                "a header of {len} bytes is more than the format allows"
            )));
        }
        let bytes = from.bytes(len, "the header")?;
        let raw = std::str::from_utf8(&bytes)
            .map_err(|_| "not UTF-8")
            .and_then(Raw::parse)
            .map_err(|e| from.bad(format_args!("header: {e}")))?;
        distinct("header", raw.tensors.iter().map(|(name, _)| name.as_ref()))
            .map_err(|e| from.bad(e))?;
        let mut tensors = Vec::with_capacity(raw.tensors.len());
        for (name, info) in &raw.tensors {
            tensors.push((name.clone().into_owned(), info.check(name, from)?));
        }
        let mut spans: Vec<_> = tensors.iter().map(|(_, e)| (e.start, e.end)).collect();
        spans.sort_unstable();
        let mut at = 0;
        for (start, end) in spans {
            if start != at {
                return Err(from.bad("tensors overlap or leave gaps in the data"));
            }
            at = end;
        }
        if at != from.left {
            return Err(from.bad(format_args!(
                "the tensors need {at} bytes of data, the file has {}",
                from.left
            )));
        }
        Ok(Self {
            tensors,
            metadata: raw.metadata,
            data_start: 8 + len,
        })
    }
}

/// The header as it stands in the file.
#[derive(Default)]
struct Raw<'a> {
    tensors: Vec<(Cow<'a, str>, Info<'a>)>,
    metadata: BTreeMap<String, String>,
}

impl<'a> Raw<'a> {
    fn parse(text: &'a str) -> Parsed<Self> {
        let mut out = Self::default();
        let mut noted = false;
        let mut json = Json::new(text);
        json.dictionary(|json, name| {
            if name != METADATA {
                out.tensors.push((name, Info::parse(json)?));
                return Ok(());
            }
            if std::mem::replace(&mut noted, true) {
                return Err("__metadata__ is there twice");
            }
            json.dictionary(|json, key| {
                let value = json.string()?.into_owned();
                match out.metadata.insert(key.into_owned(), value) {
                    None => Ok(()),
                    Some(_) => Err("a key of __metadata__ is there twice"),
                }
            })
        })?;
        json.end()?;
        Ok(out)
    }
}

/// A tensor of the header, as it stands in the file.
struct Info<'a> {
    dtype: Cow<'a, str>,
    /// The first [`MAX_RANK`] dimensions.
    dims: [u64; MAX_RANK],
    rank: usize,
    offsets: [u64; 2],
}

/// Numbers of a list, as many as there is room for, and how many there are.
fn numbers<const N: usize>(json: &mut Json<'_>) -> Parsed<([u64; N], usize)> {
    let (mut out, mut len) = ([0; N], 0);
    json.list(|json| {
        let number = json.number()?;
        if let Some(to) = out.get_mut(len) {
            *to = number;
        }
        len += 1;
        Ok(())
    })?;
    Ok((out, len))
}

impl<'a> Info<'a> {
    fn parse(json: &mut Json<'a>) -> Parsed<Self> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        json.dictionary(|json, key| {
            let new = match &*key {
                "dtype" => dtype.replace(json.string()?).is_none(),
                "shape" => shape.replace(numbers(json)?).is_none(),
                "data_offsets" => offsets.replace(numbers(json)?).is_none(),
                _ => return Err("a key other than dtype, shape and data_offsets"),
            };
            new.then_some(()).ok_or("a key is there twice")
        })?;
        match (dtype, shape, offsets) {
            (Some(dtype), Some((dims, rank)), Some((offsets, 2))) => Ok(Self {
                dtype,
                dims,
                rank,
                offsets,
            }),
            _ => Err("a tensor lacks its dtype, shape or two data_offsets"),
        }
    }

    fn check<R: Read>(&self, name: &str, from: &Reader<'_, R>) -> Result<Entry> {
        let bad = |reason: &dyn fmt::Display| from.bad(format_args!("{name:?}: {reason}"));
        let known = DType::ALL
            .into_iter()
            .find(|d| d.name().eq_ignore_ascii_case(&self.dtype));
        let dtype = known.ok_or_else(|| {
            bad(&format_args!(
                "type {:?} is none of {}",
                self.dtype,
                DType::ALL.map(DType::name).join(", ")
            ))
        })?;
        let Some(dims) = self.dims.get(..self.rank) else {
            return Err(Error::RankTooLarge {
                op: "safetensors::load",
                rank: self.rank,
            });
        };
        // What is no `usize` is larger than the address space.
        let dims: Vec<_> = dims
            .iter()
            .map(|&d| usize::try_from(d).unwrap_or(usize::MAX))
            .collect();
        let shape = Shape::new("safetensors::load", &dims)?;
        let [start, end] = self.offsets;
        let need = shape.count() * dtype.size();
        if start > end || end > from.left {
            return Err(bad(&"its offsets lie outside the data"));
        }
        if end - start != need as u64 {
            return Err(bad(&format_args!(
                "{} bytes are not the {need} that {dtype} {shape} needs",
                end - start
            )));
        }
        Ok(Entry {
            dtype,
            shape,
            start,
            end,
        })
    }
}
