//! Rows of weights as they lie in files.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]

use std::ops::Range;

use super::activation::{Activations, GROUP};
use super::part::Part;
use crate::cpu::row::Real;
use crate::cpu::simd::{self, Isa, MulAdd, Task};
use crate::quant::{BlockFormat, QuantMatrix, Weights, group};

/// The kind of weights with a number: the formats in their order, then the plain floats.
const fn kind(number: usize) -> Weights {
    match number {
        10 => Weights::F32,
        11 => Weights::F16,
        12 => Weights::BF16,
        i => Weights::Block(BlockFormat::ALL[i]),
    }
}

/// Calls a function with the number of a matrix's weights as a constant, so that its loops are compiled for that
/// kind alone: in a function that had all kinds the compiler would not inline any more.
macro_rules! with_kind {
    ($weights:expr, $K:ident => $body:expr) => {
        with_kind!(@match $weights, $K, $body;
            Q4_0 0, Q4_1 1, Q5_0 2, Q5_1 3, Q8_0 4, Q2K 5, Q3K 6, Q4K 7, Q5K 8, Q6K 9)
    };
    (@match $weights:expr, $K:ident, $body:expr; $($format:ident $number:literal),*) => {
        match $weights {
            $(Weights::Block(BlockFormat::$format) => {
                const $K: usize = $number;
                $body
            })*
            Weights::F32 => {
                const $K: usize = 10;
                $body
            }
            Weights::F16 => {
                const $K: usize = 11;
                $body
            }
            Weights::BF16 => {
                const $K: usize = 12;
                $body
            }
        }
    };
}

/// Products of integers, for a range of rows; of weights that are blocks.
pub(super) fn multiply(matrix: &QuantMatrix, x: &Activations, range: Range<usize>, to: &Part<'_>) {
    with_kind!(matrix.weights(), K => simd::run_narrow(Integers::<K> { matrix, x, range, to }));
}

/// Products of dequantised weights with few vectors of `f32`, for a range of rows.
pub(super) fn exact(matrix: &QuantMatrix, x: &[f32], range: Range<usize>, to: &Part<'_>) {
    // Around the task: a closure inside would be compiled without the task's instructions.
    f32::with_scratch(matrix.cols(), |space| {
        let (matrix, range) = (matrix, range);
        with_kind!(matrix.weights(), K => simd::run_narrow(Exact::<K> { matrix, x, range, to, space }));
    });
}

/// Rows of weights as `f32`, from row `first` on.
pub(super) fn widen_rows(matrix: &QuantMatrix, first: usize, to: &mut [f32]) {
    with_kind!(matrix.weights(), K => simd::run_narrow(Widen::<K> { matrix, first, to }));
}

struct Integers<'a, const KIND: usize> {
    matrix: &'a QuantMatrix,
    x: &'a Activations,
    range: Range<usize>,
    to: &'a Part<'a>,
}

impl<const KIND: usize> Task for Integers<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Weights::Block(format) = (const { kind(KIND) }) else {
            unreachable!("other weights are no integers");
        };
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
                let to = &mut self.to.get(v / self.x.parts(), r, 1)[0];
                if v % self.x.parts() == 0 {
                    *to = sum;
                } else {
                    *to += sum;
                }
            }
        }
    }
}

struct Exact<'a, const KIND: usize> {
    matrix: &'a QuantMatrix,
    x: &'a [f32],
    range: Range<usize>,
    to: &'a Part<'a>,
    space: &'a mut [f32],
}

impl<const KIND: usize> Task for Exact<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let cols = self.matrix.cols();
        let row = self.matrix.bytes().len() / self.matrix.rows();
        let weights = const { kind(KIND) };
        let space = self.space;
        for r in self.range {
            let bytes = &self.matrix.bytes()[r * row..][..row];
            widen::<I>(weights, bytes, space);
            for v in 0..self.x.len() / cols {
                self.to.get(v, r, 1)[0] = dot::<I>(space, &self.x[v * cols..][..cols]);
            }
        }
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
    for g in 0..a.len().min(b.len()) {
        let (a, b) = (&a[g], &b[g]);
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

struct Widen<'a, const KIND: usize> {
    matrix: &'a QuantMatrix,
    first: usize,
    to: &'a mut [f32],
}

impl<const KIND: usize> Task for Widen<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let cols = self.matrix.cols();
        let row = self.matrix.bytes().len() / self.matrix.rows();
        let weights = const { kind(KIND) };
        for (i, to) in self.to.chunks_exact_mut(cols).enumerate() {
            let bytes = &self.matrix.bytes()[(self.first + i) * row..][..row];
            widen::<I>(weights, bytes, to);
        }
    }
}
