//! `f32` tensors in memory that host and device share.

use std::sync::Arc;

use bessemer::{DType, Error, IntoShape, Result, Shape, Tensor};
use bessemer_hal::{Buffer, HostSlice, HostSliceMut};

use super::MetalBackend;
use crate::backend::{device_error, slice_of};

/// An `f32` buffer with a shape. The host reads and writes it in place; both wait for kernels that use it.
#[derive(Clone, Debug)]
pub struct MetalTensor {
    backend: Arc<MetalBackend>,
    buffer: Buffer,
    shape: Shape,
}

impl MetalTensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`Error::Device`], or an invalid shape.
    pub fn zeros(backend: &Arc<MetalBackend>, shape: impl IntoShape) -> Result<Self> {
        let shape = shape.into_shape("MetalTensor")?;
        let buffer = backend.create_buffer_zeros(shape.count())?;
        Self::with_shape(backend, buffer, shape)
    }

    /// A tensor at the start of a buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`], if the buffer is too short.
    pub fn with_shape(
        backend: &Arc<MetalBackend>,
        buffer: Buffer,
        shape: impl IntoShape,
    ) -> Result<Self> {
        let shape = shape.into_shape("MetalTensor")?;
        slice_of("MetalTensor", &buffer, 0, shape.count() * size_of::<f32>())?;
        Ok(Self {
            backend: Arc::clone(backend),
            buffer,
            shape,
        })
    }

    /// A vector in a buffer.
    ///
    /// # Errors
    /// As [`MetalTensor::with_shape`], here and below.
    pub fn new_1d(backend: &Arc<MetalBackend>, buffer: Buffer, len: usize) -> Result<Self> {
        Self::with_shape(backend, buffer, [len])
    }

    /// A matrix in a buffer.
    ///
    /// # Errors
    /// As [`MetalTensor::with_shape`].
    pub fn new_2d(
        backend: &Arc<MetalBackend>,
        buffer: Buffer,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        Self::with_shape(backend, buffer, [rows, cols])
    }

    /// A tensor of rank 3 in a buffer.
    ///
    /// # Errors
    /// As [`MetalTensor::with_shape`].
    pub fn new_3d(backend: &Arc<MetalBackend>, buffer: Buffer, dims: [usize; 3]) -> Result<Self> {
        Self::with_shape(backend, buffer, dims)
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of axes.
    pub fn ndim(&self) -> usize {
        self.shape.rank()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.count()
    }

    /// Returns `true` if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows and columns.
    ///
    /// # Errors
    /// [`Error::BadShape`] unless the rank is 2.
    pub fn shape_2d(&self) -> Result<(usize, usize)> {
        match self.shape[..] {
            [rows, cols] => Ok((rows, cols)),
            _ => Err(Error::BadShape {
                op: "shape_2d",
                shape: self.shape,
                reason: "expected a matrix".to_owned(),
            }),
        }
    }

    /// Number of rows of a matrix.
    ///
    /// # Errors
    /// As [`MetalTensor::shape_2d`].
    pub fn nrows(&self) -> Result<usize> {
        Ok(self.shape_2d()?.0)
    }

    /// Number of columns of a matrix.
    ///
    /// # Errors
    /// As [`MetalTensor::shape_2d`].
    pub fn ncols(&self) -> Result<usize> {
        Ok(self.shape_2d()?.1)
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// [`Error::BadShape`], if the number of elements differs.
    pub fn reshape(&self, shape: impl IntoShape) -> Result<Self> {
        let shape = shape.into_shape("reshape")?;
        if shape.count() != self.len() {
            return Err(Error::BadShape {
                op: "reshape",
                shape,
                reason: format!(
                    "it has {} elements, the tensor {}",
                    shape.count(),
                    self.len()
                ),
            });
        }
        Ok(Self {
            shape,
            ..self.clone()
        })
    }

    /// Size in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.len() * size_of::<f32>()
    }

    /// The elements, in place, after waiting for pending writes. The buffer may be longer than the tensor.
    ///
    /// # Errors
    /// [`Error::Device`]: a pending write failed, or the host holds a mutable slice of the buffer.
    pub fn as_slice(&self) -> Result<HostSlice<'_, f32>> {
        self.backend.external().wait("as_slice", &self.buffer)?;
        let slice = self.buffer.as_slice();
        slice.map_err(|e| device_error("as_slice", e))
    }

    /// The elements, mutable and in place, after waiting for commands that use them.
    ///
    /// # Errors
    /// As [`MetalTensor::as_slice`].
    pub fn as_slice_mut(&mut self) -> Result<HostSliceMut<'_, f32>> {
        self.backend.external().wait("as_slice_mut", &self.buffer)?;
        let slice = self.buffer.as_mut_slice();
        slice.map_err(|e| device_error("as_slice_mut", e))
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// As [`MetalTensor::as_slice`].
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        Ok(self.as_slice()?[..self.len()].to_vec())
    }

    /// The engine's tensor over the same memory. Ops that are still pending may or may not see later writes to it.
    ///
    /// # Errors
    /// As [`MetalTensor::with_shape`].
    pub fn to_tensor(&self) -> Result<Tensor> {
        let slice = slice_of("to_tensor", &self.buffer, 0, self.memory_bytes())?;
        self.backend
            .external()
            .tensor(&slice, DType::F32, self.shape)
    }

    /// Computes a tensor of the same shape into this tensor's memory.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongType`], and errors of the evaluation.
    pub fn assign(&mut self, tensor: Tensor) -> Result<()> {
        tensor.check()?;
        if tensor.dtype() != DType::F32 {
            return Err(Error::WrongType {
                op: "assign",
                actual: tensor.dtype(),
                requested: DType::F32,
            });
        }
        if *tensor.shape() != self.shape {
            return Err(Error::ShapeMismatch {
                op: "assign",
                left: self.shape,
                right: *tensor.shape(),
                reason: "shapes must match",
            });
        }
        let slice = slice_of("assign", &self.buffer, 0, self.memory_bytes())?;
        // The tensor may be computed from this memory.
        self.backend.external().store(tensor, &slice, &[&slice])
    }
}

/// Several tensors of one shape, contiguous in one buffer.
#[derive(Clone, Debug)]
pub struct MetalTensorBatch {
    stacked: MetalTensor,
    tensor_shape: Shape,
}

impl MetalTensorBatch {
    /// A batch of zeros.
    ///
    /// # Errors
    /// [`Error::Device`], or an invalid shape.
    pub fn zeros(
        backend: &Arc<MetalBackend>,
        batch_size: usize,
        shape: impl IntoShape,
    ) -> Result<Self> {
        let tensor_shape = shape.into_shape("MetalTensorBatch")?;
        let dims = [&[batch_size], &tensor_shape[..]].concat();
        let stacked = MetalTensor::zeros(backend, &dims[..])?;
        Ok(Self {
            stacked,
            tensor_shape,
        })
    }

    /// Number of tensors.
    pub fn batch_size(&self) -> usize {
        self.stacked.shape[0]
    }

    /// Shape of each tensor.
    pub fn tensor_shape(&self) -> &Shape {
        &self.tensor_shape
    }

    /// Elements of each tensor.
    pub fn elements_per_tensor(&self) -> usize {
        self.tensor_shape.count()
    }

    /// Elements of all tensors.
    pub fn total_elements(&self) -> usize {
        self.stacked.len()
    }

    /// The batch as one tensor with a leading batch axis.
    pub fn as_tensor(&self) -> &MetalTensor {
        &self.stacked
    }

    /// The batch as one mutable tensor.
    pub fn as_tensor_mut(&mut self) -> &mut MetalTensor {
        &mut self.stacked
    }
}
