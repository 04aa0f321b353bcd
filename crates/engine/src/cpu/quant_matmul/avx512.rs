//! Integer kernels for AVX-512 with VNNI: two panels in 512-bit registers, or one in 256-bit registers.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are calls here, for which every register is saved"
)]
#![expect(
    unsafe_code,
    reason = "instructions that the caller detected, on pointers into slices whose lengths were checked"
)]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, __m512, __m512i, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_unpacklo_epi64, _mm256_add_epi32, _mm256_and_si256, _mm256_castsi128_si256,
    _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps,
    _mm256_dpbusd_epi32, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_inserti128_si256,
    _mm256_loadu_si256, _mm256_mul_ps, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256, _mm256_sll_epi16, _mm256_slli_epi32,
    _mm256_srai_epi32, _mm256_srl_epi16, _mm256_storeu_ps, _mm256_xor_si256, _mm512_add_epi32,
    _mm512_and_si512, _mm512_castsi256_si512, _mm512_cvtepi8_epi16, _mm512_cvtepi32_ps,
    _mm512_cvtepu8_epi32, _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_inserti64x4, _mm512_mul_ps, _mm512_mullo_epi32, _mm512_or_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_sll_epi16, _mm512_slli_epi32,
    _mm512_srai_epi32, _mm512_srl_epi16, _mm512_storeu_ps, _mm512_xor_si512,
};

use super::activation::Activations;
use super::dot::{self, Lanes, PanelCursor, PanelJob, TILE_ROWS};
use crate::cpu::simd::Features;
use crate::quant::BlockFormat;

/// Multiplies panels, as [`dot::multiply`] does.
///
/// # Panics
/// If the processor lacks the instructions.
pub(super) fn multiply(
    format: BlockFormat,
    panels: &[u8],
    size: usize,
    x: &Activations,
    out: impl Fn(usize, usize, &[f32]),
) {
    assert!(Features::Avx512Vnni.is_available(), "no VNNI");
    // SAFETY: the features were checked above.
    unsafe {
        if x.rows() <= MAX_STREAMED_ROWS && x.len() <= MAX_STREAMED_LEN {
            dot::multiply::<Vnni256>(format, panels, size, x, out);
        } else {
            dot::multiply::<Vnni>(format, panels, size, x, out);
        }
    }
}

/// Maximum rows and elements of activations for which one panel is multiplied at a time. So few rows are limited by memory
/// bandwidth, and consecutive panels are one sequential stream: with 1,536 columns of `Q4_K`, Zen 4 reads 31 GB/s instead
/// of 17 for one row, and 16 instead of 13 for four. More activations than these do not fit the L1 cache, where two
/// panels share what is read of them: with 8,960 columns two panels are faster from two rows on, 22 against 17 GB/s.
const MAX_STREAMED_ROWS: usize = 4;
const MAX_STREAMED_LEN: usize = 12 << 10;

/// The rows of two panels in 512-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Vnni;

/// Loads 16 bytes of both panels.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn sixteen(at: PanelCursor) -> __m256i {
    // SAFETY: by contract; no alignment is required.
    unsafe {
        let first: __m128i = _mm_loadu_si128(at.first().cast());
        let second = _mm_loadu_si128(at.second().cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(first), second)
    }
}

impl Lanes for Vnni {
    const PANELS: usize = 2;
    const MAX_SHARED_ROWS: usize = 8;
    const UNSIGNED: bool = true;
    type Bytes = __m512i;
    type Ints = __m512i;
    type Floats = __m512;

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
    )]
    unsafe fn enter<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N] {
        // SAFETY: the caller's contract.
        unsafe { dot::multiply_rows::<Self, N>(job, first) }
    }

    #[inline(always)]
    unsafe fn bytes(at: PanelCursor) -> __m512i {
        // SAFETY: by contract.
        unsafe {
            let first = _mm256_loadu_si256(at.first().cast());
            let second = _mm256_loadu_si256(at.second().cast());
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second)
        }
    }

    #[inline(always)]
    unsafe fn field(bytes: __m512i, right: i32, mask: u8) -> __m512i {
        // SAFETY: by contract.
        unsafe {
            let by = _mm_cvtsi32_si128(right.abs());
            let moved = if right < 0 {
                _mm512_sll_epi16(bytes, by)
            } else {
                _mm512_srl_epi16(bytes, by)
            };
            _mm512_and_si512(moved, _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: by contract.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn flip(bytes: __m512i) -> __m512i {
        // SAFETY: by contract.
        unsafe { _mm512_xor_si512(bytes, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(w: &[__m512i], x: [*const i8; N]) -> [__m512i; N] {
        // SAFETY: by contract.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); N];
            for quad in 0..w.len() {
                for n in 0..N {
                    let four = x[n].add(4 * quad).cast::<i32>().read_unaligned();
                    sums[n] = _mm512_dpbusd_epi32(sums[n], w[quad], _mm512_set1_epi32(four));
                }
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn ints(at: PanelCursor) -> __m512i {
        // SAFETY: by contract.
        unsafe {
            let first = _mm_loadl_epi64(at.first().cast());
            let second = _mm_loadl_epi64(at.second().cast());
            _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(first, second))
        }
    }

    #[inline(always)]
    unsafe fn pairs(at: PanelCursor) -> [__m512i; 2] {
        // SAFETY: by contract.
        unsafe {
            let pairs = _mm512_cvtepi8_epi16(sixteen(at));
            [
                _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(pairs)),
                _mm512_srai_epi32::<16>(pairs),
            ]
        }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: by contract.
        unsafe { _mm512_add_epi32(_mm512_mullo_epi32(a, b), c) }
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> __m512i {
        // SAFETY: by contract.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: PanelCursor) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_cvtph_ps(sixteen(at)) }
    }

    #[inline(always)]
    unsafe fn float(x: __m512i) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    unsafe fn splat_float(x: f32) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: by contract.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn store(x: __m512, to: &mut [f32; TILE_ROWS]) {
        // SAFETY: by contract; sixteen numbers.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }
}

/// The rows of one panel in 256-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Vnni256;

impl Lanes for Vnni256 {
    const PANELS: usize = 1;
    const UNSIGNED: bool = true;
    type Bytes = __m256i;
    type Ints = __m256i;
    type Floats = __m256;

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
    )]
    unsafe fn enter<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N] {
        // SAFETY: the caller's contract.
        unsafe { dot::multiply_rows::<Self, N>(job, first) }
    }

    #[inline(always)]
    unsafe fn bytes(at: PanelCursor) -> __m256i {
        // SAFETY: by contract.
        unsafe { _mm256_loadu_si256(at.first().cast()) }
    }

    #[inline(always)]
    unsafe fn field(bytes: __m256i, right: i32, mask: u8) -> __m256i {
        // SAFETY: by contract.
        unsafe {
            let by = _mm_cvtsi32_si128(right.abs());
            let moved = if right < 0 {
                _mm256_sll_epi16(bytes, by)
            } else {
                _mm256_srl_epi16(bytes, by)
            };
            _mm256_and_si256(moved, _mm256_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: by contract.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn flip(bytes: __m256i) -> __m256i {
        // SAFETY: by contract.
        unsafe { _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)) }
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(w: &[__m256i], x: [*const i8; N]) -> [__m256i; N] {
        // SAFETY: by contract.
        unsafe {
            let mut sums = [_mm256_setzero_si256(); N];
            for quad in 0..w.len() {
                for n in 0..N {
                    let four = x[n].add(4 * quad).cast::<i32>().read_unaligned();
                    sums[n] = _mm256_dpbusd_epi32(sums[n], w[quad], _mm256_set1_epi32(four));
                }
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn ints(at: PanelCursor) -> __m256i {
        // SAFETY: by contract.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.first().cast())) }
    }

    #[inline(always)]
    unsafe fn pairs(at: PanelCursor) -> [__m256i; 2] {
        // SAFETY: by contract.
        unsafe {
            let pairs = _mm256_cvtepi8_epi16(_mm_loadu_si128(at.first().cast()));
            [
                _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(pairs)),
                _mm256_srai_epi32::<16>(pairs),
            ]
        }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // SAFETY: by contract.
        unsafe { _mm256_add_epi32(_mm256_mullo_epi32(a, b), c) }
    }

    #[inline(always)]
    unsafe fn splat(x: i32) -> __m256i {
        // SAFETY: by contract.
        unsafe { _mm256_set1_epi32(x) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: PanelCursor) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.first().cast())) }
    }

    #[inline(always)]
    unsafe fn float(x: __m256i) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_cvtepi32_ps(x) }
    }

    #[inline(always)]
    unsafe fn splat_float(x: f32) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: by contract.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn store(x: __m256, to: &mut [f32; TILE_ROWS]) {
        // SAFETY: by contract; eight numbers of sixteen.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
    }
}
