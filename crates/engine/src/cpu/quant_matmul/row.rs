//! Rows of weights as they lie in files.

use std::ops::Range;

use super::Part;
use super::activation::{Activations, GROUP};
use crate::cpu::row::Real;
use crate::cpu::simd::{self, Isa, MulAdd, Task};
use crate::quant::{BlockFormat, QuantMatrix, Weights, group};

/// Products of integers, for a range of rows.
pub(super) fn multiply(matrix: &QuantMatrix, x: &Activations, range: Range<usize>, to: &Part<'_>) {
    let Weights::Block(format) = matrix.weights() else {
        unreachable!("other weights are not integers");
    };
    macro_rules! with {
        ($($format:ident)*) => {
            match format {
                $(BlockFormat::$format => simd::run_narrow(Integers::<{ BlockFormat::$format as usize }> {
                    matrix, x, range, to,
                }),)*
            }
        };
    }
    with!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K);
}

/// The format is a parameter, so that the loops are compiled for it.
struct Integers<'a, const FORMAT: usize> {
    matrix: &'a QuantMatrix,
    x: &'a Activations,
    range: Range<usize>,
    to: &'a Part<'a>,
}

impl<const FORMAT: usize> Task for Integers<'_, FORMAT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let format = BlockFormat::ALL[FORMAT];
        let row = format
            .row_bytes(self.matrix.cols())
            .expect("checked when it was made");
        let size = format.block_bytes();
        let groups = format.block_len() / GROUP;
        let bytes = self.matrix.bytes();
        for r in self.range {
            let blocks = &bytes[r * row..][..row];
            for v in 0..self.x.rows() {
                let x = self.x.row(v);
                let mut sum = 0.0_f32;
                let (q, _) = x.q.as_chunks::<GROUP>();
                for (b, block) in blocks.chunks_exact(size).enumerate() {
                    for g in 0..groups {
                        let w = group(format, block, g);
                        let (x, scale) = (&q[b * groups + g], &x.scales[b * groups + g]);
                        let mut dots = [0_i32; 2];
                        for (half, dot) in dots.iter_mut().enumerate() {
                            for j in half * 16..half * 16 + 16 {
                                *dot += i32::from(i16::from(w.q[j]) * i16::from(x[j]));
                            }
                        }
                        let product = w.scale[0] * dots[0] as f32 + w.scale[1] * dots[1] as f32;
                        let off = w.offset[0] * f32::from(scale.halves[0])
                            + w.offset[1] * f32::from(scale.halves[1]);
                        sum += scale.d * (product - off);
                    }
                }
                self.to.get(v, r, 1)[0] = sum;
            }
        }
    }
}

/// Products of dequantised weights with few vectors of `f32`.
pub(super) struct Exact<'a> {
    pub(super) matrix: &'a QuantMatrix,
    pub(super) x: &'a [f32],
    pub(super) range: Range<usize>,
    pub(super) to: &'a Part<'a>,
}

impl Task for Exact<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let cols = self.matrix.cols();
        let row = self.matrix.bytes().len() / self.matrix.rows();
        let weights = self.matrix.weights();
        f32::with_scratch(cols, |space| {
            for r in self.range {
                let bytes = &self.matrix.bytes()[r * row..][..row];
                widen::<I>(weights, bytes, space);
                for (v, x) in self.x.chunks_exact(cols).enumerate() {
                    self.to.get(v, r, 1)[0] = dot::<I>(space, x);
                }
            }
        });
    }
}

/// Weights as `f32`, by the processor's own conversion where there is one.
#[inline(always)]
fn widen<I: Isa>(weights: Weights, bytes: &[u8], to: &mut [f32]) {
    if weights == Weights::F16
        && let Ok(halves) = bytemuck::try_cast_slice::<u8, half::f16>(bytes)
    {
        <half::f16 as crate::cpu::row::Float>::widen::<I>(halves, to);
        return;
    }
    weights.widen(bytes, to);
}

#[inline(always)]
fn dot<I: Isa>(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 32;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] = a[i].mul_add_on::<I>(b[i], lanes[i]);
        }
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = a.mul_add_on::<I>(b, *lane);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Rows of weights as `f32`, from row `first` on.
pub(super) struct Widen<'a> {
    pub(super) matrix: &'a QuantMatrix,
    pub(super) first: usize,
    pub(super) to: &'a mut [f32],
}

impl Task for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let cols = self.matrix.cols();
        let row = self.matrix.bytes().len() / self.matrix.rows();
        let weights = self.matrix.weights();
        for (i, to) in self.to.chunks_exact_mut(cols).enumerate() {
            let bytes = &self.matrix.bytes()[(self.first + i) * row..][..row];
            widen::<I>(weights, bytes, to);
        }
    }
}
