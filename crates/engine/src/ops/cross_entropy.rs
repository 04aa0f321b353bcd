//! `cross_entropy`: cross-entropy of logits and target indices.

use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::{Error, Result, Shape, Tensor};

/// `-log_softmax(x)[target]` of each row along the last axis; the inputs are `x` and the targets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CrossEntropy;

impl Rule for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (x, targets) = (inputs[0], inputs[1]);
        let dtype = expect_float("cross_entropy", x)?;
        let axis = x.shape().axis("cross_entropy", -1)?;
        if !targets.dtype().is_int() {
            return Err(Error::BadDType {
                op: "cross_entropy",
                dtype: targets.dtype(),
                expected: "targets are class indices of an integer type",
            });
        }
        let rows = Shape::new("cross_entropy", &x.shape()[..axis])?;
        if rows != *targets.shape() {
            return Err(Error::ShapeMismatch {
                op: "cross_entropy",
                left: *x.shape(),
                right: *targets.shape(),
                reason: "there must be one target for each row along the last axis",
            });
        }
        Ok((super::group_norm::computed_in(dtype), rows))
    }
}

impl Tensor {
    /// The mean cross-entropy of these logits: the mean of `-log_softmax(x)[target]` over all rows along the last axis.
    /// A tensor of rank 0.
    ///
    /// Shape: this is `[…, classes]`, `targets` `[…]`. Type: targets are integers of any type, negative ones count from
    /// the end, and one that is out of range is an error on evaluation; the result has the type of the logits (integers
    /// become floats), computed and averaged in `f32` for `f16`, `bf16` and `f32`, and rounded once. NaN: as
    /// [`Tensor::log_softmax`]. Empty: the mean of no rows is NaN.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[0.0_f32, 3_f32.ln()], [1, 2]);
    /// let loss = x.cross_entropy(&Tensor::from_slice(&[1], [1])).item::<f32>()?;
    /// assert!((loss - (4_f32 / 3.0).ln()).abs() < 1e-6);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn cross_entropy(&self, targets: &Self) -> Self {
        let x = self.cast(self.dtype().to_float());
        let rows = Self::apply(CrossEntropy, &[&x, targets]);
        rows.mean(&[], false).cast(x.dtype())
    }
}
