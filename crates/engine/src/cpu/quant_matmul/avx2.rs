//! Products of integers with panels of weights, by AVX2.
//!
//! `vpmaddubsw` multiplies unsigned weights with signed activations and adds pairs; up to eight such sums of
//! nibbles, or two of six bits, fit 16 bits, so most additions are of 16 numbers at once. Weights are unpacked
//! once for up to four vectors of activations, and two panels are multiplied at once, so that activations are
//! spread once for both.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are calls here, for which every register is saved"
)]
#![expect(
    unsafe_code,
    reason = "intrinsics that the level in use has, on pointers into slices whose lengths were checked"
)]

pub(super) mod exact;
pub(super) mod fixed_point;
mod k_quants;

use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16,
    _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_fmadd_ps,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_sign_epi8, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_storeu_ps,
};
use std::cell::RefCell;

use super::activation::{Activations, GROUP, Row, Scale};
use super::panel::{HEIGHT, TOGETHER};
use crate::quant::BlockFormat;

/// Vectors of activations that share unpacked weights: as many sums as the registers hold.
const SHARED: usize = 4;

/// Vectors up to which memory is what is waited for: bytes come more slowly from two panels in turn.
const FEW: usize = 2;

thread_local! {
    static WIDE: RefCell<Vec<__m256i>> = const { RefCell::new(Vec::new()) };
}

/// Multiplies panels of `size` bytes with all rows of activations. `out` gets the number of a row and of a panel, and
/// the sums of that panel, and of the next one where there are so many.
pub(super) fn panels(
    format: BlockFormat,
    panels: &[u8],
    size: usize,
    x: &Activations,
    out: impl Fn(usize, usize, &[f32]),
) {
    let mut wide = WIDE.take();
    let wide_size = if format == BlockFormat::Q6K && x.is_raised() {
        size / k_quants::SIX_BITS * k_quants::WIDE_BLOCK
    } else {
        0
    };
    if wide_size > 0 {
        let len = panels.len() / size * wide_size;
        if wide.len() < len {
            // SAFETY: no bits are wrong.
            wide.resize(len, unsafe { std::mem::zeroed() });
        }
        for (panel, to) in panels
            .chunks_exact(size)
            .zip(wide.chunks_exact_mut(wide_size))
        {
            // SAFETY: panels are made only where the level in use is AVX2 or above.
            unsafe { k_quants::widen_six_bits(panel, to) };
        }
    }
    let from = Source {
        format,
        panels,
        size,
        wide: &wide,
        wide_size,
    };
    let mut v = 0;
    while v < x.rows() {
        // SAFETY: as above.
        let done = unsafe {
            match x.rows() - v {
                1 => some::<1>(&from, x, v, &out),
                2 => some::<2>(&from, x, v, &out),
                3 => some::<3>(&from, x, v, &out),
                _ => some::<SHARED>(&from, x, v, &out),
            }
        };
        v += done;
    }
    WIDE.replace(wide);
}

/// Panels of a task.
struct Source<'a> {
    format: BlockFormat,
    panels: &'a [u8],
    /// Bytes of a panel.
    size: usize,
    /// The same panels with a byte for a weight, where they were made so.
    wide: &'a [__m256i],
    /// The length of one of those, or none.
    wide_size: usize,
}

impl<'a> Source<'a> {
    #[inline(always)]
    fn panel(&self, i: usize) -> &'a [u8] {
        &self.panels[i * self.size..][..self.size]
    }

    /// Empty where there is none.
    #[inline(always)]
    fn wide(&self, i: usize) -> &'a [__m256i] {
        &self.wide[i * self.wide_size..][..self.wide_size]
    }
}

/// All panels with `N` rows: activations are in the first cache meanwhile.
#[target_feature(enable = "avx2,fma,f16c")]
fn some<const N: usize>(
    from: &Source<'_>,
    x: &Activations,
    first: usize,
    out: &impl Fn(usize, usize, &[f32]),
) -> usize {
    let rows: [Row<'_>; N] = std::array::from_fn(|i| x.row(first + i));
    let count = from.panels.len() / from.size;
    let mut at = 0;
    while N > FEW && at + TOGETHER <= count {
        let panels = [from.panel(at), from.panel(at + 1)];
        let wide = [from.wide(at), from.wide(at + 1)];
        let sums = multiply(from.format, panels, wide, &rows);
        for n in 0..N {
            let mut results = [0.0; TOGETHER * HEIGHT];
            // SAFETY: two times eight numbers.
            unsafe {
                _mm256_storeu_ps(results.as_mut_ptr(), sums[0][n]);
                _mm256_storeu_ps(results.as_mut_ptr().add(HEIGHT), sums[1][n]);
            }
            out(first + n, at, &results);
        }
        at += TOGETHER;
    }
    while at < count {
        let sums = multiply(from.format, [from.panel(at)], [from.wide(at)], &rows);
        for n in 0..N {
            let mut results = [0.0; HEIGHT];
            // SAFETY: eight numbers.
            unsafe { _mm256_storeu_ps(results.as_mut_ptr(), sums[0][n]) };
            out(first + n, at, &results);
        }
        at += 1;
    }
    N
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<const N: usize, const P: usize>(
    format: BlockFormat,
    panels: [&[u8]; P],
    wide: [&[__m256i]; P],
    rows: &[Row<'_>; N],
) -> [[__m256; N]; P] {
    match format {
        BlockFormat::Q4_0 => four_bits::<N, P, false>(panels, rows),
        BlockFormat::Q4_1 => four_bits::<N, P, true>(panels, rows),
        BlockFormat::Q8_0 => eight_bits(panels, rows),
        BlockFormat::Q5_0 => five_bits::<N, P, false>(panels, rows),
        BlockFormat::Q5_1 => five_bits::<N, P, true>(panels, rows),
        BlockFormat::Q2K => k_quants::two_bits(panels, rows),
        BlockFormat::Q3K => k_quants::three_bits(panels, rows),
        BlockFormat::Q4K => k_quants::four_bits(panels, rows),
        BlockFormat::Q5K => k_quants::five_bits(panels, rows),
        BlockFormat::Q6K if wide[0].is_empty() => k_quants::six_bits(panels, rows),
        BlockFormat::Q6K => k_quants::six_bits_wide(panels, wide, rows),
    }
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
fn cursors<const N: usize>(rows: &[Row<'_>; N], groups: usize) -> [Cursor; N] {
    let mut cursors = [Cursor {
        q: std::ptr::null(),
        scale: std::ptr::null(),
    }; N];
    for n in 0..N {
        assert!(rows[n].q.len() >= groups * GROUP && rows[n].scales.len() >= groups);
        cursors[n] = Cursor {
            q: rows[n].q.as_ptr(),
            scale: rows[n].scales.as_ptr(),
        };
    }
    cursors
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

/// A sum that is computed as it is written: the compiler would add products to each other first, and for those of
/// all vectors there are not enough registers.
#[inline]
#[target_feature(enable = "avx2")]
fn keep(mut sum: __m256i) -> __m256i {
    // SAFETY: nothing is done.
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) sum, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// `sum` and the products of four columns of weights without sign, as 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn add_products(sum: __m256i, w: __m256i, q: __m256i) -> __m256i {
    keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w, q)))
}

/// Bytes between what is multiplied and what is asked for meanwhile: some 200 ns at the speed of a core's memory.
const AHEAD: usize = 4096;

/// Asks for what is multiplied soon: few vectors are done with a block before the bytes of the next ones are there.
/// Panels follow each other; a whole panel ahead would often be one that another thread multiplies.
#[inline]
#[target_feature(enable = "avx2")]
fn fetch<const N: usize, const P: usize>(blocks: [*const u8; P], size: usize) {
    const LINE: usize = 64;
    if N <= FEW {
        for p in 0..P {
            for line in (0..size).step_by(LINE) {
                // Behind the last panel nothing is read.
                _mm_prefetch::<_MM_HINT_T0>(blocks[p].wrapping_add(AHEAD + line).cast());
            }
        }
    }
}

/// The places of panels.
#[inline(always)]
fn starts<const P: usize>(panels: [&[u8]; P]) -> ([*const u8; P], usize) {
    let len = panels[0].len();
    let mut starts = [std::ptr::null(); P];
    for p in 0..P {
        assert_eq!(panels[p].len(), len, "panels of one matrix");
        starts[p] = panels[p].as_ptr();
    }
    (starts, len)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn four_bits<const N: usize, const P: usize, const OFFSET: bool>(
    panels: [&[u8]; P],
    rows: &[Row<'_>; N],
) -> [[__m256; N]; P] {
    let head = if OFFSET { 32 } else { 16 };
    let size = head + 128;
    let (panels, len) = starts(panels);
    let groups = len / size;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for g in 0..groups {
        // SAFETY: block `g` lies in the panels; `cursors` checked that every row has group `g`.
        unsafe {
            let blocks = panels.map(|p| p.add(g * size));
            fetch::<N, P>(blocks, size);
            let dots = nibble_dots(blocks.map(|b| b.add(head)), x.map(|x| x.q.add(g * GROUP)));
            for p in 0..P {
                let d = halves(blocks[p]);
                // What is added for every activation.
                let m = if OFFSET {
                    halves(blocks[p].add(16))
                } else {
                    _mm256_mul_ps(d, _mm256_set1_ps(-8.0))
                };
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(dots[p][n], ones));
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[p][n] = _mm256_fmadd_ps(dot, d, sums[p][n]);
                    sums[p][n] = _mm256_fmadd_ps(m, _mm256_set1_ps(scale.sum), sums[p][n]);
                }
            }
        }
    }
    sums
}

/// The products of a group of nibbles, as 16-bit numbers.
///
/// # Safety
/// 128 bytes can be read at every place `at`, and a group at every `q`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibble_dots<const N: usize, const P: usize>(
    at: [*const u8; P],
    q: [*const i8; N],
) -> [[__m256i; N]; P] {
    let low = _mm256_set1_epi8(15);
    let mut dots = [[_mm256_setzero_si256(); N]; P];
    for j in 0..4 {
        let (mut both, mut w) = ([low; P], [low; P]);
        // SAFETY: by contract.
        unsafe {
            for p in 0..P {
                both[p] = load(at[p].add(32 * j));
                w[p] = _mm256_and_si256(both[p], low);
            }
            for n in 0..N {
                // At most 8 · 2 · 15 · 127 = 30,480.
                let q = four(q[n].add(4 * j));
                for p in 0..P {
                    dots[p][n] = add_products(dots[p][n], w[p], q);
                }
            }
            for p in 0..P {
                w[p] = _mm256_and_si256(_mm256_srli_epi16::<4>(both[p]), low);
            }
            for n in 0..N {
                let q = four(q[n].add(4 * j + 16));
                for p in 0..P {
                    dots[p][n] = add_products(dots[p][n], w[p], q);
                }
            }
        }
    }
    dots
}

#[target_feature(enable = "avx2,fma,f16c")]
fn eight_bits<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    rows: &[Row<'_>; N],
) -> [[__m256; N]; P] {
    const SIZE: usize = 16 + 256;
    let (panels, len) = starts(panels);
    let groups = len / SIZE;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for g in 0..groups {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(g * SIZE));
            fetch::<N, P>(blocks, SIZE);
            let mut dots = [[_mm256_setzero_si256(); N]; P];
            for j in 0..8 {
                let mut w = [ones; P];
                for p in 0..P {
                    w[p] = load(blocks[p].add(16 + 32 * j));
                }
                for n in 0..N {
                    let q = four(x[n].q.add(g * GROUP + 4 * j));
                    for p in 0..P {
                        // The sign goes to the activations: one factor has none. -128 · -127 stays what it is,
                        // since 128 is a size without sign.
                        let pairs =
                            _mm256_maddubs_epi16(_mm256_abs_epi8(w[p]), _mm256_sign_epi8(q, w[p]));
                        let pairs = _mm256_madd_epi16(pairs, ones);
                        dots[p][n] = keep(_mm256_add_epi32(dots[p][n], pairs));
                    }
                }
            }
            for p in 0..P {
                let d = halves(blocks[p]);
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[p][n]), d, sums[p][n]);
                }
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
/// 128 bytes can be read at every place `at`, and a group at every `q`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn five_bits_half<const N: usize, const P: usize>(
    bits: [__m256i; P],
    at: [*const u8; P],
    q: [*const i8; N],
    half: usize,
) -> [[__m256i; N]; P] {
    let mut dots = [[_mm256_setzero_si256(); N]; P];
    for j in 2 * half..2 * half + 2 {
        // SAFETY: by contract.
        unsafe {
            let mut w = [[_mm256_setzero_si256(); 2]; P];
            for p in 0..P {
                let (low, fifth) = (nibbles(at[p], j), fifth(bits[p], j));
                w[p][0] = _mm256_or_si256(low[0], fifth[0]);
                w[p][1] = _mm256_or_si256(low[1], fifth[1]);
            }
            for side in 0..2 {
                for n in 0..N {
                    // At most 4 · 2 · 31 · 127 = 31,496.
                    let q = four(q[n].add(4 * j + 16 * side));
                    for p in 0..P {
                        dots[p][n] = add_products(dots[p][n], w[p][side], q);
                    }
                }
            }
        }
    }
    dots
}

#[target_feature(enable = "avx2,fma,f16c")]
fn five_bits<const N: usize, const P: usize, const OFFSET: bool>(
    panels: [&[u8]; P],
    rows: &[Row<'_>; N],
) -> [[__m256; N]; P] {
    let head = if OFFSET { 32 } else { 16 };
    let size = head + 32 + 128;
    let (panels, len) = starts(panels);
    let groups = len / size;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for g in 0..groups {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(g * size));
            fetch::<N, P>(blocks, size);
            let mut bits = [ones; P];
            for p in 0..P {
                bits[p] = load(blocks[p].add(head));
            }
            let at = blocks.map(|b| b.add(head + 32));
            let q = x.map(|x| x.q.add(g * GROUP));
            let first = five_bits_half(bits, at, q, 0);
            let second = five_bits_half(bits, at, q, 1);
            for p in 0..P {
                let d = halves(blocks[p]);
                let m = if OFFSET {
                    halves(blocks[p].add(16))
                } else {
                    _mm256_mul_ps(d, _mm256_set1_ps(-16.0))
                };
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let dot = _mm256_add_epi32(
                        _mm256_madd_epi16(first[p][n], ones),
                        _mm256_madd_epi16(second[p][n], ones),
                    );
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[p][n]);
                    sums[p][n] = _mm256_fmadd_ps(m, _mm256_set1_ps(scale.sum), sums[p][n]);
                }
            }
        }
    }
    sums
}
