//! Products of integers with panels of weights, by AVX2.
//!
//! `vpmaddubsw` multiplies unsigned weights with signed activations and adds pairs; up to eight such sums of
//! nibbles, or two of six bits, fit 16 bits, so most additions are of 16 numbers at once. Weights are unpacked
//! once for up to four vectors of activations.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are calls here, for which every register is saved"
)]
#![expect(
    unsafe_code,
    reason = "intrinsics that the level in use has, on pointers into slices whose lengths were checked"
)]

mod nested;

use std::arch::x86_64::{
    __m256, __m256i, _mm_loadu_si128, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_sign_epi8, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_storeu_ps,
};

use super::activation::{Activations, GROUP, Row, Scale};
use super::panel::HEIGHT;
use crate::quant::BlockFormat;

/// Vectors of activations that share unpacked weights: as many sums as the registers hold.
const SHARED: usize = 4;

/// Multiplies a panel with all rows of activations; `out` gets the sums of each.
pub(super) fn panel(
    format: BlockFormat,
    panel: &[u8],
    x: &Activations,
    out: impl Fn(usize, &[f32; HEIGHT]),
) {
    let mut v = 0;
    while v < x.rows() {
        // SAFETY: panels are made only where the level in use is AVX2 or above.
        let done = unsafe {
            match x.rows() - v {
                1 => some::<1>(format, panel, x, v, &out),
                2 => some::<2>(format, panel, x, v, &out),
                3 => some::<3>(format, panel, x, v, &out),
                _ => some::<SHARED>(format, panel, x, v, &out),
            }
        };
        v += done;
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn some<const N: usize>(
    format: BlockFormat,
    panel: &[u8],
    x: &Activations,
    first: usize,
    out: &impl Fn(usize, &[f32; HEIGHT]),
) -> usize {
    let rows: [Row<'_>; N] = std::array::from_fn(|i| x.row(first + i));
    let sums = match format {
        BlockFormat::Q4_0 => four_bits::<N, false>(panel, rows),
        BlockFormat::Q4_1 => four_bits::<N, true>(panel, rows),
        BlockFormat::Q8_0 => eight_bits(panel, rows),
        BlockFormat::Q5_0 => five_bits::<N, false>(panel, rows),
        BlockFormat::Q5_1 => five_bits::<N, true>(panel, rows),
        BlockFormat::Q2K => nested::two_bits(panel, rows),
        BlockFormat::Q3K => nested::three_bits(panel, rows),
        BlockFormat::Q4K => nested::four_bits(panel, rows),
        BlockFormat::Q5K => nested::five_bits(panel, rows),
        BlockFormat::Q6K => nested::six_bits(panel, rows),
    };
    for i in 0..N {
        let mut eight = [0.0; HEIGHT];
        // SAFETY: eight numbers.
        unsafe { _mm256_storeu_ps(eight.as_mut_ptr(), sums[i]) };
        out(first + i, &eight);
    }
    N
}

/// Where the activations of a row are.
#[derive(Clone, Copy)]
struct Cursor {
    q: *const i8,
    scale: *const Scale,
}

/// # Panics
/// Where a row has fewer than `groups` groups: the loops do not look.
#[inline(always)]
fn cursors<const N: usize>(rows: [Row<'_>; N], groups: usize) -> [Cursor; N] {
    rows.map(|row| {
        assert!(row.q.len() >= groups * GROUP && row.scales.len() >= groups);
        Cursor {
            q: row.q.as_ptr(),
            scale: row.scales.as_ptr(),
        }
    })
}

/// # Safety
/// 32 bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: by contract; no alignment is asked for.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// # Safety
/// 16 bytes can be read.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: by contract.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// Four activations for all lanes.
///
/// # Safety
/// Four bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four(at: *const i8) -> __m256i {
    // SAFETY: by contract.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

#[target_feature(enable = "avx2,fma,f16c")]
fn four_bits<const N: usize, const OFFSET: bool>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    let head = if OFFSET { 32 } else { 16 };
    let size = head + 128;
    let groups = panel.len() / size;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_ps(); N];
    for g in 0..groups {
        // SAFETY: block `g` lies in the panel; `cursors` checked that every row has group `g`.
        unsafe {
            let block = panel.as_ptr().add(g * size);
            let mut dots = [_mm256_setzero_si256(); N];
            for j in 0..4 {
                let [a, b] = nibbles(block.add(head), j);
                for n in 0..N {
                    let q = x[n].q.add(g * GROUP + 4 * j);
                    // At most 8 · 2 · 15 · 127 = 30,480.
                    dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(a, four(q)));
                    dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(b, four(q.add(16))));
                }
            }
            let d = halves(block);
            // What is added for every activation.
            let m = if OFFSET {
                halves(block.add(16))
            } else {
                _mm256_mul_ps(d, _mm256_set1_ps(-8.0))
            };
            for i in 0..N {
                let scale = &*x[i].scale.add(g);
                let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(dots[i], ones));
                let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                sums[i] = _mm256_fmadd_ps(dot, d, sums[i]);
                sums[i] = _mm256_fmadd_ps(m, _mm256_set1_ps(scale.sum), sums[i]);
            }
        }
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c")]
fn eight_bits<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 16 + 256;
    let groups = panel.len() / SIZE;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_ps(); N];
    for g in 0..groups {
        // SAFETY: as in `four_bits`.
        unsafe {
            let block = panel.as_ptr().add(g * SIZE);
            let mut dots = [_mm256_setzero_si256(); N];
            for j in 0..8 {
                let w = load(block.add(16 + 32 * j));
                let size = _mm256_abs_epi8(w);
                for n in 0..N {
                    // The sign goes to the activations: one factor has none. -128 · -127 stays what it is,
                    // since 128 is a size without sign.
                    let q = _mm256_sign_epi8(four(x[n].q.add(g * GROUP + 4 * j)), w);
                    let pairs = _mm256_maddubs_epi16(size, q);
                    dots[n] = _mm256_add_epi32(dots[n], _mm256_madd_epi16(pairs, ones));
                }
            }
            let d = halves(block);
            for i in 0..N {
                let scale = &*x[i].scale.add(g);
                let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                sums[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[i]), d, sums[i]);
            }
        }
    }
    sums
}

/// Four columns at places `j` and `j + 4` of eight: nibbles, and a fifth bit where there is a plane of them.
///
/// # Safety
/// 32 bytes can be read at the nibbles' place `j`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibbles(at: *const u8, j: usize) -> [__m256i; 2] {
    let low = _mm256_set1_epi8(15);
    // SAFETY: by contract.
    let both = unsafe { load(at.add(32 * j)) };
    let upper = _mm256_srli_epi16::<4>(both);
    [_mm256_and_si256(both, low), _mm256_and_si256(upper, low)]
}

/// Bits `j` and `j + 4` of every byte, as the fifth.
#[inline]
#[target_feature(enable = "avx2")]
fn fifth(bits: __m256i, j: usize) -> [__m256i; 2] {
    let mask = _mm256_set1_epi8(16);
    let (left, right) = match j {
        0 => (_mm256_slli_epi16::<4>(bits), bits),
        1 => (_mm256_slli_epi16::<3>(bits), _mm256_srli_epi16::<1>(bits)),
        2 => (_mm256_slli_epi16::<2>(bits), _mm256_srli_epi16::<2>(bits)),
        _ => (_mm256_slli_epi16::<1>(bits), _mm256_srli_epi16::<3>(bits)),
    };
    [_mm256_and_si256(left, mask), _mm256_and_si256(right, mask)]
}

/// Half of the products of a group of five bits, as 16-bit numbers: places 0 and 1, or 2 and 3.
///
/// # Safety
/// 32 bytes can be read at `bits`, 128 at `at`, and a group at every cursor's `q`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn five_bits_half<const N: usize>(
    bits: __m256i,
    at: *const u8,
    q: [*const i8; N],
    half: usize,
) -> [__m256i; N] {
    let mut dots = [_mm256_setzero_si256(); N];
    for j in 2 * half..2 * half + 2 {
        // SAFETY: by contract.
        unsafe {
            let (w, fifth) = (nibbles(at, j), fifth(bits, j));
            let a = _mm256_or_si256(w[0], fifth[0]);
            let b = _mm256_or_si256(w[1], fifth[1]);
            for n in 0..N {
                // At most 4 · 2 · 31 · 127 = 31,496.
                let q = q[n].add(4 * j);
                dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(a, four(q)));
                dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(b, four(q.add(16))));
            }
        }
    }
    dots
}

#[target_feature(enable = "avx2,fma,f16c")]
fn five_bits<const N: usize, const OFFSET: bool>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    let head = if OFFSET { 32 } else { 16 };
    let size = head + 32 + 128;
    let groups = panel.len() / size;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_ps(); N];
    for g in 0..groups {
        // SAFETY: as in `four_bits`.
        unsafe {
            let block = panel.as_ptr().add(g * size);
            let bits = load(block.add(head));
            let at = block.add(head + 32);
            let q = x.map(|x| x.q.add(g * GROUP));
            let first = five_bits_half(bits, at, q, 0);
            let second = five_bits_half(bits, at, q, 1);
            let d = halves(block);
            let m = if OFFSET {
                halves(block.add(16))
            } else {
                _mm256_mul_ps(d, _mm256_set1_ps(-16.0))
            };
            for i in 0..N {
                let scale = &*x[i].scale.add(g);
                let dot = _mm256_add_epi32(
                    _mm256_madd_epi16(first[i], ones),
                    _mm256_madd_epi16(second[i], ones),
                );
                let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                sums[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[i]);
                sums[i] = _mm256_fmadd_ps(m, _mm256_set1_ps(scale.sum), sums[i]);
            }
        }
    }
    sums
}
