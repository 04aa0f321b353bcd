//! `var`, `std`: variance and standard deviation.

use super::reduce::Fold;
use crate::{DType, Tensor};

impl Tensor {
    /// A reduction of floats; integers are converted to `f64`.
    pub(super) fn statistic(&self, fold: Fold, axes: &[isize], keepdims: bool) -> Self {
        if self.dtype().is_float() {
            self.reduce(fold, axes, keepdims)
        } else {
            self.cast(DType::F64).reduce(fold, axes, keepdims)
        }
    }

    /// The variance over `axes`, or of all elements if `axes` is empty:
    /// `sum((x - mean)²) / max(n - ddof, 0)`.
    ///
    /// `ddof` is 0 for the population variance and 1 for the sample variance. Shape: as
    /// [`Tensor::sum`]. Type: floats are kept, integers and booleans give `f64`. Each block is computed about its own
    /// mean, and the blocks are combined in `f64`, so that a large mean loses no precision. One NaN or infinity makes
    /// it NaN, as do `n = ddof` (0 / 0) and `n = 0`.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f64, 2.0, 3.0, 4.0], [4]);
    /// assert_eq!(x.var(&[], false, 0).item::<f64>()?, 1.25);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn var(&self, axes: &[isize], keepdims: bool, ddof: usize) -> Self {
        self.statistic(Fold::Var { ddof }, axes, keepdims)
    }

    /// The standard deviation: the square root of [`Tensor::var`].
    pub fn std(&self, axes: &[isize], keepdims: bool, ddof: usize) -> Self {
        self.statistic(Fold::Std { ddof }, axes, keepdims)
    }
}
