//! `max_pool`, `avg_pool` on the CPU.

use std::ops::Range;

use super::pool;
use super::row::{Float, Real};
use super::simd::{self, Isa, Task};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::pooling::{Pool, Pooling};

/// Runs it, plane by plane.
pub(crate) fn run(op: &Pooling, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let input = *inputs[0].layout.shape();
    let (out_height, out_width) = (output.shape[1], output.shape[2]);
    with_type!(floats output.dtype, T => {
        let dense = Dense::new(op_name(op), inputs[0])?;
        let from = dense.all::<T>();
        let (plane, size) = (input[1] * input[2], out_height * out_width);
        let count = pool::grain(4 * (plane + size) * size_of::<T>());
        pool::for_each_chunk(output.all::<T>(), count * size, |i, to| {
            let space = out_width + if T::SAME { 0 } else { plane };
            <T as Float>::Real::with_scratch(space, |space| {
                for (k, to) in to.chunks_exact_mut(size).enumerate() {
                    let from = &from[(i * count + k) * plane..][..plane];
                    simd::run(Plane { op, from, to, space, width: input[2], out_width });
                }
            });
        });
        Ok(())
    }, else unreachable!("the rule takes floats only"))
}

fn op_name(op: &Pooling) -> &'static str {
    crate::ops::Rule::name(op)
}

struct Plane<'a, T: Float> {
    op: &'a Pooling,
    from: &'a [T],
    to: &'a mut [T],
    space: &'a mut [T::Real],
    width: usize,
    out_width: usize,
}

/// The places of a window's `tap` that lie inside an axis of `len` elements, of `places` in all: place `p`
/// meets element `p * stride + tap - padding`, where `tap` is counted in elements.
pub(super) fn inside(
    tap: usize,
    (stride, padding): (usize, usize),
    len: usize,
    places: usize,
) -> Range<usize> {
    let first = padding.saturating_sub(tap).div_ceil(stride);
    let end = (len + padding).saturating_sub(tap).div_ceil(stride);
    first.min(places)..end.min(places).max(first.min(places))
}

impl<T: Float> Task for Plane<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (op, width) = (self.op, self.width);
        let height = self.from.len().checked_div(width).unwrap_or(0);
        let (sums, space) = self.space.split_at_mut(self.out_width);
        let from = T::view::<I>(self.from, space);
        let max = op.pool == Pool::Max;
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
                    let places = inside(kx, (op.stride[1], op.padding[1]), width, self.out_width);
                    if places.is_empty() {
                        continue;
                    }
                    let from = &from[places.start * op.stride[1] + kx - op.padding[1]..];
                    let sums = &mut sums[places];
                    match (max, op.stride[1]) {
                        (true, 1) => greater(sums, from.iter()),
                        (true, stride) => greater(sums, from.iter().step_by(stride)),
                        (false, 1) => plus(sums, from.iter()),
                        (false, stride) => plus(sums, from.iter().step_by(stride)),
                    }
                }
            }
            if !max {
                for (x, sum) in sums.iter_mut().enumerate() {
                    let count = if op.pool == Pool::Mean {
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
fn greater<'a, R: Real + 'a>(sums: &mut [R], from: impl Iterator<Item = &'a R>) {
    for (top, &x) in sums.iter_mut().zip(from) {
        // A NaN is not equal to itself; it replaces what there is and is replaced by nothing.
        #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
        let wins = x > *top || x != x;
        *top = if wins { x } else { *top };
    }
}

#[inline(always)]
fn plus<'a, R: Real + 'a>(sums: &mut [R], from: impl Iterator<Item = &'a R>) {
    for (sum, &x) in sums.iter_mut().zip(from) {
        *sum += x;
    }
}
