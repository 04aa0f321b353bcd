//! AVX-512 micro-kernels: 32 registers of 64 bytes, twenty-eight of which hold the tile.
#![expect(unsafe_code, reason = "intrinsics and pointers into panels")]

use std::arch::x86_64::{
    __m512, __m512d, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm512_fmadd_pd, _mm512_fmadd_ps,
    _mm512_loadu_pd, _mm512_loadu_ps, _mm512_mul_pd, _mm512_mul_ps, _mm512_set1_pd, _mm512_set1_ps,
    _mm512_setzero_pd, _mm512_setzero_ps, _mm512_storeu_pd, _mm512_storeu_ps,
};

use super::kernel::{Lines, MicroKernel, Side, TileArgs, copy, kernel, spill, total};
use super::kernel_avx2::{interleave_f32, interleave_f64};
use crate::cpu::simd::Level;

kernel! {
    /// 14 by 32 in `f32`.
    Avx512F32: Avx512 f32, __m512, lanes 16, vectors 2,
    features "avx512f,avx2,fma", heights [1 2 4 6 8 10 12] 14,
    zero _mm512_setzero_ps, load _mm512_loadu_ps, store _mm512_storeu_ps, splat _mm512_set1_ps,
    fma |x, y, z| _mm512_fmadd_ps(x, y, z), mul _mm512_mul_ps,
    prefetch |p| (_mm_prefetch::<_MM_HINT_T0>(p.cast::<i8>()), _mm_prefetch::<_MM_HINT_T1>(p.cast::<i8>())),
    interleave interleave_f32
}

kernel! {
    /// 14 by 16 in `f64`.
    Avx512F64: Avx512 f64, __m512d, lanes 8, vectors 2,
    features "avx512f,avx2,fma", heights [1 2 4 6 8 10 12] 14,
    zero _mm512_setzero_pd, load _mm512_loadu_pd, store _mm512_storeu_pd, splat _mm512_set1_pd,
    fma |x, y, z| _mm512_fmadd_pd(x, y, z), mul _mm512_mul_pd,
    prefetch |p| (_mm_prefetch::<_MM_HINT_T0>(p.cast::<i8>()), _mm_prefetch::<_MM_HINT_T1>(p.cast::<i8>())),
    interleave interleave_f64
}
