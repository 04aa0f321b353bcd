//! `full`, `zeros`, `ones`: broadcast constants.

use super::{Meta, Rule};
use crate::{DType, IntoShape, Result, Scalar, Shape, Tensor};

/// A constant of rank 0. Larger constant tensors are broadcast views of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Full {
    pub(crate) value: Scalar,
    pub(crate) dtype: DType,
}

impl Rule for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    fn infer(&self, _: &[&Tensor]) -> Result<Meta> {
        self.value.fit("full", self.dtype)?;
        Ok((self.dtype, Shape::SCALAR))
    }
}

impl Tensor {
    /// A constant of rank 0 and a given type.
    pub(crate) fn constant(value: impl Into<Scalar>, dtype: DType) -> Self {
        Self::apply(
            Full {
                value: value.into(),
                dtype,
            },
            &[],
        )
    }

    /// A tensor filled with `value`: a broadcast view of one element.
    ///
    /// ```
    /// # use bessemer::{DType, Tensor};
    /// let x = Tensor::full([2, 3], 7.0, DType::F32);
    /// assert_eq!(x.to_vec::<f32>()?, [7.0; 6]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn full(shape: impl IntoShape, value: impl Into<Scalar>, dtype: DType) -> Self {
        Self::attempt(|| {
            let shape = shape.into_shape("full")?;
            Ok(Self::constant(value, dtype).broadcast_to(shape))
        })
    }

    /// A tensor filled with 0.
    pub fn zeros(shape: impl IntoShape, dtype: DType) -> Self {
        Self::full(shape, 0, dtype)
    }

    /// A tensor filled with 1.
    pub fn ones(shape: impl IntoShape, dtype: DType) -> Self {
        Self::full(shape, 1, dtype)
    }
}
