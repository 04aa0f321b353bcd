//! `softmax`, `log_softmax` on the CPU.

use super::grid::{self, Block};
use super::math::Math;
use super::row::{self, Float, Kernel, Real};
use super::simd::{self, Isa, Task};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::softmax::Softmax;

/// Elements whose exponentials are taken and added up while they are in the fastest cache.
const BLOCK: usize = 2048;

/// Numbers of a block of columns: what the second cache holds with room to spare.
const COLUMNS: usize = 64 << 10;

/// Runs it along any axis.
pub(crate) fn run(op: &Softmax, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let shape = output.shape;
    let inner: usize = shape[op.axis + 1..].iter().product();
    with_type!(floats output.dtype, T => {
        if inner == 1 {
            let mut input = inputs[0];
            // Axes of length 1 behind the one in question do not separate its elements.
            for axis in (op.axis + 1..shape.rank()).rev() {
                input.layout = input.layout.without(axis);
            }
            output.shape = *input.layout.shape();
            return row::map::<T, _>("softmax", input, output, Row { log: op.log });
        }
        let input = Dense::new("softmax", inputs[0])?;
        let len = shape[op.axis];
        let width = (COLUMNS / len).clamp(64, 1024).min(inner);
        let columns = Columns { from: input.all::<T>(), len, inner, log: op.log };
        columns.run(output.all::<T>(), width);
        Ok(())
    }, else unreachable!("the rule takes floats only"))
}

/// `exp(x - top)`. Far from the top, rounding the difference alone would change the result in dozens of its
/// last places; what the rounding took away is put back.
#[inline(always)]
fn exp_apart<I: Isa, R: Real>(x: R, top: R) -> R {
    let apart = x - top;
    let back = apart - x;
    let lost = (x - (apart - back)) - (top + back);
    // Infinities have lost nothing that could be put back.
    let lost = if apart > R::of(-1e4) { lost } else { R::ZERO };
    let e = apart.exp_on::<I>();
    e.mul_add_on::<I>(lost, e)
}

struct Row {
    log: bool,
}

impl<R: Real> Kernel<R> for Row {
    const IS_LONG: bool = true;

    #[inline(always)]
    fn row<I: Isa>(&self, _: usize, x: &[R], y: &mut [R]) {
        let top = row::maximum(x);
        let mut total = 0.0;
        for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            for (x, y) in x.iter().zip(y.iter_mut()) {
                *y = exp_apart::<I, R>(*x, top);
            }
            total += row::sum(y);
        }
        if self.log {
            let log = R::of(total.ln());
            for (x, y) in x.iter().zip(y) {
                *y = (*x - top) - log;
            }
        } else {
            let scale = R::of(1.0 / total);
            for y in y {
                *y = *y * scale;
            }
        }
    }
}

/// Softmax along an axis of `len` elements `inner` apart, for all columns.
struct Columns<'a, T> {
    from: &'a [T],
    len: usize,
    inner: usize,
    log: bool,
}

impl<T: Float> Columns<'_, T> {
    fn run(&self, to: &mut [T], width: usize) {
        grid::blocks(to, (self.len, self.inner), width, |out| {
            // Two rows besides the block: maxima and sums.
            T::Real::with_scratch((self.len + 2) * out.width, |space| {
                simd::run(ColumnBlock {
                    all: self,
                    space,
                    out,
                });
            });
        });
    }
}

struct ColumnBlock<'a, 'b, T: Float> {
    all: &'a Columns<'a, T>,
    space: &'a mut [T::Real],
    out: Block<'b, T>,
}

impl<T: Float> Task for ColumnBlock<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let (width, log) = (self.out.width, self.all.log);
        let first = self.out.matrix * self.all.len * self.all.inner + self.out.column;
        let (stats, block) = self.space.split_at_mut(2 * width);
        let (tops, sums) = stats.split_at_mut(width);
        tops.fill(T::Real::LOWEST);
        sums.fill(T::Real::ZERO);
        for (i, row) in block.chunks_exact_mut(width).enumerate() {
            let from = &self.all.from[first + i * self.all.inner..][..width];
            T::widen::<I>(from, row);
            for (top, &v) in tops.iter_mut().zip(row.iter()) {
                *top = top.above(v);
            }
        }
        for row in block.chunks_exact_mut(width) {
            if log {
                shift(row, tops);
                for (sum, v) in sums.iter_mut().zip(row.iter()) {
                    *sum += v.exp_on::<I>();
                }
            } else {
                for (v, &top) in row.iter_mut().zip(tops.iter()) {
                    *v = exp_apart::<I, _>(*v, top);
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
                shift(row, sums);
            } else {
                for (v, &s) in row.iter_mut().zip(sums.iter()) {
                    *v = *v * s;
                }
            }
            T::narrow::<I>(row, self.out.row(i));
        }
    }
}

/// Subtracts from each element its column's number.
#[inline(always)]
fn shift<R: Real>(row: &mut [R], by: &[R]) {
    for (v, &b) in row.iter_mut().zip(by) {
        *v = *v - b;
    }
}
