//! Fixed-point i16 tiles: twelve vectors of sums, two of weights, one of activations and one of products.
#![expect(
    unsafe_code,
    reason = "intrinsics that the level in use has, on pointers into slices whose lengths were checked"
)]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T1, _mm_prefetch, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_load_si256, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_max_epu16, _mm256_mul_ps, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_si256, _mm256_storeu_ps, _mm256_storeu_si256,
};

use crate::cpu::quant_matmul::fixed_point::{FixedPointTile, TILE_COLS, TILE_ROWS, TileSums};

/// Elements of a vector.
const LANES: usize = 8;

/// Adds the products of a tile to `sums`; the processor must have AVX2.
#[inline(always)]
pub(in crate::cpu::quant_matmul) fn add(tile: &FixedPointTile<'_>, sums: &mut TileSums) {
    let weights = tile.weights.len();
    assert!(
        tile.pairs.len() == weights && tile.ends.iter().all(|&end| end <= weights),
        "pairs or blocks do not match the weights"
    );
    // SAFETY: called only if the level in use is AVX2; lengths were checked.
    unsafe { add_blocks(tile, sums) }
}

/// # Safety
/// The processor must have AVX2, and the lengths must be those that [`add`] checks.
#[target_feature(enable = "avx2,fma")]
unsafe fn add_blocks(tile: &FixedPointTile<'_>, sums: &mut TileSums) {
    let weights = tile.weights.as_ptr().cast::<__m256i>();
    let mut first = 0;
    for ((columns, rows), &last) in tile.columns.iter().zip(tile.rows).zip(tile.ends) {
        let mut dots = [[_mm256_setzero_si256(); 2]; TILE_ROWS];
        for i in first..last {
            // SAFETY: `i` is below the number of weights, which are aligned to cache lines, and of pairs.
            unsafe {
                let pairs = tile.pairs.get_unchecked(i);
                let w = [
                    _mm256_load_si256(weights.add(2 * i)),
                    _mm256_load_si256(weights.add(2 * i + 1)),
                ];
                for r in 0..TILE_ROWS {
                    let x = _mm256_set1_epi32(pairs[r] as i32);
                    for v in 0..2 {
                        dots[r][v] = _mm256_add_epi32(dots[r][v], _mm256_madd_epi16(x, w[v]));
                    }
                }
            }
        }
        first = last;
        for v in 0..2 {
            // SAFETY: two vectors of scales and, for every row, of sums.
            unsafe {
                let scale = _mm256_loadu_ps(columns.as_ptr().add(v * LANES));
                for r in 0..TILE_ROWS {
                    let sum = sums[r].as_mut_ptr().add(v * LANES);
                    let dot = _mm256_mul_ps(_mm256_cvtepi32_ps(dots[r][v]), scale);
                    let dot = _mm256_fmadd_ps(dot, _mm256_set1_ps(rows[r]), _mm256_loadu_ps(sum));
                    _mm256_storeu_ps(sum, dot);
                }
            }
        }
    }
}

/// The largest magnitude of each column, as bits; the processor must have AVX2.
#[inline(always)]
pub(in crate::cpu::quant_matmul) fn maxima(steps: &[[u16; TILE_COLS]]) -> [u16; TILE_COLS] {
    #[target_feature(enable = "avx2")]
    fn maxima(steps: &[[u16; TILE_COLS]]) -> [u16; TILE_COLS] {
        let mut maxima = [0; TILE_COLS];
        let sizes = _mm256_set1_epi16(0x7FFF);
        let mut all = _mm256_setzero_si256();
        // SAFETY: a step is a vector, and so are the maxima.
        unsafe {
            for step in steps {
                let step = _mm256_loadu_si256(step.as_ptr().cast());
                all = _mm256_max_epu16(all, _mm256_and_si256(step, sizes));
            }
            _mm256_storeu_si256(maxima.as_mut_ptr().cast(), all);
        }
        maxima
    }
    // SAFETY: called only if the level in use is AVX2.
    unsafe { maxima(steps) }
}

/// Prefetches memory.
#[inline(always)]
pub(in crate::cpu::quant_matmul) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: every x86-64 processor has the instruction, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast::<i8>()) };
    }
}
