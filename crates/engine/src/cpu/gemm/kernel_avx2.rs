//! AVX2 and FMA micro-kernels: 16 registers of 32 bytes, twelve of which hold the tile.
#![expect(unsafe_code, reason = "intrinsics and pointers into panels")]

use std::arch::x86_64::{
    __m256, __m256d, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_castpd_ps, _mm256_castps_pd,
    _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_mul_pd,
    _mm256_mul_ps, _mm256_permute2f128_pd, _mm256_permute2f128_ps, _mm256_set1_pd, _mm256_set1_ps,
    _mm256_setzero_pd, _mm256_setzero_ps, _mm256_storeu_pd, _mm256_storeu_ps, _mm256_unpackhi_pd,
    _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps,
};

use super::kernel::{Lines, MicroKernel, Side, TileArgs, copy, interleave, kernel, spill, total};
use crate::cpu::simd::Level;

kernel! {
    /// 6 by 16 in `f32`.
    Avx2F32: Avx2 f32, __m256, lanes 8, vectors 2,
    features "avx2,fma", heights [1 2 3 4 5] 6,
    zero _mm256_setzero_ps, load _mm256_loadu_ps, store _mm256_storeu_ps, splat _mm256_set1_ps,
    fma |x, y, z| _mm256_fmadd_ps(x, y, z), mul _mm256_mul_ps,
    prefetch |p| (_mm_prefetch::<_MM_HINT_T0>(p.cast::<i8>()), _mm_prefetch::<_MM_HINT_T1>(p.cast::<i8>())),
    interleave interleave_f32
}

kernel! {
    /// 6 by 8 in `f64`.
    Avx2F64: Avx2 f64, __m256d, lanes 4, vectors 2,
    features "avx2,fma", heights [1 2 3 4 5] 6,
    zero _mm256_setzero_pd, load _mm256_loadu_pd, store _mm256_storeu_pd, splat _mm256_set1_pd,
    fma |x, y, z| _mm256_fmadd_pd(x, y, z), mul _mm256_mul_pd,
    prefetch |p| (_mm_prefetch::<_MM_HINT_T0>(p.cast::<i8>()), _mm_prefetch::<_MM_HINT_T1>(p.cast::<i8>())),
    interleave interleave_f64
}

/// Transposes 8×8.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_f32(r: [__m256; 8]) -> [__m256; 8] {
    // Pairs of rows, then pairs of pairs as 64-bit elements, then the halves.
    let mut s = r;
    for i in 0..4 {
        s[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    let mut t = s;
    for i in [0, 4] {
        for j in 0..2 {
            let (low, high) = (_mm256_castps_pd(s[i + j]), _mm256_castps_pd(s[i + j + 2]));
            t[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
            t[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
        }
    }
    let mut out = t;
    for i in 0..4 {
        out[i] = _mm256_permute2f128_ps::<0x20>(t[i], t[i + 4]);
        out[i + 4] = _mm256_permute2f128_ps::<0x31>(t[i], t[i + 4]);
    }
    out
}

/// Transposes 4×4.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_f64(r: [__m256d; 4]) -> [__m256d; 4] {
    let s = [
        _mm256_unpacklo_pd(r[0], r[1]),
        _mm256_unpackhi_pd(r[0], r[1]),
        _mm256_unpacklo_pd(r[2], r[3]),
        _mm256_unpackhi_pd(r[2], r[3]),
    ];
    [
        _mm256_permute2f128_pd::<0x20>(s[0], s[2]),
        _mm256_permute2f128_pd::<0x20>(s[1], s[3]),
        _mm256_permute2f128_pd::<0x31>(s[0], s[2]),
        _mm256_permute2f128_pd::<0x31>(s[1], s[3]),
    ]
}

/// Interleaves in square blocks, as many lines and steps as a vector has lanes. If fewer lines than lanes are left,
/// the vector stored for a step overlaps the next step, which is written after it; the last steps are copied
/// element by element.
macro_rules! interleave {
    ($name:ident, $float:ty, $lanes:literal, $load:ident, $store:ident, $transpose:ident) => {
        /// # Safety
        /// As for `MicroKernel::interleave`.
        #[target_feature(enable = "avx2")]
        pub(super) unsafe fn $name<const W: usize>(lines: Lines<$float>, out: *mut $float) {
            const { assert!(W <= 4 * $lanes) };
            let Lines { start, line, depth } = lines;
            let blocks = W.div_ceil($lanes);
            let spare = if W % $lanes == 0 { 0 } else { $lanes };
            let mut step = 0;
            // SAFETY: lines and steps are inside what the caller promises; lines past the end read the
            // first of their block. A vector ends less than `LANES` elements behind its
            // step, and `spare` steps follow.
            unsafe {
                while step + $lanes + spare <= depth {
                    let mut columns = [[$load(start.add(step)); $lanes]; 4];
                    for (block, columns) in columns.iter_mut().take(blocks).enumerate() {
                        let first = block * $lanes;
                        let mut rows = *columns;
                        for (i, row) in rows.iter_mut().enumerate() {
                            let i = if first + i < W { first + i } else { first };
                            *row = $load(start.offset(i as isize * line).add(step));
                        }
                        *columns = $transpose(rows);
                    }
                    for i in 0..$lanes {
                        for (block, columns) in columns.iter().take(blocks).enumerate() {
                            $store(out.add((step + i) * W + block * $lanes), columns[i]);
                        }
                    }
                    step += $lanes;
                }
                interleave::<$float, W>(lines, step..depth, out);
            }
        }
    };
}

interleave!(
    interleave_f32,
    f32,
    8,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    transpose_f32
);
interleave!(
    interleave_f64,
    f64,
    4,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    transpose_f64
);
