//! `group_norm` on the CPU.

use super::layer_norm::moments;
use super::row::{self, Real, RowKernel};
use super::simd::Isa;
use crate::Result;
use crate::dispatch::{Input, Output};
use crate::dtype::with_type;
use crate::ops::group_norm::GroupNorm;

/// Runs the op: a pass for the mean, one for the variance, one to normalise.
pub(crate) fn run(op: &GroupNorm, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    with_type!(floats output.dtype, T => {
        let parameters = inputs[1..].iter().map(|&p| row::parameters::<T>("group_norm", p));
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let mut parameters = parameters.iter().map(|p| &**p);
        let kernel = GroupNormRow {
            op,
            weight: if op.weight { parameters.next() } else { None },
            bias: if op.bias { parameters.next() } else { None },
        };
        row::map::<T, _>("group_norm", inputs[0], output, kernel)
    }, else unreachable!("the rule takes floats only"))
}

struct GroupNormRow<'a, R> {
    op: &'a GroupNorm,
    weight: Option<&'a [R]>,
    bias: Option<&'a [R]>,
}

impl<R: Real> RowKernel<R> for GroupNormRow<'_, R> {
    const IS_COMPUTE_BOUND: bool = false;

    #[inline(always)]
    fn row<I: Isa>(&self, index: usize, x: &[R], y: &mut [R]) {
        let (mean, scale) = moments::<I, R>(x, self.op.eps());
        let spatial = self.op.spatial;
        let first = index % self.op.groups * (x.len() / spatial);
        let channels = x.chunks_exact(spatial).zip(y.chunks_exact_mut(spatial));
        for (c, (x, y)) in channels.enumerate() {
            let weight = self.weight.map_or(R::of(1.0), |w| w[first + c]);
            let bias = self.bias.map_or(R::ZERO, |b| b[first + c]);
            for (x, y) in x.iter().zip(y) {
                *y = ((*x - mean) * scale).mul_add_on::<I>(weight, bias);
            }
        }
    }
}
