//! `max_pool`, `avg_pool` on the CPU.

use std::ops::Range;

use super::pool;
use super::row::{Float, Real};
use super::simd::{self, Isa, Task};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::pooling::{PoolFunction, Pooling};

/// Runs the op, plane by plane.
pub(crate) fn run(op: &Pooling, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let input = *inputs[0].layout.shape();
    let (out_height, out_width) = (output.shape[1], output.shape[2]);
    with_type!(floats output.dtype, T => {
        let dense = Dense::new(op_name(op), inputs[0])?;
        let from = dense.all::<T>();
        let (plane, size) = (input[1] * input[2], out_height * out_width);
        let count = pool::grain(4 * (plane + size) * size_of::<T>());
        pool::for_each_chunk(output.all::<T>(), count * size, |i, to| {
            let scratch = out_width + if T::IS_COMPUTE_TYPE { 0 } else { plane };
            <T as Float>::Real::with_scratch(scratch, |scratch| {
                for (k, to) in to.chunks_exact_mut(size).enumerate() {
                    let from = &from[(i * count + k) * plane..][..plane];
                    simd::run(Plane { op, from, to, scratch, width: input[2], out_width });
                }
            });
        });
        Ok(())
    }, else unreachable!("the rule takes floats only"))
}

fn op_name(op: &Pooling) -> &'static str {
    crate::ops::Rule::name(op)
}

/// Pools one plane.
struct Plane<'a, T: Float> {
    op: &'a Pooling,
    from: &'a [T],
    to: &'a mut [T],
    scratch: &'a mut [T::Real],
    width: usize,
    out_width: usize,
}

/// The movement of a window along an axis: at output position `p`, tap `t` (an offset in elements) reads element
/// `p * stride + t - padding`.
#[derive(Clone, Copy)]
pub(super) struct WindowAxis {
    pub(super) stride: usize,
    pub(super) padding: usize,
    /// Elements of the input along the axis.
    pub(super) len: usize,
    /// Number of output positions.
    pub(super) positions: usize,
}

impl WindowAxis {
    /// The output positions at which `tap` is inside the input and not in the padding.
    #[inline(always)]
    pub(super) fn inside(self, tap: usize) -> Range<usize> {
        let first = self.padding.saturating_sub(tap).div_ceil(self.stride);
        let end = (self.len + self.padding)
            .saturating_sub(tap)
            .div_ceil(self.stride);
        first.min(self.positions)..end.min(self.positions).max(first.min(self.positions))
    }
}

impl<T: Float> Task for Plane<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (op, width) = (self.op, self.width);
        let height = self.from.len().checked_div(width).unwrap_or(0);
        let (sums, scratch) = self.scratch.split_at_mut(self.out_width);
        let from = T::view::<I>(self.from, scratch);
        let max = op.pool == PoolFunction::Max;
        let axis = WindowAxis {
            stride: op.stride[1],
            padding: op.padding[1],
            len: width,
            positions: self.out_width,
        };
        for (y, to) in self.to.chunks_exact_mut(self.out_width).enumerate() {
            sums.fill(if max { T::Real::LOWEST } else { T::Real::ZERO });
            let mut rows = 0;
            for ky in 0..op.kernel[0] {
                let Some(row) = (y * op.stride[0] + ky).checked_sub(op.padding[0]) else {
                    continue;
                };
                if row >= height {
                    continue;
                }
                rows += 1;
                let from = &from[row * width..][..width];
                for kx in 0..op.kernel[1] {
                    let positions = axis.inside(kx);
                    if positions.is_empty() {
                        continue;
                    }
                    let from = &from[positions.start * op.stride[1] + kx - op.padding[1]..];
                    let sums = &mut sums[positions];
                    match (max, op.stride[1]) {
                        (true, 1) => take_max(sums, from.iter()),
                        (true, stride) => take_max(sums, from.iter().step_by(stride)),
                        (false, 1) => add(sums, from.iter()),
                        (false, stride) => add(sums, from.iter().step_by(stride)),
                    }
                }
            }
            if !max {
                for (x, sum) in sums.iter_mut().enumerate() {
                    let count = if op.pool == PoolFunction::Mean {
                        op.kernel[0] * op.kernel[1]
                    } else {
                        let start = x * op.stride[1];
                        let end = (start + op.kernel[1]).min(width + op.padding[1]);
                        rows * end.saturating_sub(start.max(op.padding[1]))
                    };
                    *sum = *sum / T::Real::of(count as f64);
                }
            }
            T::narrow::<I>(sums, to);
        }
    }
}

#[inline(always)]
fn take_max<'a, R: Real + 'a>(maxima: &mut [R], from: impl Iterator<Item = &'a R>) {
    for (max, &x) in maxima.iter_mut().zip(from) {
        // NaN propagates: it replaces any maximum, and no comparison replaces it.
        #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
        let wins = x > *max || x != x;
        *max = if wins { x } else { *max };
    }
}

#[inline(always)]
fn add<'a, R: Real + 'a>(sums: &mut [R], from: impl Iterator<Item = &'a R>) {
    for (sum, &x) in sums.iter_mut().zip(from) {
        *sum += x;
    }
}
