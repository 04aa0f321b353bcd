//! Tensors from the program's data.

use crate::device::Placement;
use crate::storage::Storage;
use crate::{DType, Element, Error, IntoShape, Result, Scalar, Shape, Tensor};

impl Tensor {
    fn shape_of(op: &'static str, shape: impl IntoShape, len: usize) -> Result<Shape> {
        let shape = shape.into_shape(op)?;
        if shape.count() == len {
            return Ok(shape);
        }
        Err(Error::BadShape {
            op,
            shape,
            reason: format!("it has {} elements, the data {len}", shape.count()),
        })
    }

    /// A tensor with a copy of `data`, in row-major order.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], [2, 3]);
    /// assert_eq!(x.t().to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn from_slice<T: Element>(data: &[T], shape: impl IntoShape) -> Self {
        Self::attempt(|| {
            let shape = Self::shape_of("from_slice", shape, data.len())?;
            let placement = Placement::of("from_slice", &[], T::DTYPE, None)?;
            let bytes = bytemuck::cast_slice(data);
            let storage = Storage::copy_to(&placement.device, "from_slice", bytes)?;
            Ok(Self::from_storage_at(placement, T::DTYPE, shape, storage))
        })
    }

    /// A tensor that takes ownership of a vector, in row-major order, without copying it.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl IntoShape) -> Self {
        Self::attempt(|| {
            let shape = Self::shape_of("from_vec", shape, data.len())?;
            let placement = Placement::of("from_vec", &[], T::DTYPE, None)?;
            let storage = Storage::of(data);
            Ok(Self::from_storage_at(placement, T::DTYPE, shape, storage))
        })
    }

    /// A tensor of rank 0 with one value of its own type.
    pub fn scalar<T: Element + Into<Scalar>>(value: T) -> Self {
        Self::constant(value, T::DTYPE)
    }

    /// The identity matrix of size `n`.
    pub fn eye(n: usize, dtype: DType) -> Self {
        let rows = Self::arange(0, n, 1, DType::I64);
        rows.expand_dims(1).eq(rows).cast(dtype)
    }
}
