//! Contents of buffers on the command line: read, generated, printed and saved.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use bessemer::DType;
use bessemer::npy::{self, Array};
use clap::Args;
use serde_json::Value;

use crate::dtype::{Elements as _, byte_count, convert};
use crate::failure::Usage;
use crate::spec::{BufferSpec, Indexed, OutSpec, PrintSpec};
use crate::terminal::style;

/// Maximum bytes that are read from a pipe or a device.
const MAX_STREAM_BYTES: usize = 1 << 30;

/// Buffers of a launch.
#[derive(Debug, Args)]
pub(crate) struct BufferArgs {
    /// Bind a buffer: INDEX=FILE, INDEX=FILE:TYPE, INDEX=zeros:TYPE:COUNT, …
    ///
    /// INDEX=in.npy         an array; converted if a :TYPE follows
    /// INDEX=in.bin         raw bytes; of that type if a :TYPE follows
    /// INDEX=zeros:f32:64   also ones:TYPE:COUNT and iota:TYPE:COUNT (0, 1, 2, …)
    /// INDEX=fill:f32:64:1.5
    /// INDEX=random:f32:64  floats in [-1, 1), integers in 0..100; random:TYPE:COUNT:SEED
    ///
    /// COUNT may be a shape such as 4x16. Types: f32 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64 bool.
    #[arg(
        short,
        long = "buffer",
        value_name = "INDEX=SOURCE",
        help_heading = "Arguments",
        verbatim_doc_comment
    )]
    pub(crate) inputs: Vec<Indexed<BufferSpec>>,
    /// Write a buffer to a file afterwards: .npy with its original type and shape, otherwise raw
    #[arg(
        short,
        long = "out",
        value_name = "INDEX=FILE",
        help_heading = "Results"
    )]
    pub(crate) outs: Vec<Indexed<OutSpec>>,
    /// Print the first values of a buffer afterwards [default count: 16]
    #[arg(
        short,
        long = "print",
        value_name = "INDEX[:COUNT]",
        help_heading = "Results"
    )]
    pub(crate) prints: Vec<PrintSpec>,
}

impl BufferArgs {
    /// Rejects results of buffers that are not bound.
    pub(crate) fn check_indices(&self) -> Result<()> {
        let outs = self.outs.iter().map(|o| ("--out", o.index));
        let prints = self.prints.iter().map(|p| ("--print", p.index));
        outs.chain(prints)
            .try_for_each(|(option, index)| self.check_index(option, index))
    }

    /// Rejects an option for a buffer that is not bound.
    pub(crate) fn check_index(&self, option: &str, index: u32) -> Result<()> {
        if self.inputs.iter().any(|b| b.index == index) {
            return Ok(());
        }
        Err(Usage::error(format!(
            "{option} {index}: there is no --buffer {index}"
        )))
    }

    /// Writes buffers to the files that were asked for.
    pub(crate) fn save(&self, array: impl Fn(u32) -> Result<Array>) -> Result<()> {
        self.outs
            .iter()
            .try_for_each(|out| save(array(out.index)?, &out.value.0))
    }

    /// The values that were asked for, as JSON by index; `None` if none were.
    pub(crate) fn values(&self, array: impl Fn(u32) -> Result<Array>) -> Result<Option<Value>> {
        if self.prints.is_empty() {
            return Ok(None);
        }
        let mut values = serde_json::Map::new();
        for spec in &self.prints {
            let array = array(spec.index)?;
            let elements = array.data.chunks_exact(array.dtype.size());
            let shown: Vec<_> = elements
                .take(spec.count)
                .map(|e| array.dtype.to_json(e))
                .collect();
            values.insert(spec.index.to_string(), shown.into());
        }
        Ok(Some(values.into()))
    }

    /// Prints the values that were asked for.
    pub(crate) fn print(
        &self,
        out: &mut impl Write,
        array: impl Fn(u32) -> Result<Array>,
    ) -> Result<()> {
        for spec in &self.prints {
            let array = array(spec.index)?;
            let elements = array.data.chunks_exact(array.dtype.size());
            let total = elements.len();
            let mut shown: Vec<_> = elements
                .take(spec.count)
                .map(|e| array.dtype.format(e))
                .collect();
            if shown.len() < total {
                shown.push("…".to_owned());
            }
            let dims: Vec<_> = array.shape.iter().map(usize::to_string).collect();
            let (bold, dtype) = (style::STRONG, array.dtype);
            let heading = format!("buffer {} ({dtype} {})", spec.index, dims.join("x"));
            writeln!(out, "{bold}{heading}{bold:#}: {}", shown.join(" "))?;
        }
        Ok(())
    }
}

/// The contents of a buffer of at most `limit` bytes.
pub(crate) fn load(spec: &BufferSpec, limit: usize) -> Result<Array> {
    match spec {
        BufferSpec::Values {
            dtype,
            shape,
            values,
        } => {
            let length = byte_count(*dtype, shape).filter(|&length| length <= limit);
            let length = length
                .ok_or_else(|| Usage::error(format!("longer than the maximum of {limit} bytes")))?;
            let mut data = vec![0; length];
            values.fill(*dtype, &mut data);
            Ok(Array {
                dtype: *dtype,
                shape: shape.clone(),
                data,
            })
        }
        BufferSpec::File { path, dtype } => read(path, *dtype, limit),
        BufferSpec::Literal(array) => Ok(array.clone()),
    }
}

/// Reads a `.npy` file, converting it if a type is given, or a raw file of that type.
fn read(path: &Path, dtype: Option<DType>, limit: usize) -> Result<Array> {
    if is_npy(path) {
        let array = npy::read(path).map_err(|e| Usage::error(format!("cannot read {e}")))?;
        return Ok(match dtype {
            Some(dtype) => convert(array, dtype),
            None => array,
        });
    }
    let load = || -> io::Result<Vec<u8>> {
        let mut data = Vec::new();
        let file = File::open(path)?;
        // A stream may be endless.
        let max_bytes = if file.metadata()?.is_file() {
            limit
        } else {
            limit.min(MAX_STREAM_BYTES)
        };
        let max_bytes = u64::try_from(max_bytes).unwrap_or(u64::MAX);
        file.take(max_bytes.saturating_add(1))
            .read_to_end(&mut data)?;
        if data.len() as u64 > max_bytes {
            let message = format!("longer than the maximum of {max_bytes} bytes");
            return Err(io::Error::other(message));
        }
        Ok(data)
    };
    let data = load().with_context(|| Usage::context(format!("cannot read {}", path.display())))?;
    let dtype = dtype.unwrap_or(DType::U8);
    if !data.len().is_multiple_of(dtype.size()) {
        return Err(Usage::error(format!(
            "{} has {} bytes, which is not a whole number of {dtype} values",
            path.display(),
            data.len()
        )));
    }
    Ok(Array {
        dtype,
        shape: vec![data.len() / dtype.size()],
        data,
    })
}

/// Writes an array to a file: `.npy`, or raw bytes under any other name.
fn save(array: Array, path: &Path) -> Result<()> {
    if is_npy(path) {
        // NumPy has no bfloat16; float32 represents it exactly.
        let array = match array.dtype {
            DType::BF16 => convert(array, DType::F32),
            _ => array,
        };
        return npy::write(path, &array).context("cannot write the array");
    }
    std::fs::write(path, &array.data).with_context(|| format!("cannot write {}", path.display()))
}

fn is_npy(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}
