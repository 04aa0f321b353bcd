//! Tiles of 16-bit integers: twelve vectors of sums, two of weights, one of activations and one of products.
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

use crate::cpu::quant_matmul::fixed_point::{HEIGHT, Sums, Tile, WIDTH};

/// Numbers of a vector.
const LANES: usize = 8;

/// Adds what a tile comes to; the processor has AVX2.
#[inline(always)]
pub(in crate::cpu::quant_matmul) fn add(tile: &Tile<'_>, sums: &mut Sums) {
    let lines = tile.lines.len();
    assert!(
        tile.pairs.len() == lines && tile.ends.iter().all(|&end| end <= lines),
        "a pair for every line, and blocks among them"
    );
    // SAFETY: tiles are computed so only where the level in use is AVX2; lengths were checked.
    unsafe { add_blocks(tile, sums) }
}

/// # Safety
/// As many lines and pairs as [`add`] checks.
#[target_feature(enable = "avx2,fma")]
unsafe fn add_blocks(tile: &Tile<'_>, sums: &mut Sums) {
    let lines = tile.lines.as_ptr().cast::<__m256i>();
    let mut first = 0;
    for ((columns, rows), &last) in tile.columns.iter().zip(tile.rows).zip(tile.ends) {
        let mut dots = [[_mm256_setzero_si256(); 2]; HEIGHT];
        for i in first..last {
            // SAFETY: below the number of lines, which begin at cache lines, and of pairs.
            unsafe {
                let pairs = tile.pairs.get_unchecked(i);
                let w = [
                    _mm256_load_si256(lines.add(2 * i)),
                    _mm256_load_si256(lines.add(2 * i + 1)),
                ];
                for r in 0..HEIGHT {
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
                for r in 0..HEIGHT {
                    let sum = sums[r].as_mut_ptr().add(v * LANES);
                    let dot = _mm256_mul_ps(_mm256_cvtepi32_ps(dots[r][v]), scale);
                    let dot = _mm256_fmadd_ps(dot, _mm256_set1_ps(rows[r]), _mm256_loadu_ps(sum));
                    _mm256_storeu_ps(sum, dot);
                }
            }
        }
    }
}

/// The largest numbers without their signs, by column; the processor has AVX2.
#[inline(always)]
pub(in crate::cpu::quant_matmul) fn tops(steps: &[[u16; WIDTH]]) -> [u16; WIDTH] {
    #[target_feature(enable = "avx2")]
    fn tops(steps: &[[u16; WIDTH]]) -> [u16; WIDTH] {
        let mut tops = [0; WIDTH];
        let sizes = _mm256_set1_epi16(0x7FFF);
        let mut all = _mm256_setzero_si256();
        // SAFETY: a step is a vector, and so are the tops.
        unsafe {
            for step in steps {
                let step = _mm256_loadu_si256(step.as_ptr().cast());
                all = _mm256_max_epu16(all, _mm256_and_si256(step, sizes));
            }
            _mm256_storeu_si256(tops.as_mut_ptr().cast(), all);
        }
        tops
    }
    // SAFETY: this is asked for only where the level in use is AVX2.
    unsafe { tops(steps) }
}

/// Fetches memory.
#[inline(always)]
pub(in crate::cpu::quant_matmul) fn fetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: every x86-64 processor has the instruction, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast::<i8>()) };
    }
}
