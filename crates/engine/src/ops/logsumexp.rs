//! `logsumexp`: the logarithm of a sum of exponentials.

use super::reduce::Fold;
use crate::Tensor;

impl Tensor {
    /// `log(sum(exp(x)))` over `axes`, or over all elements if `axes` is empty, without intermediate overflow:
    /// `m + log(sum(exp(x - m)))` with the maximum `m`.
    ///
    /// Shape: as [`Tensor::sum`]. Type: floats are kept, integers and booleans give `f64`. The sum is computed as in
    /// [`Tensor::sum`]. If all elements are `-inf`, or there are none, it is `-inf`; if one is `inf`, it is `inf`; one
    /// NaN makes it NaN.
    pub fn logsumexp(&self, axes: &[isize], keepdims: bool) -> Self {
        self.statistic(Fold::LogSumExp, axes, keepdims)
    }
}
