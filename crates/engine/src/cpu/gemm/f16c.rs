//! Conversions between `f16` and `f32` with F16C, eight elements at a time.
#![expect(unsafe_code, reason = "intrinsics that the level in use has")]

use std::arch::x86_64::{
    __m128i, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps,
    _mm256_storeu_ps,
};

use half::f16;

use crate::cpu::simd::{Isa, Level};

/// Returns true if a task compiled for `I` may use F16C: it then runs on a processor that has it.
#[inline(always)]
fn available<I: Isa>() -> bool {
    matches!(I::LEVEL, Level::Avx2 | Level::Avx512)
}

/// Widens whole vectors and returns the remainder.
#[inline(always)]
pub(super) fn widen<'a, I: Isa>(from: &'a [f16], to: &'a mut [f32]) -> (&'a [f16], &'a mut [f32]) {
    if !available::<I>() {
        return (from, to);
    }
    let (from, from_rest) = from.as_chunks::<8>();
    let (to, to_rest) = to.as_chunks_mut::<8>();
    for (x, y) in from.iter().zip(to) {
        // SAFETY: both levels have F16C; the chunks have eight elements.
        unsafe {
            let x = x.as_ptr().cast::<__m128i>().read_unaligned();
            _mm256_storeu_ps(y.as_mut_ptr(), _mm256_cvtph_ps(x));
        }
    }
    (from_rest, to_rest)
}

/// Narrows whole vectors and returns the remainder.
#[inline(always)]
pub(super) fn narrow<'a, I: Isa>(from: &'a [f32], to: &'a mut [f16]) -> (&'a [f32], &'a mut [f16]) {
    if !available::<I>() {
        return (from, to);
    }
    let (from, from_rest) = from.as_chunks::<8>();
    let (to, to_rest) = to.as_chunks_mut::<8>();
    for (x, y) in from.iter().zip(to) {
        // SAFETY: both levels have F16C; the chunks have eight elements.
        unsafe {
            let x = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
            y.as_mut_ptr().cast::<__m128i>().write_unaligned(x);
        }
    }
    (from_rest, to_rest)
}
