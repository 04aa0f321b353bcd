//! Tensors of `f32` in memory that host and device share.

use std::sync::Arc;

use bessemer_hal::{Buffer, HostSlice, HostSliceMut};

use super::{MetalBackend, piece};
use crate::{DType, Error, IntoShape, Result, Shape, Tensor};

/// Numbers in a buffer, with a shape. The host reads and writes them in place; both wait for kernels that use
/// them.
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
    /// [`Error::Device`], or a shape that is none.
    pub fn zeros(backend: &Arc<MetalBackend>, shape: impl IntoShape) -> Result<Self> {
        let shape = shape.into_shape("MetalTensor")?;
        let buffer = backend.create_buffer_zeros(shape.count())?;
        Self::with_shape(backend, buffer, shape)
    }

    /// The numbers at the beginning of a buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`], if the buffer is too short.
    pub fn with_shape(
        backend: &Arc<MetalBackend>,
        buffer: Buffer,
        shape: impl IntoShape,
    ) -> Result<Self> {
        let shape = shape.into_shape("MetalTensor")?;
        piece("MetalTensor", &buffer, 0, shape.count() * size_of::<f32>())?;
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

    /// The lengths of the axes.
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

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows and columns.
    ///
    /// # Errors
    /// [`Error::BadShape`] for other ranks than 2.
    pub fn shape_2d(&self) -> Result<(usize, usize)> {
        match self.shape[..] {
            [rows, cols] => Ok((rows, cols)),
            _ => Err(Error::BadShape {
                op: "shape_2d",
                shape: self.shape,
                reason: "a matrix has two axes".to_owned(),
            }),
        }
    }

    /// Rows of a matrix.
    ///
    /// # Errors
    /// As [`MetalTensor::shape_2d`].
    pub fn nrows(&self) -> Result<usize> {
        Ok(self.shape_2d()?.0)
    }

    /// Columns of a matrix.
    ///
    /// # Errors
    /// As [`MetalTensor::shape_2d`].
    pub fn ncols(&self) -> Result<usize> {
        Ok(self.shape_2d()?.1)
    }

    /// The same numbers under another shape, which has as many.
    ///
    /// # Errors
    /// [`Error::BadShape`].
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

    /// Bytes.
    pub fn memory_bytes(&self) -> usize {
        self.len() * size_of::<f32>()
    }

    /// The numbers, read in place, once what writes them has run. The buffer may have more than the tensor.
    ///
    /// # Errors
    /// [`Error::Device`]: what wrote them failed, or the host holds them elsewhere to write.
    pub fn as_slice(&self) -> Result<HostSlice<'_, f32>> {
        self.backend.settle("as_slice", &self.buffer)?;
        let slice = self.buffer.as_slice();
        slice.map_err(|e| Error::device("as_slice", e))
    }

    /// The numbers, to be written in place, once what uses them has run.
    ///
    /// # Errors
    /// As [`MetalTensor::as_slice`].
    pub fn as_slice_mut(&mut self) -> Result<HostSliceMut<'_, f32>> {
        self.backend.settle("as_slice_mut", &self.buffer)?;
        let slice = self.buffer.as_mut_slice();
        slice.map_err(|e| Error::device("as_slice_mut", e))
    }

    /// The numbers, copied.
    ///
    /// # Errors
    /// As [`MetalTensor::as_slice`].
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        Ok(self.as_slice()?[..self.len()].to_vec())
    }

    /// As a tensor to compute with, in the same memory. What is written into this later may or may not be
    /// seen by what is computed from it.
    ///
    /// # Errors
    /// None that [`MetalTensor::with_shape`] has not found.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let slice = piece("to_tensor", &self.buffer, 0, self.memory_bytes())?;
        Ok(self.backend.view(&slice, DType::F32, self.shape))
    }

    /// Computes a tensor of the same shape into this one's memory.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongType`], and what computing it gives.
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
                reason: "they must be the same",
            });
        }
        let slice = piece("assign", &self.buffer, 0, self.memory_bytes())?;
        // It may be computed from what is there.
        self.backend.compute(tensor, &slice, &[&slice])
    }
}

/// Several tensors of one shape, one after the other in one buffer.
#[derive(Clone, Debug)]
pub struct MetalTensorBatch {
    all: MetalTensor,
    each: Shape,
}

impl MetalTensorBatch {
    /// A batch of zeros.
    ///
    /// # Errors
    /// [`Error::Device`], or a shape that is none.
    pub fn zeros(
        backend: &Arc<MetalBackend>,
        batch_size: usize,
        shape: impl IntoShape,
    ) -> Result<Self> {
        let each = shape.into_shape("MetalTensorBatch")?;
        let dims = [&[batch_size], &each[..]].concat();
        let all = MetalTensor::zeros(backend, &dims[..])?;
        Ok(Self { all, each })
    }

    /// Tensors.
    pub fn batch_size(&self) -> usize {
        self.all.shape[0]
    }

    /// The shape of each.
    pub fn tensor_shape(&self) -> &Shape {
        &self.each
    }

    /// Elements of each.
    pub fn elements_per_tensor(&self) -> usize {
        self.each.count()
    }

    /// Elements of all.
    pub fn total_elements(&self) -> usize {
        self.all.len()
    }

    /// All of them as one tensor.
    pub fn as_tensor(&self) -> &MetalTensor {
        &self.all
    }

    /// All of them as one tensor, to be written.
    pub fn as_tensor_mut(&mut self) -> &mut MetalTensor {
        &mut self.all
    }
}
