//! `var`, `std`: how far elements are from their mean.

use super::reduce::Fold;
use crate::{DType, Tensor};

impl Tensor {
    /// Floats, as the statistics of integers are computed.
    pub(super) fn statistic(&self, fold: Fold, axes: &[isize], keepdims: bool) -> Self {
        if self.dtype().is_float() {
            self.reduce(fold, axes, keepdims)
        } else {
            self.cast(DType::F64).reduce(fold, axes, keepdims)
        }
    }

    /// The variance over `axes`, or of all elements where `axes` is empty:
    /// `sum((x - mean)²) / max(n - ddof, 0)`.
    ///
    /// `ddof` is 0 for the variance of the data and 1 for the estimate from a sample. Shapes are those of
    /// [`Tensor::sum`]. Floats answer in their own type, integers and truth values in `f64`. The distances
    /// are taken from the mean of each block of the data and the blocks are combined in `f64`, so that a
    /// large mean costs no digits. One NaN or infinity makes it NaN; so does `n = ddof` with nothing left
    /// to divide, and `n = 0`.
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

    /// The standard deviation: the root of [`Tensor::var`].
    pub fn std(&self, axes: &[isize], keepdims: bool, ddof: usize) -> Self {
        self.statistic(Fold::Std { ddof }, axes, keepdims)
    }
}
