//! Conversions of `f16` with the F16C instructions.
#![expect(
    unsafe_code,
    reason = "intrinsics, called only at a level that has them"
)]

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_ps, _mm256_storeu_ps,
};

use ::half::f16;

use super::{narrow_f16, widen_f16};
use crate::cpu::simd::{Isa, Level};

/// Elements of a vector.
const WIDTH: usize = 8;

#[inline(always)]
pub(super) fn to_f32<I: Isa>(source: &[f16], target: &mut [f32]) {
    debug_assert!(matches!(I::LEVEL, Level::Avx2 | Level::Avx512));
    // SAFETY: code for these levels runs only where `simd` has found AVX2 and F16C.
    unsafe { widen(source, target) }
}

#[inline(always)]
pub(super) fn from_f32<I: Isa>(source: &[f32], target: &mut [f16]) {
    debug_assert!(matches!(I::LEVEL, Level::Avx2 | Level::Avx512));
    // SAFETY: as above.
    unsafe { narrow(source, target) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen(source: &[f16], target: &mut [f32]) {
    let length = source.len().min(target.len());
    let (source, source_rest) = source[..length].as_chunks::<WIDTH>();
    let (target, target_rest) = target[..length].as_chunks_mut::<WIDTH>();
    for (x, y) in source.iter().zip(target) {
        // SAFETY: both arrays have as many elements as the instructions read and write, unaligned.
        unsafe {
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()));
            _mm256_storeu_ps(y.as_mut_ptr(), wide);
        }
    }
    for (x, y) in source_rest.iter().zip(target_rest) {
        *y = widen_f16(*x);
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(source: &[f32], target: &mut [f16]) {
    let length = source.len().min(target.len());
    let (source, source_rest) = source[..length].as_chunks::<WIDTH>();
    let (target, target_rest) = target[..length].as_chunks_mut::<WIDTH>();
    for (x, y) in source.iter().zip(target) {
        // SAFETY: as above.
        unsafe {
            let wide = _mm256_loadu_ps(x.as_ptr());
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
            _mm_storeu_si128(y.as_mut_ptr().cast(), half);
        }
    }
    for (x, y) in source_rest.iter().zip(target_rest) {
        *y = narrow_f16(*x);
    }
}
