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

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_abs_epi8, _mm256_add_epi16,
    _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_sign_epi8, _mm256_slli_epi16, _mm256_slli_epi32, _mm256_srli_epi16, _mm256_srli_epi32,
    _mm256_storeu_ps, _mm256_sub_epi32,
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
        BlockFormat::Q4K => four_bits_nested(panel, rows),
        BlockFormat::Q6K => six_bits_nested(panel, rows),
        _ => unreachable!("not arranged"),
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
    let low = _mm256_set1_epi8(15);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_ps(); N];
    for g in 0..groups {
        // SAFETY: block `g` lies in the panel; `cursors` checked that every row has group `g`.
        unsafe {
            let block = panel.as_ptr().add(g * size);
            let mut dots = [_mm256_setzero_si256(); N];
            for j in 0..4 {
                let both = load(block.add(head + 32 * j));
                let a = _mm256_and_si256(both, low);
                let b = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
                for n in 0..N {
                    let q = x[n].q.add(g * GROUP + 4 * j);
                    // At most 8 · 2 · 15 · 127 = 30,480.
                    dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(a, four(q)));
                    dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(b, four(q.add(16))));
                }
            }
            let d = halves(block);
            for i in 0..N {
                let scale = &*x[i].scale.add(g);
                let mut dot = _mm256_madd_epi16(dots[i], ones);
                if !OFFSET {
                    dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(8 * scale.count));
                }
                let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                sums[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[i]);
                if OFFSET {
                    let m = halves(block.add(16));
                    sums[i] = _mm256_fmadd_ps(m, _mm256_set1_ps(scale.sum), sums[i]);
                }
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

#[target_feature(enable = "avx2,fma,f16c")]
fn four_bits_nested<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 32 + 128 + 1024;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let low = _mm256_set1_epi8(15);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`, with eight groups a block.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let (d, m) = (halves(block), halves(block.add(16)));
            for i in 0..8 {
                let g = b * 8 + i;
                let mut dots = [_mm256_setzero_si256(); N];
                for j in 0..4 {
                    let both = load(block.add(160 + 128 * i + 32 * j));
                    let a = _mm256_and_si256(both, low);
                    let b = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
                    for n in 0..N {
                        let q = x[n].q.add(g * GROUP + 4 * j);
                        dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(a, four(q)));
                        dots[n] =
                            _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(b, four(q.add(16))));
                    }
                }
                let eight = |at: usize| _mm256_cvtepu8_epi32(_mm_loadl_epi64(block.add(at).cast()));
                let s = eight(32 + 8 * i);
                // The scale of a row for both sums of it.
                let s = _mm256_or_si256(s, _mm256_slli_epi32::<16>(s));
                let o = _mm256_mul_ps(m, _mm256_cvtepi32_ps(eight(96 + 8 * i)));
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(dots[n], s));
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[n] = _mm256_fmadd_ps(dot, d, sums[n]);
                    sums[n] = _mm256_fnmadd_ps(o, _mm256_set1_ps(scale.sum), sums[n]);
                }
            }
        }
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c")]
fn six_bits_nested<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 16 + 128 + 8 * 192;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let low = _mm256_set1_epi8(15);
    let high = _mm256_set1_epi8(0x30);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: as in `four_bits_nested`.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let d = halves(block);
            for i in 0..8 {
                let g = b * 8 + i;
                let group = block.add(144 + 192 * i);
                // Of every row the scales of both halves, as 16 bits.
                let scales: __m128i = _mm_loadu_si128(block.add(16 + 16 * i).cast());
                let pairs = _mm256_cvtepi8_epi16(scales);
                let first = _mm256_slli_epi32::<16>(pairs);
                let first = _mm256_or_si256(first, _mm256_srli_epi32::<16>(first));
                let second = _mm256_srli_epi32::<16>(pairs);
                let second = _mm256_or_si256(second, _mm256_slli_epi32::<16>(second));
                let mut dots = [_mm256_setzero_si256(); N];
                // Places j and j + 8 of the low bits share upper bits.
                for j in 0..2 {
                    let upper = load(group.add(128 + 32 * j));
                    let bits = [
                        _mm256_and_si256(_mm256_slli_epi16::<4>(upper), high),
                        _mm256_and_si256(_mm256_slli_epi16::<2>(upper), high),
                        _mm256_and_si256(upper, high),
                        _mm256_and_si256(_mm256_srli_epi16::<2>(upper), high),
                    ];
                    let (near, far) = (load(group.add(32 * j)), load(group.add(64 + 32 * j)));
                    let upper = |v| _mm256_and_si256(_mm256_srli_epi16::<4>(v), low);
                    let w = [
                        _mm256_or_si256(_mm256_and_si256(near, low), bits[0]),
                        _mm256_or_si256(_mm256_and_si256(far, low), bits[1]),
                        _mm256_or_si256(upper(near), bits[2]),
                        _mm256_or_si256(upper(far), bits[3]),
                    ];
                    for n in 0..N {
                        let q = x[n].q.add(g * GROUP + 4 * j);
                        let at = |k: usize| _mm256_maddubs_epi16(w[k], four(q.add(8 * k)));
                        // At most 2 · 2 · 63 · 127 = 32,004.
                        let a = _mm256_madd_epi16(_mm256_add_epi16(at(0), at(1)), first);
                        let b = _mm256_madd_epi16(_mm256_add_epi16(at(2), at(3)), second);
                        dots[n] = _mm256_add_epi32(dots[n], _mm256_add_epi32(a, b));
                    }
                }
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let counts = (&raw const scale.halves).cast::<i32>().read_unaligned();
                    let off = _mm256_madd_epi16(pairs, _mm256_set1_epi32(counts));
                    let dot = _mm256_sub_epi32(dots[n], _mm256_slli_epi32::<5>(off));
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[n]);
                }
            }
        }
    }
    sums
}
