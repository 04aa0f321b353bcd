//! `full`, `zeros`, `ones`: one number, broadcast.

use super::{Meta, Rule};
use crate::{DType, IntoShape, Result, Scalar, Shape, Tensor};

/// One number, a tensor of rank 0. Larger tensors of it are broadcast views.
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
    /// One number, as a tensor of rank 0 and a given type.
    pub(crate) fn constant(value: impl Into<Scalar>, dtype: DType) -> Self {
        Self::apply(
            Full {
                value: value.into(),
                dtype,
            },
            &[],
        )
    }

    /// `value` everywhere, without memory for more than one of it: a broadcast view.
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

    /// 0 everywhere.
    pub fn zeros(shape: impl IntoShape, dtype: DType) -> Self {
        Self::full(shape, 0, dtype)
    }

    /// 1 everywhere.
    pub fn ones(shape: impl IntoShape, dtype: DType) -> Self {
        Self::full(shape, 1, dtype)
    }
}
