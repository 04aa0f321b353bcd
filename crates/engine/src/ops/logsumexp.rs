//! `logsumexp`: the logarithm of a sum of exponentials.

use super::reduce::Fold;
use crate::Tensor;

impl Tensor {
    /// `log(sum(exp(x)))` over `axes`, or over all elements where `axes` is empty, without overflow on
    /// the way: `m + log(sum(exp(x - m)))` with the greatest element `m`.
    ///
    /// Shapes are those of [`Tensor::sum`]. Floats answer in their own type, integers and truth values in
    /// `f64`. The sum is taken as in [`Tensor::sum`]. Where all are `-inf`, and for nothing, it is `-inf`;
    /// where one is `inf` it is `inf`; one NaN makes it NaN.
    pub fn logsumexp(&self, axes: &[isize], keepdims: bool) -> Self {
        self.statistic(Fold::LogSumExp, axes, keepdims)
    }
}
