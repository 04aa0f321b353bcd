//! `softmax`, `log_softmax` on the CPU.

use super::grid::{self, ColumnBlock, MatrixSize};
use super::math::Math;
use super::row::{self, Float, Real, RowKernel};
use super::simd::{self, Isa, Task};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::softmax::Softmax;

/// Elements of a row that are exponentiated and summed while they are in the L1 cache.
const SOFTMAX_BLOCK_LEN: usize = 2048;

/// Elements of a block of columns, which fits in the L2 cache with some to spare.
const COLUMN_BLOCK_LEN: usize = 64 << 10;

/// Runs the op along any axis.
pub(crate) fn run(op: &Softmax, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let shape = output.shape;
    let inner: usize = shape[op.axis + 1..].iter().product();
    with_type!(floats output.dtype, T => {
        if inner == 1 {
            let mut input = inputs[0];
            // Drop the axes behind the reduced one: all have length 1.
            for axis in (op.axis + 1..shape.rank()).rev() {
                input.layout = input.layout.without(axis);
            }
            output.shape = *input.layout.shape();
            return row::map::<T, _>("softmax", input, output, SoftmaxRow { log: op.log });
        }
        let input = match output.aliases_input {
            Some(_) => None,
            None => Some(Dense::new("softmax", inputs[0])?),
        };
        let len = shape[op.axis];
        let width = (COLUMN_BLOCK_LEN / len).clamp(64, 1024).min(inner);
        let from = input.as_ref().map(Dense::all::<T>);
        let columns = ColumnSoftmax { from, len, inner, log: op.log };
        columns.run(output.all::<T>(), width);
        Ok(())
    }, else unreachable!("the rule takes floats only"))
}

/// `exp(x - max)`, compensated for the rounding of the difference (TwoSum): far from the maximum, that rounding alone
/// would cost dozens of ULPs.
#[inline(always)]
fn exp_difference<I: Isa, R: Real>(x: R, max: R) -> R {
    let difference = x - max;
    let back = difference - x;
    let error = (x - (difference - back)) - (max + back);
    // For infinities, the error term is not finite.
    let error = if difference > R::of(-1e4) {
        error
    } else {
        R::ZERO
    };
    let e = difference.exp_on::<I>();
    e.mul_add_on::<I>(error, e)
}

/// Softmax of a contiguous row.
struct SoftmaxRow {
    log: bool,
}

impl<R: Real> RowKernel<R> for SoftmaxRow {
    const IS_COMPUTE_BOUND: bool = true;

    #[inline(always)]
    fn row<I: Isa>(&self, _: usize, x: &[R], y: &mut [R]) {
        let max = row::maximum(x);
        let mut total = 0.0;
        for (x, y) in x
            .chunks(SOFTMAX_BLOCK_LEN)
            .zip(y.chunks_mut(SOFTMAX_BLOCK_LEN))
        {
            for (x, y) in x.iter().zip(y.iter_mut()) {
                *y = exp_difference::<I, R>(*x, max);
            }
            total += row::sum(y);
        }
        if self.log {
            let log = R::of(total.ln());
            for (x, y) in x.iter().zip(y) {
                *y = (*x - max) - log;
            }
        } else {
            let scale = R::of(1.0 / total);
            for y in y {
                *y = *y * scale;
            }
        }
    }
}

/// Softmax along an axis of `len` elements with stride `inner`, for all columns.
struct ColumnSoftmax<'a, T> {
    /// The elements of the input; `None` if they are those of the output.
    from: Option<&'a [T]>,
    len: usize,
    inner: usize,
    log: bool,
}

impl<T: Float> ColumnSoftmax<'_, T> {
    fn run(&self, to: &mut [T], width: usize) {
        let size = MatrixSize {
            rows: self.len,
            columns: self.inner,
        };
        grid::for_each_column_block(to, size, width, |out| {
            // Two rows besides the block: maxima and sums.
            T::Real::with_scratch((self.len + 2) * out.width, |scratch| {
                simd::run(ColumnSoftmaxBlock {
                    all: self,
                    scratch,
                    out,
                });
            });
        });
    }
}

/// [`ColumnSoftmax`] of one block of columns.
struct ColumnSoftmaxBlock<'a, 'b, T: Float> {
    all: &'a ColumnSoftmax<'a, T>,
    scratch: &'a mut [T::Real],
    out: ColumnBlock<'b, T>,
}

impl<T: Float> Task for ColumnSoftmaxBlock<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let (width, log) = (self.out.width, self.all.log);
        let first = self.out.matrix * self.all.len * self.all.inner + self.out.column;
        let (stats, block) = self.scratch.split_at_mut(2 * width);
        let (maxima, sums) = stats.split_at_mut(width);
        maxima.fill(T::Real::LOWEST);
        sums.fill(T::Real::ZERO);
        for (i, row) in block.chunks_exact_mut(width).enumerate() {
            let from: &[T] = match self.all.from {
                Some(from) => &from[first + i * self.all.inner..][..width],
                None => self.out.row(i),
            };
            T::widen::<I>(from, row);
            for (max, &v) in maxima.iter_mut().zip(row.iter()) {
                *max = max.max_number(v);
            }
        }
        for row in block.chunks_exact_mut(width) {
            if log {
                subtract_columns(row, maxima);
                for (sum, v) in sums.iter_mut().zip(row.iter()) {
                    *sum += v.exp_on::<I>();
                }
            } else {
                for (v, &max) in row.iter_mut().zip(maxima.iter()) {
                    *v = exp_difference::<I, _>(*v, max);
                }
                for (sum, v) in sums.iter_mut().zip(row.iter()) {
                    *sum += *v;
                }
            }
        }
        for sum in sums.iter_mut() {
            let total = sum.wide();
            *sum = T::Real::of(if log { total.ln() } else { 1.0 / total });
        }
        for (i, row) in block.chunks_exact_mut(width).enumerate() {
            if log {
                subtract_columns(row, sums);
            } else {
                for (v, &s) in row.iter_mut().zip(sums.iter()) {
                    *v = *v * s;
                }
            }
            T::narrow::<I>(row, self.out.row(i));
        }
    }
}

/// Subtracts from each element the value of its column.
#[inline(always)]
fn subtract_columns<R: Real>(row: &mut [R], by: &[R]) {
    for (v, &b) in row.iter_mut().zip(by) {
        *v = *v - b;
    }
}
