//! `softmax`, `log_softmax`.

use super::group_norm::computed_in;
use super::{Meta, Rule};
use crate::{DType, Error, Result, Tensor};

/// `exp(x - max(x)) / sum(exp(x - max(x)))` along an axis, or its logarithm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Softmax {
    pub(crate) axis: usize,
    pub(crate) log: bool,
}

impl Rule for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let dtype = expect_float(self.name(), inputs[0])?;
        Ok((dtype, *inputs[0].shape()))
    }
}

/// Returns the type of a tensor, or an error unless it is a float.
pub(crate) fn expect_float(op: &'static str, x: &Tensor) -> Result<DType> {
    let dtype = x.dtype();
    if dtype.is_float() {
        return Ok(dtype);
    }
    Err(Error::BadDType {
        op,
        dtype,
        expected: "a float type",
    })
}

impl Tensor {
    fn softmax_on(&self, axis: isize, log: bool) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let name = if log { "log_softmax" } else { "softmax" };
            let axis = self.shape().axis(name, axis)?;
            let x = self.cast(self.dtype().to_float());
            Ok(Self::apply(Softmax { axis, log }, &[&x]))
        })
    }

    /// `exp(x) / sum(exp(x))` along an axis. The maximum is subtracted first, so that nothing overflows:
    /// `exp(x - max(x)) / sum(exp(x - max(x)))`.
    ///
    /// Shape: unchanged. Type: floats are kept, integers and booleans become floats ([`DType::to_float`]). `f16` and
    /// `bf16` are computed in `f32` and rounded once. NaN: a NaN, a `+inf` or nothing but `-inf` along the axis makes
    /// all of it NaN, as in NumPy and PyTorch; other `-inf` become 0. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[0.0_f32, 3_f32.ln()], [2]);
    /// let y = x.softmax(-1).to_vec::<f32>()?;
    /// assert!((y[0] - 0.25).abs() < 1e-6 && (y[1] - 0.75).abs() < 1e-6);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn softmax(&self, axis: isize) -> Self {
        self.softmax_on(axis, false)
    }

    /// `log(softmax(x))` along an axis, without the logarithm of an underflow:
    /// `x - max(x) - log(sum(exp(x - max(x))))`.
    ///
    /// Shape, type, NaN and empty: as [`Tensor::softmax`]; `-inf` stays `-inf` if other elements are finite.
    pub fn log_softmax(&self, axis: isize) -> Self {
        self.softmax_on(axis, true)
    }

    /// [`Tensor::softmax`] as a formula of simpler ops, for tests: `e / sum(e)` with `e = exp(x - max(x))`.
    #[doc(hidden)]
    pub fn decompose_softmax(&self, axis: isize) -> Self {
        let dtype = self.dtype().to_float();
        let x = self.cast(computed_in(dtype));
        let e = (&x - x.max(&[axis], true)).exp();
        (&e / e.sum(&[axis], true)).cast(dtype)
    }

    /// [`Tensor::log_softmax`] as a formula of simpler ops, for tests: `x - max(x) - log(sum(exp(x - max(x))))`.
    #[doc(hidden)]
    pub fn decompose_log_softmax(&self, axis: isize) -> Self {
        let dtype = self.dtype().to_float();
        let x = self.cast(computed_in(dtype));
        let shifted = &x - x.max(&[axis], true);
        (&shifted - shifted.exp().sum(&[axis], true).log()).cast(dtype)
    }
}
