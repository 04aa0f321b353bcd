//! safetensors: one file, or several with an index, and what lies beside them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};

use super::metadata::{Metadata, Value};
use super::{Container, Contents, Format, Mapping, TensorInfo, hub, name};
use crate::config::Architecture;
use crate::{Error, Result};

/// Longer headers are refused, as the format says.
const MOST_HEADER: u64 = 100_000_000;

pub(super) fn open(mapping: Arc<Mapping>) -> Result<Contents> {
    let path = mapping.path().to_owned();
    finish(&path, vec![mapping])
}

/// Opens the files that an index names.
pub(super) fn open_sharded(index: &Path) -> Result<Contents> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let text = std::fs::read(index).map_err(|e| Error::io(index, e))?;
    let Index { weight_map } =
        serde_json::from_slice(&text).map_err(|e| Error::bad_file(index, e))?;
    let files: BTreeSet<&String> = weight_map.values().collect();
    let mut mappings = Vec::with_capacity(files.len());
    for file in files {
        // A name and nothing else: an index must not reach outside its directory.
        if Path::new(file).file_name() != Some(file.as_ref()) {
            let reason = format!("`{file}` is not the name of a file in this directory");
            return Err(Error::bad_file(index, reason));
        }
        mappings.push(Arc::new(Mapping::open(&index.with_file_name(file))?));
    }
    let contents = finish(index, mappings)?;
    let own = |t: &TensorInfo| t.source.clone().unwrap_or_else(|| t.name.clone());
    let there: BTreeSet<String> = contents.tensors.iter().map(own).collect();
    match weight_map.keys().find(|&name| !there.contains(name)) {
        None => Ok(contents),
        Some(name) => Err(Error::NoTensor {
            path: index.display().to_string(),
            name: name.clone(),
        }),
    }
}

fn finish(path: &Path, mappings: Vec<Arc<Mapping>>) -> Result<Contents> {
    let mut metadata = hub::metadata(path)?;
    let mut tensors = Vec::new();
    for (shard, mapping) in mappings.iter().enumerate() {
        read(mapping, shard, &mut tensors, &mut metadata)?;
    }
    let architecture = metadata.text("general.architecture")?.unwrap_or_default();
    let is_known = Architecture::ALL.iter().any(|a| a.name() == architecture);
    // Other families may mean something else by the same names.
    for tensor in tensors.iter_mut().filter(|_| is_known) {
        if let Some(name) = name::canonical(architecture, &tensor.name) {
            tensor.source = Some(std::mem::replace(&mut tensor.name, name));
        }
    }
    Ok(Contents {
        container: Container::Safetensors,
        mappings,
        metadata,
        tensors,
    })
}

/// Reads one file's header.
fn read(
    mapping: &Mapping,
    shard: usize,
    tensors: &mut Vec<TensorInfo>,
    metadata: &mut Metadata,
) -> Result<()> {
    let (path, bytes) = (mapping.path(), mapping.bytes());
    let bad = |reason: String| Error::bad_file(path, reason);
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Err(bad("too short for a safetensors file".to_owned()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MOST_HEADER || length > rest.len() as u64 {
        return Err(bad(format!(
            "a header of {length} bytes does not fit in a file of {}: not safetensors, damaged or \
             incomplete",
            bytes.len()
        )));
    }
    let length = length as usize;
    let header = rest[..length].to_vec();
    let header: Header =
        serde_json::from_slice(&header).map_err(|e| bad(format!("header: {e}")))?;
    for (key, value) in header.notes {
        metadata.set(&format!("safetensors.{key}"), Value::String(value));
    }
    let start = 8 + length;
    let mut covered = 0;
    for (name, entry) in header.tensors {
        let wrong = |reason: String| Error::BadTensor {
            path: path.display().to_string(),
            name: name.clone(),
            reason,
        };
        let Some(format) = format(&entry.dtype) else {
            return Err(wrong(format!("type {} is not supported", entry.dtype)));
        };
        let [from, to] = entry.data_offsets;
        let len = format.bytes(&entry.shape);
        if to < from || len != Some(to - from) {
            return Err(wrong(format!(
                "{:?} numbers of {format} do not fill bytes {from} to {to}",
                entry.shape
            )));
        }
        if to > bytes.len() - start {
            return Err(wrong(format!(
                "byte {to} lies past the end of the data, which has {} bytes: the file may be incomplete",
                bytes.len() - start
            )));
        }
        covered += to - from;
        tensors.push(TensorInfo {
            name,
            source: None,
            format,
            shape: entry.shape,
            shard,
            range: start + from..start + to,
        });
    }
    // Together with the check that no two overlap, which `Model` does: no gaps.
    if covered != bytes.len() - start {
        return Err(bad(format!(
            "the tensors have {covered} bytes, the data {}",
            bytes.len() - start
        )));
    }
    Ok(())
}

fn format(dtype: &str) -> Option<Format> {
    Some(match dtype {
        "F64" => Format::F64,
        "F32" => Format::F32,
        "F16" => Format::F16,
        "BF16" => Format::BF16,
        "I64" => Format::I64,
        "I32" => Format::I32,
        "I16" => Format::I16,
        "I8" => Format::I8,
        "U8" => Format::U8,
        "BOOL" => Format::Bool,
        _ => return None,
    })
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// The header, in its order.
#[derive(Default)]
struct Header {
    tensors: Vec<(String, Entry)>,
    notes: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key != "__metadata__" {
                        header.tensors.push((key, map.next_value()?));
                        continue;
                    }
                    if !header.notes.is_empty() {
                        return Err(A::Error::custom("`__metadata__` is there twice"));
                    }
                    let notes: std::collections::BTreeMap<String, String> = map.next_value()?;
                    header.notes = notes.into_iter().collect();
                }
                Ok(header)
            }
        }
        from.deserialize_map(Entries)
    }
}
