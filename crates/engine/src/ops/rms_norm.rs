//! `rms_norm`: RMS normalization.

use super::group_norm::computed_in;
use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::{Error, Result, Tensor};

/// `x / sqrt(mean(x²) + eps) * weight` along the last axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RmsNorm {
    /// The bits of an `f64`: equal ops must compare equal.
    eps: u64,
}

impl RmsNorm {
    pub(crate) fn eps(&self) -> f64 {
        f64::from_bits(self.eps)
    }
}

impl Rule for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let dtype = expect_float(self.name(), inputs[0])?;
        expect_parameter(self.name(), inputs[0], inputs[1], -1)?;
        Ok((dtype, *inputs[0].shape()))
    }
}

/// Checks that `parameter` is a vector as long as axis `axis` of `x`.
pub(crate) fn expect_parameter(
    op: &'static str,
    x: &Tensor,
    parameter: &Tensor,
    axis: isize,
) -> Result<()> {
    let axis = x.shape().axis(op, axis)?;
    expect_float(op, parameter)?;
    if **parameter.shape() == [x.shape()[axis]] {
        return Ok(());
    }
    Err(Error::ShapeMismatch {
        op,
        left: *x.shape(),
        right: *parameter.shape(),
        reason: "weights and biases must be vectors as long as their axis",
    })
}

/// A parameter of an op on `x`, in the type of `x` or in the type the op computes in.
pub(crate) fn parameter(x: &Tensor, parameter: &Tensor) -> Tensor {
    if parameter.dtype() == x.dtype() {
        parameter.clone()
    } else {
        parameter.cast(computed_in(x.dtype()))
    }
}

impl Tensor {
    /// RMS normalization along the last axis: `x / sqrt(mean(x²) + eps) * weight`.
    ///
    /// Shape: unchanged; `weight` is a vector as long as the last axis. Type: floats are kept, others become floats
    /// ([`DType::to_float`](crate::DType::to_float)); the weights may be of any float type. `f16`, `bf16` and `f32` are
    /// computed in `f32`, with block sums of squares that are added up in `f64`, and rounded once. NaN: a NaN makes its
    /// row NaN; an infinity becomes NaN and the other elements of its row 0. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::{DType, Tensor};
    /// let x = Tensor::from_slice(&[3.0_f32, -3.0, 3.0, 3.0], [1, 4]);
    /// let y = x.rms_norm(&Tensor::ones([4], DType::F32), 0.0);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, -1.0, 1.0, 1.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn rms_norm(&self, weight: &Self, eps: f64) -> Self {
        let x = self.cast(self.dtype().to_float());
        let op = RmsNorm { eps: eps.to_bits() };
        Self::apply(op, &[&x, &parameter(&x, weight)])
    }

    /// [`Tensor::rms_norm`] as a formula of simpler ops, for tests.
    #[doc(hidden)]
    pub fn decompose_rms_norm(&self, weight: &Self, eps: f64) -> Self {
        let dtype = self.dtype().to_float();
        let wide = computed_in(dtype);
        let x = self.cast(wide);
        let scale = (x.square().mean(&[-1], true) + eps).rsqrt();
        (x * scale * weight.cast(wide)).cast(dtype)
    }
}
