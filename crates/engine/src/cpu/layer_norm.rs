//! `layer_norm` on the CPU.

use super::row::{self, Real, RowKernel};
use super::simd::Isa;
use crate::Result;
use crate::dispatch::{Input, Output};
use crate::dtype::with_type;
use crate::ops::layer_norm::LayerNorm;

/// Runs the op: a pass for the mean, one for the variance, one to normalise.
pub(crate) fn run(op: &LayerNorm, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    with_type!(floats output.dtype, T => {
        let parameters = inputs[1..].iter().map(|&p| row::parameters::<T>("layer_norm", p));
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let mut parameters = parameters.iter().map(|p| &**p);
        let kernel = LayerNormRow {
            weight: if op.weight { parameters.next() } else { None },
            bias: if op.bias { parameters.next() } else { None },
            eps: op.eps(),
        };
        row::map::<T, _>("layer_norm", inputs[0], output, kernel)
    }, else unreachable!("the rule takes floats only"))
}

/// Returns the mean of a row and the reciprocal of its standard deviation.
#[inline(always)]
pub(super) fn moments<I: Isa, R: Real>(x: &[R], eps: f64) -> (R, R) {
    let count = x.len() as f64;
    let mean = R::of(row::sum(x) / count);
    let squares = row::sum_of(x, |v, sum| {
        let d = v - mean;
        d.mul_add_on::<I>(d, sum)
    });
    (mean, R::of(1.0 / (squares / count + eps).sqrt()))
}

struct LayerNormRow<'a, R> {
    weight: Option<&'a [R]>,
    bias: Option<&'a [R]>,
    eps: f64,
}

impl<R: Real> RowKernel<R> for LayerNormRow<'_, R> {
    const IS_COMPUTE_BOUND: bool = false;

    #[inline(always)]
    fn row<I: Isa>(&self, _: usize, x: &[R], y: &mut [R]) {
        let (mean, scale) = moments::<I, R>(x, self.eps);
        match (self.weight, self.bias) {
            (Some(weight), Some(bias)) => {
                for (((x, w), b), y) in x.iter().zip(weight).zip(bias).zip(y) {
                    *y = ((*x - mean) * scale).mul_add_on::<I>(*w, *b);
                }
            }
            (Some(weight), None) => {
                for ((x, w), y) in x.iter().zip(weight).zip(y) {
                    *y = (*x - mean) * scale * *w;
                }
            }
            (None, bias) => {
                for (x, y) in x.iter().zip(y.iter_mut()) {
                    *y = (*x - mean) * scale;
                }
                for (b, y) in bias.unwrap_or(&[]).iter().zip(y) {
                    *y += *b;
                }
            }
        }
    }
}
