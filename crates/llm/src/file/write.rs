//! Writing GGUF files.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::gguf::{DEFAULT_ALIGNMENT_BYTES, kind};
use super::metadata::{Array, Metadata, Value};
use super::{Format, TensorInfo};
use crate::{Error, Result};

/// Writes a GGUF file of version 3, tensor by tensor, without buffering tensors in memory.
///
/// The file gets its name when it is complete; if the writer is dropped before [`GgufWriter::finish`], nothing is left.
#[derive(Debug)]
pub struct GgufWriter {
    path: PathBuf,
    temporary: PathBuf,
    /// `None` when the file is complete.
    output: Option<BufWriter<File>>,
    /// Names and bytes of the remaining tensors, the next one last.
    remaining: Vec<(String, usize)>,
}

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTensor {
    /// Its name.
    pub name: String,
    /// Storage format.
    pub format: Format,
    /// The shape, outermost axis first.
    pub shape: Vec<usize>,
}

impl From<&TensorInfo> for NewTensor {
    fn from(info: &TensorInfo) -> Self {
        Self {
            name: info.name.clone(),
            format: info.format,
            shape: info.shape.clone(),
        }
    }
}

impl GgufWriter {
    /// Creates a file with this metadata and these tensors, whose bytes must be pushed in the same order.
    pub fn create(
        path: impl AsRef<Path>,
        metadata: &Metadata,
        tensors: &[NewTensor],
    ) -> Result<Self> {
        let path = path.as_ref();
        let mut head = Vec::new();
        let remaining = header(&mut head, path, metadata, tensors)?;
        let temporary =
            Self::temporary_path(path).ok_or_else(|| Error::bad_file(path, "names no file"))?;
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary);
        let file = file.map_err(|e| Error::io(path, e))?;
        let mut writer = Self {
            path: path.to_owned(),
            temporary,
            output: Some(BufWriter::with_capacity(1 << 16, file)),
            remaining,
        };
        writer.write(&head)?;
        Ok(writer)
    }

    /// The temporary file of this process until the file is complete; `None` for a path without a file name.
    pub fn temporary_path(path: &Path) -> Option<PathBuf> {
        let name = path.file_name()?.to_string_lossy();
        Some(path.with_file_name(format!(".{name}.{}.tmp", std::process::id())))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let output = self.output.as_mut().expect("present until finished");
        output
            .write_all(bytes)
            .map_err(|e| Error::io(&self.path, e))
    }

    /// Writes the bytes of the next tensor.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let invalid = |reason: String| Error::Invalid {
            what: "GgufWriter::push".to_owned(),
            reason,
        };
        match self.remaining.pop() {
            Some((_, len)) if len == bytes.len() => {}
            Some((name, len)) => {
                let reason = format!("`{name}` has {len} bytes, not {}", bytes.len());
                return Err(invalid(reason));
            }
            None => return Err(invalid("all tensors have been written".to_owned())),
        }
        self.write(bytes)?;
        let padding = bytes.len().next_multiple_of(DEFAULT_ALIGNMENT_BYTES) - bytes.len();
        self.write(&[0; DEFAULT_ALIGNMENT_BYTES][..padding])
    }

    /// Completes the file and renames it to its path.
    pub fn finish(mut self) -> Result<()> {
        if let Some((name, _)) = self.remaining.last() {
            return Err(Error::Invalid {
                what: "GgufWriter::finish".to_owned(),
                reason: format!("`{name}` has not been written"),
            });
        }
        let mut output = self.output.take().expect("present until finished");
        let done = output.flush().and_then(|()| output.get_ref().sync_all());
        drop(output);
        let done = done.and_then(|()| fs::rename(&self.temporary, &self.path));
        done.map_err(|e| {
            // Report the error of the write, not of the removal.
            let _ = fs::remove_file(&self.temporary);
            Error::io(&self.path, e)
        })
    }
}

impl Drop for GgufWriter {
    fn drop(&mut self) {
        if self.output.take().is_some() {
            // Abandoned; errors of the removal cannot be reported.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes everything before the data; returns names and bytes of the tensors, the first one last.
fn header(
    out: &mut Vec<u8>,
    path: &Path,
    metadata: &Metadata,
    tensors: &[NewTensor],
) -> Result<Vec<(String, usize)>> {
    // The default alignment is used, regardless of the source of the metadata.
    let entries = || {
        metadata
            .iter()
            .filter(|(key, _)| *key != "general.alignment")
    };
    out.extend(b"GGUF");
    out.extend(3_u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((entries().count() as u64).to_le_bytes());
    for (key, value) in entries() {
        string(out, key);
        self::value(out, value);
    }
    let mut remaining = Vec::with_capacity(tensors.len());
    let mut offset: usize = 0;
    for tensor in tensors {
        let wrong = |reason: String| Error::BadTensor {
            path: path.display().to_string(),
            name: tensor.name.clone(),
            reason,
        };
        let NewTensor { format, shape, .. } = tensor;
        let id = format.ggml_id();
        let id = id.ok_or_else(|| wrong(format!("GGUF has no format {format}")))?;
        let unsupported = || wrong(format!("{format} does not support shape {shape:?}"));
        let bytes = format.bytes(shape).ok_or_else(unsupported)?;
        let padded = bytes.checked_next_multiple_of(DEFAULT_ALIGNMENT_BYTES);
        let end = padded.and_then(|len| len.checked_add(offset));
        string(out, &tensor.name);
        out.extend((shape.len() as u32).to_le_bytes());
        for &axis in shape.iter().rev() {
            out.extend((axis as u64).to_le_bytes());
        }
        out.extend(id.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset = end.ok_or_else(unsupported)?;
        remaining.push((tensor.name.clone(), bytes));
    }
    out.resize(out.len().next_multiple_of(DEFAULT_ALIGNMENT_BYTES), 0);
    remaining.reverse();
    Ok(remaining)
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn value(out: &mut Vec<u8>, value: &Value) {
    let mut plain = |kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(v) => plain(kind::U8, &v.to_le_bytes()),
        Value::I8(v) => plain(kind::I8, &v.to_le_bytes()),
        Value::U16(v) => plain(kind::U16, &v.to_le_bytes()),
        Value::I16(v) => plain(kind::I16, &v.to_le_bytes()),
        Value::U32(v) => plain(kind::U32, &v.to_le_bytes()),
        Value::I32(v) => plain(kind::I32, &v.to_le_bytes()),
        Value::U64(v) => plain(kind::U64, &v.to_le_bytes()),
        Value::I64(v) => plain(kind::I64, &v.to_le_bytes()),
        Value::F32(v) => plain(kind::F32, &v.to_le_bytes()),
        Value::F64(v) => plain(kind::F64, &v.to_le_bytes()),
        Value::Bool(v) => plain(kind::BOOL, &[u8::from(*v)]),
        Value::String(v) => {
            plain(kind::STRING, &[]);
            string(out, v);
        }
        Value::Array(v) => {
            plain(kind::ARRAY, &[]);
            array(out, v);
        }
    }
}

fn array(out: &mut Vec<u8>, array: &Array) {
    let mut numbers = |kind: u32, bytes: &mut dyn Iterator<Item = u8>| {
        out.extend(kind.to_le_bytes());
        out.extend((array.len() as u64).to_le_bytes());
        out.extend(bytes);
    };
    match array {
        Array::U8(v) => numbers(kind::U8, &mut v.iter().copied()),
        Array::I8(v) => numbers(kind::I8, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U16(v) => numbers(kind::U16, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I16(v) => numbers(kind::I16, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U32(v) => numbers(kind::U32, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I32(v) => numbers(kind::I32, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U64(v) => numbers(kind::U64, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I64(v) => numbers(kind::I64, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F32(v) => numbers(kind::F32, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F64(v) => numbers(kind::F64, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::Bool(v) => numbers(kind::BOOL, &mut v.iter().map(|&v| u8::from(v))),
        Array::String(v) => {
            numbers(kind::STRING, &mut std::iter::empty());
            v.iter().for_each(|text| string(out, text));
        }
    }
}
