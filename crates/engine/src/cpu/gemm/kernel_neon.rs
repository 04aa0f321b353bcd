//! NEON micro-kernels: 32 registers of 16 bytes, twenty-four of which hold the tile.
#![expect(unsafe_code, reason = "intrinsics and pointers into panels")]

use std::arch::aarch64::{
    float32x4_t, float64x2_t, vdupq_n_f32, vdupq_n_f64, vfmaq_f32, vfmaq_f64, vld1q_f32, vld1q_f64,
    vmulq_f32, vmulq_f64, vreinterpretq_f32_f64, vreinterpretq_f64_f32, vst1q_f32, vst1q_f64,
    vtrn1q_f32, vtrn1q_f64, vtrn2q_f32, vtrn2q_f64,
};

use super::kernel::{Lines, MicroKernel, Side, TileArgs, copy, interleave, kernel, spill, total};
use crate::cpu::simd::Level;

#[inline(always)]
fn zero_f32() -> float32x4_t {
    // SAFETY: every 64-bit ARM processor has NEON.
    unsafe { vdupq_n_f32(0.0) }
}

#[inline(always)]
fn zero_f64() -> float64x2_t {
    // SAFETY: every 64-bit ARM processor has NEON.
    unsafe { vdupq_n_f64(0.0) }
}

kernel! {
    /// 8 by 12 in `f32`.
    NeonF32: Neon f32, float32x4_t, lanes 4, vectors 3,
    features "neon", heights [1 2 3 4 5 6 7] 8,
    zero zero_f32, load vld1q_f32, store vst1q_f32, splat vdupq_n_f32,
    fma |x, y, z| vfmaq_f32(z, x, y), mul vmulq_f32,
    prefetch |_p| ({}, {}), interleave interleave_f32
}

kernel! {
    /// 8 by 6 in `f64`.
    NeonF64: Neon f64, float64x2_t, lanes 2, vectors 3,
    features "neon", heights [1 2 3 4 5 6 7] 8,
    zero zero_f64, load vld1q_f64, store vst1q_f64, splat vdupq_n_f64,
    fma |x, y, z| vfmaq_f64(z, x, y), mul vmulq_f64,
    prefetch |_p| ({}, {}), interleave interleave_f64
}

/// Interleaves in 4×4 blocks.
///
/// # Safety
/// As for `MicroKernel::interleave`.
unsafe fn interleave_f32<const W: usize>(lines: Lines<f32>, out: *mut f32) {
    const { assert!(W.is_multiple_of(4)) };
    let Lines { start, line, depth } = lines;
    let whole = depth - depth % 4;
    // SAFETY: lines and steps are inside what the caller promises.
    unsafe {
        for step in (0..whole).step_by(4) {
            for first in (0..W).step_by(4) {
                let row = |i: usize| vld1q_f32(start.offset((first + i) as isize * line).add(step));
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                let (ab, ab2) = (vtrn1q_f32(a, b), vtrn2q_f32(a, b));
                let (cd, cd2) = (vtrn1q_f32(c, d), vtrn2q_f32(c, d));
                let low = |x, y| {
                    let (x, y) = (vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y));
                    vreinterpretq_f32_f64(vtrn1q_f64(x, y))
                };
                let high = |x, y| {
                    let (x, y) = (vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y));
                    vreinterpretq_f32_f64(vtrn2q_f64(x, y))
                };
                let columns = [low(ab, cd), low(ab2, cd2), high(ab, cd), high(ab2, cd2)];
                for (i, &column) in columns.iter().enumerate() {
                    vst1q_f32(out.add((step + i) * W + first), column);
                }
            }
        }
        interleave::<f32, W>(lines, whole..depth, out);
    }
}

/// Interleaves in 2×2 blocks.
///
/// # Safety
/// As for `MicroKernel::interleave`.
unsafe fn interleave_f64<const W: usize>(lines: Lines<f64>, out: *mut f64) {
    const { assert!(W.is_multiple_of(2)) };
    let Lines { start, line, depth } = lines;
    let whole = depth - depth % 2;
    // SAFETY: lines and steps are inside what the caller promises.
    unsafe {
        for step in (0..whole).step_by(2) {
            for first in (0..W).step_by(2) {
                let a = vld1q_f64(start.offset(first as isize * line).add(step));
                let b = vld1q_f64(start.offset((first + 1) as isize * line).add(step));
                vst1q_f64(out.add(step * W + first), vtrn1q_f64(a, b));
                vst1q_f64(out.add((step + 1) * W + first), vtrn2q_f64(a, b));
            }
        }
        interleave::<f64, W>(lines, whole..depth, out);
    }
}
