//! `mse`: the mean squared error.

use super::group_norm::computed_in;
use crate::Tensor;

impl Tensor {
    /// The mean squared error: the mean of `(x - target)²` over all elements, a tensor of rank 0.
    ///
    /// Shape: both broadcast. Type: the float that both promote to; `f16` and `bf16` are computed in `f32` and
    /// rounded once. NaN: if any element is NaN, or there is none.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, 5.0], [2]);
    /// assert_eq!(x.mse(&Tensor::from_slice(&[0.0_f32, 2.0], [2])).item::<f32>()?, 5.0);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn mse(&self, target: &Self) -> Self {
        let dtype = self.dtype().promote(target.dtype()).to_float();
        let wide = computed_in(dtype);
        let difference = self.cast(wide) - target.cast(wide);
        difference.square().mean(&[], false).cast(dtype)
    }
}
