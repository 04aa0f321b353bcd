//! `rope` on the CPU.

use std::f64::consts::TAU;

use super::math::Math;
use super::pool;
use super::row::{self, Real, RowKernel};
use super::simd::{self, Isa, MulAdd, Task};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::rope::{Rope, RopeStyle, RopeTable};
use crate::storage::Storage;
use crate::{DType, Result, Tensor};

/// Returns the inputs of the op for this backend: frequencies and positions in `f64`.
pub(crate) fn inputs(table: &RopeTable, positions: Option<Tensor>) -> (&Tensor, Option<Tensor>) {
    (table.frequencies(), positions.map(|p| p.cast(DType::F64)))
}

/// Runs the op: computes the cosines and sines of every position once, then rotates the rows of all heads.
pub(crate) fn run(op: &Rope, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let shape = output.shape;
    let seq = shape[shape.rank() - 2];
    let frequencies = Dense::new("rope", inputs[1])?;
    let frequencies = frequencies.all::<f64>();
    let positions = inputs.get(2).map(|&p| Dense::new("rope", p)).transpose()?;
    let positions = positions.as_ref().map(Dense::all::<f64>);
    let count = positions.map_or(seq, <[f64]>::len);
    with_type!(floats output.dtype, T => {
        type R = <T as row::Float>::Real;
        // Cosines, then sines of each position.
        let width = 2 * frequencies.len();
        let mut table = Storage::new("rope", count * width * size_of::<R>())?;
        let table = bytemuck::cast_slice_mut::<u8, R>(table.bytes_mut().expect("newly allocated"));
        let factor = op.factor();
        let first = op.offset;
        // A sine and a cosine take about as long as 64 bytes of memory.
        let grain = pool::grain(64 * width);
        pool::for_each_chunk(table, (grain * width).max(1), |i, piece| {
            for (k, entry) in piece.chunks_exact_mut(width.max(1)).enumerate() {
                let k = i * grain + k;
                // The sum of two `usize` cannot overflow 128 bits.
                let position = positions.map_or_else(|| (first as u128 + k as u128) as f64, |p| p[k]);
                let (cos, sin) = entry.split_at_mut(width / 2);
                simd::run(RopeTableEntry { position, frequencies, factor, cos, sin });
            }
        });
        let rows = shape.count() / shape[shape.rank() - 1];
        let kernel = RopeRow {
            table: &*table,
            half: frequencies.len(),
            style: op.style,
            seq,
            // Rows with the same sequence of positions: all, or those of one batch element.
            group: if count == seq { rows } else { rows / (count / seq) },
        };
        row::map::<T, _>("rope", inputs[0], output, kernel)
    }, else unreachable!("the rule takes floats only"))
}

/// The cosines and sines of a position.
struct RopeTableEntry<'a, R> {
    position: f64,
    frequencies: &'a [f64],
    factor: f64,
    cos: &'a mut [R],
    sin: &'a mut [R],
}

impl<R: Real> Task for RopeTableEntry<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for ((c, s), &f) in self.cos.iter_mut().zip(self.sin).zip(self.frequencies) {
            let angle = self.position * f;
            // Range reduction to [-pi, pi], where sine and cosine need no path for large angles.
            let periods = (angle / TAU).round_ties_even();
            let angle = periods.mul_add_on::<I>(-TAU, angle);
            *c = R::of(angle.cos_near::<I>() * self.factor);
            *s = R::of(angle.sin_near::<I>() * self.factor);
        }
    }
}

struct RopeRow<'a, R> {
    table: &'a [R],
    half: usize,
    style: RopeStyle,
    seq: usize,
    group: usize,
}

impl<R: Real> RowKernel<R> for RopeRow<'_, R> {
    const IS_COMPUTE_BOUND: bool = true;

    #[inline(always)]
    fn row<I: Isa>(&self, index: usize, x: &[R], y: &mut [R]) {
        let half = self.half;
        // The divisions take as long as rotating a dozen pairs.
        let position = match index {
            _ if self.seq == 1 && index < self.group => 0,
            _ => index / self.group * self.seq + index % self.seq,
        };
        let (cos, sin) = self.table[position * 2 * half..][..2 * half].split_at(half);
        let (x, same) = x.split_at(2 * half);
        let (y, rest) = y.split_at_mut(2 * half);
        rest.copy_from_slice(same);
        match self.style {
            RopeStyle::HalfSplit => {
                let (a, b) = x.split_at(half);
                let (to_a, to_b) = y.split_at_mut(half);
                for i in 0..half {
                    to_a[i] = a[i].mul_add_on::<I>(cos[i], -(b[i] * sin[i]));
                    to_b[i] = b[i].mul_add_on::<I>(cos[i], a[i] * sin[i]);
                }
            }
            RopeStyle::Interleaved => {
                for (((x, y), &c), &s) in x
                    .chunks_exact(2)
                    .zip(y.chunks_exact_mut(2))
                    .zip(cos)
                    .zip(sin)
                {
                    let (a, b) = (x[0], x[1]);
                    y[0] = a.mul_add_on::<I>(c, -(b * s));
                    y[1] = b.mul_add_on::<I>(c, a * s);
                }
            }
        }
    }
}
