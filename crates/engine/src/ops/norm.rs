//! `norm`: the length of vectors.

use super::reduce::Fold;
use crate::{DType, Tensor};

impl Tensor {
    /// The `p`-norm of the vector that the elements over `axes` are, or all where `axes` is empty:
    /// `sum(|x|^p)^(1/p)`.
    ///
    /// `p` may be any number: 2 is the Euclidean norm, 1 the sum of magnitudes, `f64::INFINITY` the
    /// greatest magnitude, `f64::NEG_INFINITY` the least, 0 the number of elements that are not 0.
    /// Shapes are those of [`Tensor::sum`]. Floats answer in their own type, integers and truth values in
    /// `f64`. For `p = 2` squares neither overflow nor vanish on the way: those of `f32` and smaller are
    /// added up in `f64`, those of `f64` are scaled where need be. One NaN makes it NaN (the count of
    /// `p = 0` excepted, to which it adds 1). The norm of nothing is 0; an error for the infinite `p`,
    /// as for [`Tensor::max`].
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
                // Rounded to a narrow type in between, the powers would lose what the root needs.
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
