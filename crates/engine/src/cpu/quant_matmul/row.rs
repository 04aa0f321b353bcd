//! Matmul with rows of weights in the layout of the file.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]

use std::ops::Range;

use super::activation::{Activations, GROUP_LEN};
#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::shared_output::SharedOutput;
use crate::cpu::gemm;
use crate::cpu::row::Real;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Level;
use crate::cpu::simd::{self, Isa, Task};
use crate::quant::{BlockFormat, QuantMatrix, Weights, group};

/// The weight type with an index: the block formats in their order, then the floats.
const fn weights_of(index: usize) -> Weights {
    match index {
        10 => Weights::F32,
        11 => Weights::F16,
        12 => Weights::BF16,
        i => Weights::Block(BlockFormat::ALL[i]),
    }
}

/// Evaluates an expression with the index of a weight type as a constant, so that its loops are compiled for each type
/// separately: in a function that handled all types, the compiler would stop inlining.
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

/// Multiplies a range of rows of quantised blocks with 8-bit activations.
pub(super) fn multiply(
    matrix: &QuantMatrix,
    x: &Activations,
    range: Range<usize>,
    to: &SharedOutput<'_>,
) {
    with_kind!(matrix.weights(), K => simd::run_narrow(IntegerRows::<K> { matrix, x, range, to }));
}

/// Multiplies a range of dequantised rows with a few `f32` vectors.
pub(super) fn exact(matrix: &QuantMatrix, x: &[f32], range: Range<usize>, to: &SharedOutput<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let (Weights::Block(format), true) = (matrix.weights(), has_avx2()) {
        return exact_avx2(format, matrix, x, range, to);
    }
    let (level, cols) = (simd::level(), matrix.cols());
    f32::with_scratch(cols, |scratch| {
        for r in range {
            let row = match f32_row(matrix, r) {
                Some(row) => row,
                None => {
                    widen_rows(matrix, r, scratch);
                    &*scratch
                }
            };
            for (v, x) in x.chunks_exact(cols).enumerate() {
                to.get(v, r, 1)[0] = gemm::dot_at(level, row, x);
            }
        }
    });
}

/// A row of `f32` weights; `None` if they have another type or are not aligned.
fn f32_row(matrix: &QuantMatrix, row: usize) -> Option<&[f32]> {
    if matrix.weights() != Weights::F32 {
        return None;
    }
    let cols = matrix.cols();
    let bytes = &matrix.bytes()[row * cols * size_of::<f32>()..][..cols * size_of::<f32>()];
    bytemuck::try_cast_slice(bytes).ok()
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    matches!(simd::level(), Level::Avx2 | Level::Avx512)
}

/// [`exact`] for quantised blocks, which are dequantised in registers, two vectors at a time.
#[cfg(target_arch = "x86_64")]
fn exact_avx2(
    format: BlockFormat,
    matrix: &QuantMatrix,
    x: &[f32],
    range: Range<usize>,
    to: &SharedOutput<'_>,
) {
    let cols = matrix.cols();
    let row = matrix.bytes().len() / matrix.rows();
    for r in range {
        let blocks = &matrix.bytes()[r * row..][..row];
        for (i, x) in x.chunks(2 * cols).enumerate() {
            let (first, second) = x.split_at(cols);
            if second.is_empty() {
                let [sum] = avx2::exact::dot(format, blocks, [first]);
                to.get(2 * i, r, 1)[0] = sum;
            } else {
                let sums = avx2::exact::dot(format, blocks, [first, second]);
                to.get(2 * i, r, 1)[0] = sums[0];
                to.get(2 * i + 1, r, 1)[0] = sums[1];
            }
        }
    }
}

/// Dequantises rows from `first` on.
pub(super) fn widen_rows(matrix: &QuantMatrix, first: usize, to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if let (Weights::Block(format), true) = (matrix.weights(), has_avx2()) {
        let row = matrix.bytes().len() / matrix.rows();
        let blocks = &matrix.bytes()[first * row..][..to.len() / matrix.cols() * row];
        return avx2::exact::widen(format, blocks, to);
    }
    with_kind!(matrix.weights(), K => simd::run_narrow(DequantizeRows::<K> { matrix, first, to }));
}

struct IntegerRows<'a, const KIND: usize> {
    matrix: &'a QuantMatrix,
    x: &'a Activations,
    range: Range<usize>,
    to: &'a SharedOutput<'a>,
}

impl<const KIND: usize> Task for IntegerRows<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Weights::Block(format) = (const { weights_of(KIND) }) else {
            unreachable!("called for quantised blocks only");
        };
        let row = format
            .row_bytes(self.matrix.cols())
            .expect("checked by the constructor");
        let size = format.block_bytes();
        let groups = format.block_len() / GROUP_LEN;
        let bytes = self.matrix.bytes();
        for r in self.range {
            let blocks = &bytes[r * row..][..row];
            for v in 0..self.x.rows() {
                let x = self.x.row(v);
                let mut sum = 0.0_f32;
                let (q, _) = x.q.as_chunks::<GROUP_LEN>();
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
                        let off = w.offset[0] * f32::from(scale.half_sums[0])
                            + w.offset[1] * f32::from(scale.half_sums[1]);
                        sum += scale.d * (product - off);
                    }
                }
                let to = &mut self.to.get(v / self.x.terms(), r, 1)[0];
                if v % self.x.terms() == 0 {
                    *to = sum;
                } else {
                    *to += sum;
                }
            }
        }
    }
}

/// Widens weights to `f32`, with conversion instructions if available.
#[inline(always)]
fn widen<I: Isa>(weights: Weights, bytes: &[u8], to: &mut [f32]) {
    if weights == Weights::F16
        && let Ok(half) = bytemuck::try_cast_slice::<u8, half::f16>(bytes)
    {
        <half::f16 as crate::cpu::row::Float>::widen::<I>(half, to);
        return;
    }
    weights.widen(bytes, to);
}

struct DequantizeRows<'a, const KIND: usize> {
    matrix: &'a QuantMatrix,
    first: usize,
    to: &'a mut [f32],
}

impl<const KIND: usize> Task for DequantizeRows<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let cols = self.matrix.cols();
        let row = self.matrix.bytes().len() / self.matrix.rows();
        let weights = const { weights_of(KIND) };
        for (i, to) in self.to.chunks_exact_mut(cols).enumerate() {
            let bytes = &self.matrix.bytes()[(self.first + i) * row..][..row];
            widen::<I>(weights, bytes, to);
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::quant::{dequantize, quantize};

    #[test]
    fn blocks_dequantised_in_registers_have_the_bits_of_dequantised_rows() {
        if !Level::Avx2.is_available() {
            return;
        }
        const COLS: usize = 512;
        for format in BlockFormat::ALL {
            let values: Vec<f32> = (0..COLS)
                .map(|i| ((i * i) as f32 * 0.137).sin() * (1.0 + (i / 32) as f32))
                .collect();
            let row = quantize(format, &values).unwrap();
            let mut weights = vec![0.0_f32; COLS];
            dequantize(format, &row, &mut weights).unwrap();
            let mut widened = vec![0.0_f32; COLS];
            avx2::exact::widen(format, &row, &mut widened);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&widened), bits(&weights), "{format}");
            let x: [Vec<f32>; 2] =
                [0.31, 0.77].map(|step| (0..COLS).map(|i| (i as f32 * step).cos()).collect());
            let expected = [0, 1].map(|v| gemm::dot_at(Level::Avx2, &weights, &x[v]));
            let single = [0, 1].map(|v| avx2::exact::dot(format, &row, [&x[v]])[0]);
            let both = avx2::exact::dot(format, &row, [&x[0], &x[1]]);
            assert_eq!(bits(&single), bits(&expected), "{format}");
            assert_eq!(bits(&both), bits(&expected), "{format}");
        }
    }
}
