//! safetensors: one file, or several with an index, and their companion files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bessemer::safetensors::Header;
use bessemer::{DType, Mapping};
use serde::Deserialize;

use super::metadata::{Metadata, Value};
use super::{Container, Contents, Format, TensorInfo, hub, map, name};
use crate::config::Architecture;
use crate::{Error, Result};

pub(super) fn open(mapping: Arc<Mapping>) -> Result<Contents> {
    let path = mapping.path().to_owned();
    finish(&path, vec![mapping])
}

/// Opens the shards of an index.
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
        // Only a file name: an index must not refer outside its directory.
        if Path::new(file).file_name() != Some(file.as_ref()) {
            let reason = format!("`{file}` is not the name of a file in this directory");
            return Err(Error::bad_file(index, reason));
        }
        mappings.push(Arc::new(map::open(&index.with_file_name(file))?));
    }
    let contents = finish(index, mappings)?;
    let own = |t: &TensorInfo| t.source.clone().unwrap_or_else(|| t.name.clone());
    let existing: BTreeSet<String> = contents.tensors.iter().map(own).collect();
    match weight_map.keys().find(|&name| !existing.contains(name)) {
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
    // Other families may use the same names for other tensors.
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
    let path = mapping.path();
    let header = Header::of(mapping.bytes(), path).map_err(|error| match error {
        bessemer::Error::File { path, reason } => Error::BadFile { path, reason },
        other => Error::bad_file(path, other),
    })?;
    for (key, value) in header.metadata {
        metadata.set(&format!("safetensors.{key}"), Value::String(value));
    }
    for entry in header.tensors {
        let Some(format) = format(entry.dtype) else {
            return Err(Error::BadTensor {
                path: path.display().to_string(),
                name: entry.name,
                reason: format!("type {} is not supported", entry.dtype),
            });
        };
        // Both are inside the mapping, whose length is a `usize`.
        let [start, end] = [entry.start, entry.end].map(|at| (header.data_start + at) as usize);
        tensors.push(TensorInfo {
            name: entry.name,
            source: None,
            format,
            shape: entry.shape.to_vec(),
            shard,
            range: start..end,
        });
    }
    Ok(())
}

fn format(dtype: DType) -> Option<Format> {
    Some(match dtype {
        DType::F64 => Format::F64,
        DType::F32 => Format::F32,
        DType::F16 => Format::F16,
        DType::BF16 => Format::BF16,
        DType::I64 => Format::I64,
        DType::I32 => Format::I32,
        DType::I16 => Format::I16,
        DType::I8 => Format::I8,
        DType::U8 => Format::U8,
        DType::Bool => Format::Bool,
        _ => return None,
    })
}
