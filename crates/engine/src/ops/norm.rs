//! `norm`: vector norms.

use super::reduce::Fold;
use crate::{DType, Tensor};

impl Tensor {
    /// The vector `p`-norm over `axes`, or over all elements if `axes` is empty: `sum(|x|^p)^(1/p)`.
    ///
    /// `p` may be any number: 2 is the Euclidean norm, 1 the sum of magnitudes, `f64::INFINITY` the
    /// maximum magnitude, `f64::NEG_INFINITY` the minimum magnitude, 0 the number of nonzero elements.
    /// Shape: as [`Tensor::sum`]. Type: floats are kept, integers and booleans give `f64`. For `p = 2` the
    /// squares neither overflow nor underflow: those of `f32` and smaller are added up in `f64`, those of
    /// `f64` are scaled if necessary. One NaN makes it NaN (except for `p = 0`, where NaN counts as
    /// nonzero). The norm of no elements is 0, or an error for infinite `p`, as for [`Tensor::max`].
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[3.0_f32, -4.0], [2]);
    /// assert_eq!(x.norm(&[], false, 2.0).item::<f32>()?, 5.0);
    /// assert_eq!(x.norm(&[], false, f64::INFINITY).item::<f32>()?, 4.0);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn norm(&self, axes: &[isize], keepdims: bool, p: f64) -> Self {
        let fold = match p {
            0.0 => Fold::CountNonzero,
            1.0 => Fold::SumAbs,
            2.0 => Fold::RootSumSquare,
            f64::INFINITY => Fold::MaxAbs,
            f64::NEG_INFINITY => Fold::MinAbs,
            _ => {
                // Rounding the powers to a narrow type would lose the precision of the root.
                let (wide, to) = match self.dtype() {
                    to @ (DType::F16 | DType::BF16) => (DType::F32, to),
                    to @ (DType::F32 | DType::F64) => (to, to),
                    _ => (DType::F64, DType::F64),
                };
                let powers = self.cast(wide).abs().pow(p);
                return powers.sum(axes, keepdims).pow(1.0 / p).cast(to);
            }
        };
        self.statistic(fold, axes, keepdims)
    }
}
