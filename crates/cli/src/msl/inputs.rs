//! Buffers of a launch: loaded or generated, and read back.

use anyhow::{Context as _, Result};
use bessemer::DType;
use bessemer::npy::Array;
use bessemer_hal::{Buffer, Device, Error, StorageMode};

use crate::array;
use crate::dtype::byte_count;
use crate::failure::Usage;
use crate::spec::{BufferSpec, Generator};

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
            BufferSpec::File { .. } | BufferSpec::Literal(_) => {
                let array = array::load(spec, limit).with_context(|| format!("buffer {name}"))?;
                let length = array.data.len();
                let contents = Contents::Bytes(array.data);
                (array.dtype, array.shape, contents, length)
            }
        };
        if dtype == DType::F64 {
            return Err(refused_f64(name, spec));
        }
        let buffer = device
            .buffer(length, StorageMode::Shared)
            .map_err(|error| match error {
                Error::BufferTooLong { .. } => Usage::error(error.to_string()),
                error => error.into(),
            })
            .with_context(|| format!("buffer {name}"))?;
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
}

/// The error of a buffer of f64, which Metal does not have.
fn refused_f64(name: &str, spec: &BufferSpec) -> anyhow::Error {
    Usage::error(match spec {
        BufferSpec::File { path, .. } => format!(
            "buffer {name}: {0} contains float64, which Metal does not have; convert it with {0}:f32",
            path.display()
        ),
        _ => format!("buffer {name}: Metal has no f64; use f32"),
    })
}
