//! `batch_norm`: batch normalization with given statistics.

use super::group_norm::{channels, computed_in};
use super::rms_norm::expect_parameter;
use crate::Tensor;

impl Tensor {
    /// Batch normalization of the channels, axis 1, with given statistics, as at inference:
    /// `(x - mean) / sqrt(var + eps) * weight + bias`. A formula of elementwise ops, which are fused.
    ///
    /// Shape: `[batch, channels, …]`, as the result; the others are vectors with an element per channel; a missing
    /// weight is 1, a missing bias 0. Type: floats are kept, others become floats
    /// ([`DType::to_float`](crate::DType::to_float)); `f16` and `bf16` are computed in `f32` and rounded once. NaN: as
    /// the formula. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, 2.0], [1, 2]);
    /// let (mean, var) = (Tensor::from_slice(&[0.0_f32, 1.0], [2]), Tensor::from_slice(&[4.0_f32, 1.0], [2]));
    /// assert_eq!(x.batch_norm(&mean, &var, None, None, 0.0).to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn batch_norm(
        &self,
        mean: &Self,
        var: &Self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> Self {
        Self::attempt(|| {
            let shape = *channels("batch_norm", self)?;
            let dtype = self.dtype().to_float();
            let wide = computed_in(dtype);
            // Vectors along axis 1: `[channels, 1, …]`.
            let vector = |p: &Self| {
                p.check()?;
                let p = p.cast(wide);
                expect_parameter("batch_norm", self, &p, 1)?;
                let mut dims = vec![1; shape.rank() - 1];
                dims[0] = shape[1];
                Ok(p.reshape(dims))
            };
            let root = (vector(var)? + eps).sqrt();
            let scale = match weight {
                Some(weight) => vector(weight)? / root,
                None => root.reciprocal(),
            };
            let shifted = self.cast(wide) - vector(mean)?;
            let y = match bias {
                Some(bias) => shifted.mul_add(scale, vector(bias)?),
                None => shifted * scale,
            };
            Ok(y.cast(dtype))
        })
    }
}
