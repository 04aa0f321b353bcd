//! Integer kernels for ARM: with dotprod, and for two activation rows at a time with i8mm.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]
#![expect(
    unsafe_code,
    reason = "instructions that the caller detected, on pointers into slices whose lengths were checked"
)]

use std::arch::aarch64::{
    float32x4_t, int8x8_t, int8x16_t, int16x8_t, int32x4_t, uint8x16_t, vandq_u8, vcvt_f32_f16,
    vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s8, vdupq_n_s32, vdupq_n_u8, veorq_u8, vfmaq_f32,
    vfmsq_f32, vget_low_s16, vld1_s8, vld1_u16, vld1q_s8, vld1q_u8, vmlaq_s32, vmovl_high_s16,
    vmovl_s8, vmovl_s16, vmulq_f32, vorrq_u8, vreinterpret_f16_u16, vreinterpretq_s8_s32,
    vreinterpretq_s8_s64, vreinterpretq_s8_u8, vreinterpretq_s32_s8, vreinterpretq_s64_s8,
    vshlq_u8, vst1q_f32, vtrn1q_s32, vtrn1q_s64, vtrn2q_s32, vtrn2q_s64, vuzp1q_s16, vuzp2q_s16,
};
use std::arch::asm;

use super::activation::Activations;
use super::dot::{self, Lanes, PanelCursor, PanelJob, TILE_ROWS};
use crate::cpu::simd::Features;
use crate::quant::BlockFormat;

/// Multiplies panels, as [`dot::multiply`] does; with i8mm if `MATRIX`.
///
/// # Panics
/// If the processor lacks the instructions.
pub(super) fn multiply<const MATRIX: bool>(
    format: BlockFormat,
    panels: &[u8],
    size: usize,
    x: &Activations,
    out: impl Fn(usize, usize, &[f32]),
) {
    let needed = if MATRIX {
        Features::NeonI8mm
    } else {
        Features::NeonDotprod
    };
    assert!(needed.is_available(), "no {needed:?}");
    // SAFETY: the features were checked above.
    unsafe { dot::multiply::<Neon<MATRIX>>(format, panels, size, x, out) };
}

/// The rows of a panel in two registers; uses the matrix multiplication of i8mm if `MATRIX`.
#[derive(Clone, Copy)]
pub(super) struct Neon<const MATRIX: bool>;

/// Adds the dot products of four bytes of every lane with bytes `4 * LANE` to `4 * LANE + 3` of `x`.
///
/// # Safety
/// The processor must have dotprod.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn sdot<const LANE: usize>(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only. The intrinsic of the standard library is not stable yet.
    unsafe {
        asm!(
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{lane}]",
            inout(vreg) sum,
            in(vreg) w,
            in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Adds the dot products of two rows of eight bytes with two others.
///
/// # Safety
/// The processor must have i8mm.
#[inline]
#[target_feature(enable = "neon,i8mm")]
unsafe fn smmla(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only. The intrinsic of the standard library is not stable yet.
    unsafe {
        asm!(
            "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sum,
            in(vreg) w,
            in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// [`dot::multiply_rows`] with dotprod.
///
/// # Safety
/// As for [`dot::multiply_rows`].
#[target_feature(enable = "neon,dotprod")]
unsafe fn with_dots<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N] {
    // SAFETY: the caller's contract.
    unsafe { dot::multiply_rows::<Neon<false>, N>(job, first) }
}

/// [`dot::multiply_rows`] with dotprod and i8mm.
///
/// # Safety
/// As for [`dot::multiply_rows`].
#[target_feature(enable = "neon,dotprod,i8mm")]
unsafe fn with_matrices<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N] {
    // SAFETY: the caller's contract.
    unsafe { dot::multiply_rows::<Neon<true>, N>(job, first) }
}

/// Sums for one vector.
///
/// # Safety
/// As for [`Lanes::dots`].
#[inline(always)]
unsafe fn dots1(w: &[[uint8x16_t; 2]], x: *const i8) -> [int32x4_t; 2] {
    // SAFETY: by contract; `w` is four quads or eight.
    unsafe {
        let mut sums = [vdupq_n_s32(0); 2];
        for four in 0..w.len() / 4 {
            let x = vld1q_s8(x.add(16 * four));
            for r in 0..2 {
                let w = |quad: usize| vreinterpretq_s8_u8(w[4 * four + quad][r]);
                sums[r] = sdot::<0>(sums[r], w(0), x);
                sums[r] = sdot::<1>(sums[r], w(1), x);
                sums[r] = sdot::<2>(sums[r], w(2), x);
                sums[r] = sdot::<3>(sums[r], w(3), x);
            }
        }
        sums
    }
}

/// Sums for two vectors by matrix multiplication: eight columns of two rows with eight of both vectors.
///
/// # Safety
/// As for [`Lanes::dots`], with i8mm.
#[inline(always)]
unsafe fn dots2(w: &[[uint8x16_t; 2]], x: [*const i8; 2]) -> [[int32x4_t; 2]; 2] {
    // SAFETY: by contract; `w` is four quads or eight.
    unsafe {
        // Rows 0 and 2 of four, and rows 1 and 3.
        let (mut even, mut odd) = ([vdupq_n_s32(0); 2], [vdupq_n_s32(0); 2]);
        for four in 0..w.len() / 4 {
            let a = vreinterpretq_s64_s8(vld1q_s8(x[0].add(16 * four)));
            let b = vreinterpretq_s64_s8(vld1q_s8(x[1].add(16 * four)));
            let x = [
                vreinterpretq_s8_s64(vtrn1q_s64(a, b)),
                vreinterpretq_s8_s64(vtrn2q_s64(a, b)),
            ];
            for half in 0..2 {
                let quad = 4 * four + 2 * half;
                for r in 0..2 {
                    let near = vreinterpretq_s32_s8(vreinterpretq_s8_u8(w[quad][r]));
                    let far = vreinterpretq_s32_s8(vreinterpretq_s8_u8(w[quad + 1][r]));
                    let rows = vreinterpretq_s8_s32(vtrn1q_s32(near, far));
                    even[r] = smmla(even[r], rows, x[half]);
                    let rows = vreinterpretq_s8_s32(vtrn2q_s32(near, far));
                    odd[r] = smmla(odd[r], rows, x[half]);
                }
            }
        }
        [
            [vtrn1q_s32(even[0], odd[0]), vtrn1q_s32(even[1], odd[1])],
            [vtrn2q_s32(even[0], odd[0]), vtrn2q_s32(even[1], odd[1])],
        ]
    }
}

/// Widens 16-bit integers to 32 bits.
#[inline(always)]
fn widen(x: int16x8_t) -> [int32x4_t; 2] {
    // SAFETY: every 64-bit ARM processor has NEON.
    unsafe { [vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)] }
}

/// Applies an intrinsic to both registers.
macro_rules! both {
    ($call:ident($($x:expr),*)) => {
        // SAFETY: every 64-bit ARM processor has NEON.
        unsafe { [$call($($x[0]),*), $call($($x[1]),*)] }
    };
}

impl<const MATRIX: bool> Lanes for Neon<MATRIX> {
    const PANELS: usize = 1;
    const UNSIGNED: bool = false;
    type Bytes = [uint8x16_t; 2];
    type Ints = [int32x4_t; 2];
    type Floats = [float32x4_t; 2];

    unsafe fn enter<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N] {
        // SAFETY: the caller's contract.
        unsafe {
            if MATRIX {
                with_matrices(job, first)
            } else {
                with_dots(job, first)
            }
        }
    }

    #[inline(always)]
    unsafe fn bytes(at: PanelCursor) -> [uint8x16_t; 2] {
        // SAFETY: by contract.
        unsafe { [vld1q_u8(at.first()), vld1q_u8(at.first().add(16))] }
    }

    #[inline(always)]
    unsafe fn field(bytes: [uint8x16_t; 2], right: i32, mask: u8) -> [uint8x16_t; 2] {
        // SAFETY: every 64-bit ARM processor has NEON.
        let (by, mask) = unsafe { (vdupq_n_s8(-right as i8), vdupq_n_u8(mask)) };
        let moved = both!(vshlq_u8(bytes, [by; 2]));
        both!(vandq_u8(moved, [mask; 2]))
    }

    #[inline(always)]
    unsafe fn or(a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        both!(vorrq_u8(a, b))
    }

    #[inline(always)]
    unsafe fn flip(bytes: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        // SAFETY: every 64-bit ARM processor has NEON.
        let top = unsafe { vdupq_n_u8(128) };
        both!(veorq_u8(bytes, [top; 2]))
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(w: &[[uint8x16_t; 2]], x: [*const i8; N]) -> [Self::Ints; N] {
        // SAFETY: by contract.
        unsafe {
            let mut sums = [[vdupq_n_s32(0); 2]; N];
            let pairs = if MATRIX { N / 2 } else { 0 };
            for pair in 0..pairs {
                let n = 2 * pair;
                [sums[n], sums[n + 1]] = dots2(w, [x[n], x[n + 1]]);
            }
            for n in 2 * pairs..N {
                sums[n] = dots1(w, x[n]);
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn ints(at: PanelCursor) -> [int32x4_t; 2] {
        // SAFETY: by contract.
        let eight: int8x8_t = unsafe { vld1_s8(at.first().cast()) };
        // SAFETY: every 64-bit ARM processor has NEON.
        widen(unsafe { vmovl_s8(eight) })
    }

    #[inline(always)]
    unsafe fn pairs(at: PanelCursor) -> [[int32x4_t; 2]; 2] {
        // SAFETY: by contract.
        unsafe {
            let low = vmovl_s8(vld1_s8(at.first().cast()));
            let high = vmovl_s8(vld1_s8(at.first().add(8).cast()));
            [widen(vuzp1q_s16(low, high)), widen(vuzp2q_s16(low, high))]
        }
    }

    #[inline(always)]
    unsafe fn mul_add(a: [int32x4_t; 2], b: [int32x4_t; 2], c: [int32x4_t; 2]) -> Self::Ints {
        both!(vmlaq_s32(c, a, b))
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> [int32x4_t; 2] {
        // SAFETY: every 64-bit ARM processor has NEON.
        unsafe { [vdupq_n_s32(x); 2] }
    }

    #[inline(always)]
    unsafe fn load_f16(at: PanelCursor) -> [float32x4_t; 2] {
        // SAFETY: by contract.
        let eight = unsafe {
            [
                vld1_u16(at.first().cast()),
                vld1_u16(at.first().add(8).cast()),
            ]
        };
        let eight = both!(vreinterpret_f16_u16(eight));
        both!(vcvt_f32_f16(eight))
    }

    #[inline(always)]
    unsafe fn float(x: [int32x4_t; 2]) -> [float32x4_t; 2] {
        both!(vcvtq_f32_s32(x))
    }

    #[inline(always)]
    unsafe fn splat_float(x: f32) -> [float32x4_t; 2] {
        // SAFETY: every 64-bit ARM processor has NEON.
        unsafe { [vdupq_n_f32(x); 2] }
    }

    #[inline(always)]
    unsafe fn mul(a: [float32x4_t; 2], b: [float32x4_t; 2]) -> [float32x4_t; 2] {
        both!(vmulq_f32(a, b))
    }

    #[inline(always)]
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        both!(vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    unsafe fn fnma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        both!(vfmsq_f32(c, a, b))
    }

    #[inline(always)]
    unsafe fn store(x: [float32x4_t; 2], to: &mut [f32; TILE_ROWS]) {
        // SAFETY: stores eight of sixteen elements.
        unsafe {
            vst1q_f32(to.as_mut_ptr(), x[0]);
            vst1q_f32(to.as_mut_ptr().add(4), x[1]);
        }
    }
}
