//! Buffers of a launch: loaded or generated, and read back.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use bessemer::DType;
use bessemer::npy::{self, Array};
use bessemer_hal::{Buffer, Device, Error, StorageMode};

use crate::dtype::{byte_count, convert};
use crate::failure::Usage;
use crate::spec::{BufferSpec, Generator};

/// Maximum bytes that are read from a pipe or a device.
const MAX_STREAM_BYTES: usize = 1 << 30;

/// A buffer with its contents before a launch.
#[derive(Debug)]
pub(crate) struct Input {
    /// Its index or name in messages.
    pub(crate) name: String,
    pub(crate) buffer: Buffer,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    Bytes(Vec<u8>),
    Generated(Generator),
}

impl Input {
    /// Loads or describes the contents and allocates the buffer.
    pub(crate) fn load(device: &Device, name: &str, spec: &BufferSpec) -> Result<Self> {
        Self::load_source(device, name, spec).with_context(|| format!("buffer {name}"))
    }

    fn load_source(device: &Device, name: &str, spec: &BufferSpec) -> Result<Self> {
        let limit = device.info().limits.max_buffer_length;
        let (dtype, shape, contents, length) = match spec {
            BufferSpec::Values {
                dtype,
                shape,
                values,
            } => {
                let length = byte_count(*dtype, shape).unwrap_or(usize::MAX);
                (*dtype, shape.clone(), Contents::Generated(*values), length)
            }
            BufferSpec::File { path, dtype } => {
                let array = read(path, *dtype, limit)?;
                let length = array.data.len();
                (
                    array.dtype,
                    array.shape,
                    Contents::Bytes(array.data),
                    length,
                )
            }
            BufferSpec::Literal(array) => {
                let array = array.clone();
                let length = array.data.len();
                (
                    array.dtype,
                    array.shape,
                    Contents::Bytes(array.data),
                    length,
                )
            }
        };
        let buffer = device
            .buffer(length, StorageMode::Shared)
            .map_err(|error| match error {
                Error::BufferTooLong { .. } => Usage::error(error.to_string()),
                error => error.into(),
            })?;
        buffer.set_label(name);
        Ok(Self {
            name: name.to_owned(),
            buffer,
            dtype,
            shape,
            contents,
        })
    }

    /// Resets the buffer to its contents: before every launch, as a launch may change it.
    pub(crate) fn reset(&self) -> Result<()> {
        if self.buffer.length() == 0 {
            return Ok(());
        }
        // A failed launch has lost the contents, which are written again here.
        let _ = self.buffer.take_failure();
        let mut target = self.buffer.as_mut_slice::<u8>()?;
        match &self.contents {
            Contents::Bytes(bytes) => target.copy_from_slice(bytes),
            Contents::Generated(generator) => generator.fill(self.dtype, &mut target),
        }
        Ok(())
    }

    /// Reads the buffer. Defects reported by a checking device do not make it unreadable.
    pub(crate) fn array(&self) -> Result<Array> {
        if let Some(Error::Checked { .. }) = self.buffer.failure() {
            let _ = self.buffer.take_failure();
        }
        let data = self.buffer.to_vec::<u8>();
        Ok(Array {
            dtype: self.dtype,
            shape: self.shape.clone(),
            data: data.with_context(|| format!("cannot read buffer {}", self.name))?,
        })
    }

    /// Writes the buffer to a file: `.npy`, or raw bytes under any other name.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let array = self.array()?;
        if is_npy(path) {
            // NumPy has no bfloat16; float32 represents it exactly.
            let array = match array.dtype {
                DType::BF16 => convert(array, DType::F32),
                _ => array,
            };
            return npy::write(path, &array).context("cannot write the array");
        }
        std::fs::write(path, &array.data)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Reads a file; f64 is rejected, since Metal does not have it.
fn read(path: &Path, dtype: Option<DType>, limit: usize) -> Result<Array> {
    let array = read_any(path, dtype, limit)?;
    if array.dtype == DType::F64 {
        return Err(Usage::error(format!(
            "{0} contains float64, which Metal does not have; convert it with {0}:f32",
            path.display()
        )));
    }
    Ok(array)
}

/// Reads a `.npy` file, converting it if a type is given, or a raw file of that type.
pub(crate) fn read_any(path: &Path, dtype: Option<DType>, limit: usize) -> Result<Array> {
    if is_npy(path) {
        let array = npy::read(path).map_err(|e| Usage::error(format!("cannot read {e}")))?;
        return Ok(match dtype {
            Some(dtype) => convert(array, dtype),
            None => array,
        });
    }
    let load = || -> std::io::Result<Vec<u8>> {
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
            return Err(std::io::Error::other(message));
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

fn is_npy(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}
