//! Model files: GGUF, safetensors and llama2.c's `.bin`, mapped: weights are copied only where they are repacked.
//!
//! All containers have the same interface: metadata under GGUF's keys, tensors under GGUF's names
//! ([`Model::tensor`]), shapes with the outermost axis first. Files are untrusted: counts and
//! lengths are compared with the length of the file before memory is allocated, tensors must be inside the
//! file and must not overlap, and violations are typed errors.

mod format;
mod gguf;
mod hub;
mod llama2c;
mod map;
mod metadata;
mod name;
mod safetensors;
#[cfg(test)]
mod tests;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bessemer::Mapping;
use half::{bf16, f16};

use crate::{Error, Result};
pub use format::Format;
pub(crate) use hub::read_json;
pub use metadata::{Array, Metadata, Strings, Value};
pub use write::{GgufWriter, NewTensor};

/// File format of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Container {
    /// GGUF, of version 2 or 3.
    Gguf,
    /// safetensors, one file or several, with a `config.json` in the same directory.
    Safetensors,
    /// The `.bin` of llama2.c, version 0.
    Llama2c,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gguf => "GGUF",
            Self::Safetensors => "safetensors",
            Self::Llama2c => "llama2.c",
        })
    }
}

/// Description of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in this crate, which is GGUF's: `blk.0.attn_q.weight`.
    pub name: String,
    /// The name in the file, if it differs.
    pub source: Option<String>,
    /// Storage format.
    pub format: Format,
    /// The shape, outermost axis first; a weight matrix is `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Index of its file among the model's files.
    pub shard: usize,
    /// Byte range in that file.
    pub range: Range<usize>,
}

impl TensorInfo {
    /// Number of elements.
    pub fn count(&self) -> usize {
        // Checked when the file was opened.
        self.shape.iter().product()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

/// A tensor in a mapped file, or some rows of one. Keeps the mapping alive; cheap to clone.
#[derive(Clone)]
pub struct TensorView {
    mapping: Arc<Mapping>,
    name: String,
    format: Format,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl TensorView {
    /// The name of the tensor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Storage format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The shape, outermost axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its bytes, in the mapped file.
    pub fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[self.range.clone()]
    }

    /// The mapping and the byte range in it, for devices that use the tensor in place.
    pub(crate) fn mapped_range(&self) -> (Arc<Mapping>, Range<usize>) {
        (Arc::clone(&self.mapping), self.range.clone())
    }

    /// Evicts a byte range from resident memory: it was copied, or will not be read again soon.
    pub(crate) fn release(&self, range: Range<usize>) {
        let start = self.range.start;
        self.mapping.release(start + range.start..start + range.end);
    }

    /// Converts an unquantised tensor to f32: for vectors such as norms and biases.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let bytes = self.bytes();
        Ok(match self.format {
            Format::F32 => elements(bytes, f32::from_le_bytes).collect(),
            Format::F16 => elements(bytes, f16::from_le_bytes).map(f32::from).collect(),
            Format::BF16 => elements(bytes, bf16::from_le_bytes)
                .map(f32::from)
                .collect(),
            Format::F64 => elements(bytes, f64::from_le_bytes)
                .map(|v| v as f32)
                .collect(),
            other => {
                return Err(Error::BadTensor {
                    path: self.mapping.path().display().to_string(),
                    name: self.name.clone(),
                    reason: format!("elements of format {other} are not unquantised floats"),
                });
            }
        })
    }

    /// Returns a view of some rows along the outermost axis, for example of fused weights.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self> {
        let wrong = |reason: String| Error::BadTensor {
            path: self.mapping.path().display().to_string(),
            name: self.name.clone(),
            reason,
        };
        let Some((&outer, inner)) = self.shape.split_first() else {
            return Err(wrong("a single number has no rows".to_owned()));
        };
        if rows.start > rows.end || rows.end > outer {
            return Err(wrong(format!(
                "there are {outer} rows, not {}..{}",
                rows.start, rows.end
            )));
        }
        if inner.is_empty() && self.format.is_quantised() {
            return Err(wrong("a quantised vector cannot be split".to_owned()));
        }
        let row = self.range.len() / outer.max(1);
        let mut out = self.clone();
        out.shape[0] = rows.len();
        out.range = self.range.start + rows.start * row..self.range.start + rows.end * row;
        Ok(out)
    }
}

fn elements<T, const N: usize>(bytes: &[u8], read: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    let (chunks, _) = bytes.as_chunks();
    chunks.iter().map(move |chunk| read(*chunk))
}

impl AsRef<[u8]> for TensorView {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for TensorView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            format,
            shape,
            ..
        } = self;
        write!(f, "TensorView({name}: {format} {shape:?})")
    }
}

/// A model's file or files, mapped. Cheap to clone; can be used from several threads.
#[derive(Clone, Debug)]
pub struct Model {
    inner: Arc<ModelInner>,
}

#[derive(Debug)]
struct ModelInner {
    path: PathBuf,
    container: Container,
    mappings: Vec<Arc<Mapping>>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

/// Contents of a model file.
struct Contents {
    container: Container,
    mappings: Vec<Arc<Mapping>>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

/// File names of models in a directory, in order of preference.
const MODEL_FILE_NAMES: [&str; 4] = [
    "model.safetensors.index.json",
    "model.safetensors",
    "model.gguf",
    "model.bin",
];

impl Model {
    /// Opens a model: a file, or a directory with `model.safetensors` or its shards, or with a single model file.
    /// The container is detected from the contents.
    ///
    /// The file is mapped and must not be modified while the model or a [`TensorView`] of it exists:
    /// overwritten weights give other results, and a truncated file kills the process. Replacing it by
    /// renaming another file is fine.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() {
            in_directory(path)?
        } else {
            path.to_owned()
        };
        if file
            .file_name()
            .is_some_and(|n| n.to_string_lossy().ends_with(".index.json"))
        {
            return Self::new(&file, safetensors::open_sharded(&file)?);
        }
        let mapping = Arc::new(map::open(&file)?);
        let contents = match mapping.bytes() {
            [b'G', b'G', b'U', b'F', ..] => gguf::open(mapping)?,
            [_, _, _, _, _, _, _, _, b'{', ..] => safetensors::open(mapping)?,
            _ => llama2c::open(mapping)?,
        };
        Self::new(&file, contents)
    }

    /// Checks invariants of all containers.
    fn new(path: &Path, contents: Contents) -> Result<Self> {
        let Contents {
            container,
            mappings,
            metadata,
            tensors,
        } = contents;
        let mut index = HashMap::with_capacity(tensors.len());
        for (i, tensor) in tensors.iter().enumerate() {
            if index.insert(tensor.name.clone(), i).is_some() {
                return Err(Error::BadTensor {
                    path: path.display().to_string(),
                    name: tensor.name.clone(),
                    reason: "is defined twice".to_owned(),
                });
            }
        }
        check_overlap(path, &tensors)?;
        // Headers have been copied; those of large vocabularies have megabytes.
        for mapping in &mappings {
            mapping.release(0..mapping.bytes().len());
        }
        Ok(Self {
            inner: Arc::new(ModelInner {
                path: path.to_owned(),
                container,
                mappings,
                metadata,
                tensors,
                index,
            }),
        })
    }

    /// The path of the opened file: of several, the first or their index.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The container.
    pub fn container(&self) -> Container {
        self.inner.container
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        let len = |m: &Arc<Mapping>| m.bytes().len() as u64;
        self.inner.mappings.iter().map(len).sum()
    }

    /// The metadata, under GGUF's keys.
    pub fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.inner.tensors.iter()
    }

    /// The description of a tensor, if the file has it.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        Some(&self.inner.tensors[*self.inner.index.get(name)?])
    }

    /// Returns whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.inner.index.contains_key(name)
    }

    /// A tensor by name, in the mapped file.
    pub fn tensor(&self, name: &str) -> Result<TensorView> {
        let Some(info) = self.info(name) else {
            return Err(Error::NoTensor {
                path: self.inner.path.display().to_string(),
                name: name.to_owned(),
            });
        };
        Ok(TensorView {
            mapping: Arc::clone(&self.inner.mappings[info.shard]),
            name: info.name.clone(),
            format: info.format,
            shape: info.shape.clone(),
            range: info.range.clone(),
        })
    }

    /// A file in the directory of the model, such as `tokenizer.json`, if it exists.
    pub fn beside(&self, name: &str) -> Option<PathBuf> {
        let path = self.inner.path.with_file_name(name);
        path.is_file().then_some(path)
    }
}

/// Finds the model in a directory.
fn in_directory(dir: &Path) -> Result<PathBuf> {
    let named = MODEL_FILE_NAMES.iter().map(|name| dir.join(name));
    if let Some(path) = named.into_iter().find(|p| p.is_file()) {
        return Ok(path);
    }
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io(dir, e))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.is_file() && p.extension().is_some_and(is_model))
        // A vocabulary of llama2.c, not a model.
        .filter(|p| p.file_name().is_some_and(|n| n != "tokenizer.bin"))
        .collect();
    found.sort();
    // Of a sharded model, keep the first shard.
    let is_later_shard = |p: &PathBuf| gguf::shard(p).is_some_and(|shard| shard.number > 1);
    found.retain(|p| !is_later_shard(p));
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Error::bad_file(
            dir,
            "there is no model in this directory: no model.safetensors, no .gguf and no .bin",
        )),
        several => Err(Error::bad_file(
            dir,
            format_args!(
                "there are {} models in this directory; name one",
                several.len()
            ),
        )),
    }
}

fn is_model(extension: &std::ffi::OsStr) -> bool {
    ["gguf", "safetensors", "bin"]
        .iter()
        .any(|e| extension == *e)
}

/// Rejects tensors that overlap.
fn check_overlap(path: &Path, tensors: &[TensorInfo]) -> Result<()> {
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    order.sort_unstable_by_key(|t| (t.shard, t.range.start));
    for pair in order.windows(2) {
        let [a, b] = pair else { continue };
        if a.shard == b.shard && a.range.end > b.range.start {
            return Err(Error::BadTensor {
                path: path.display().to_string(),
                name: b.name.clone(),
                reason: format!("overlaps with `{}`", a.name),
            });
        }
    }
    Ok(())
}
