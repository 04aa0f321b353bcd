//! `rms_norm` on the CPU.

use super::row::{self, Real, RowKernel};
use super::simd::Isa;
use crate::Result;
use crate::dispatch::{Input, Output};
use crate::dtype::with_type;
use crate::ops::rms_norm::RmsNorm;

/// Runs the op: a pass for the sum of squares, one to scale.
pub(crate) fn run(op: &RmsNorm, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    with_type!(floats output.dtype, T => {
        let weight = row::parameters::<T>("rms_norm", inputs[1])?;
        let kernel = RmsNormRow { weight: &weight, eps: op.eps() };
        row::map::<T, _>("rms_norm", inputs[0], output, kernel)
    }, else unreachable!("the rule takes floats only"))
}

struct RmsNormRow<'a, R> {
    weight: &'a [R],
    eps: f64,
}

impl<R: Real> RowKernel<R> for RmsNormRow<'_, R> {
    const IS_COMPUTE_BOUND: bool = false;

    #[inline(always)]
    fn row<I: Isa>(&self, _: usize, x: &[R], y: &mut [R]) {
        let squares = row::sum_of(x, |v, sum| v.mul_add_on::<I>(v, sum));
        let scale = R::of(1.0 / (squares / x.len() as f64 + self.eps).sqrt());
        for ((x, w), y) in x.iter().zip(self.weight).zip(y) {
            *y = *x * scale * *w;
        }
    }
}
