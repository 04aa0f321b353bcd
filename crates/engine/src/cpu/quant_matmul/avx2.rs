//! Integer kernels on panels for AVX2.
//!
//! `vpmaddubsw` multiplies unsigned weights with signed activations and adds pairs; up to eight such sums of nibbles, or
//! two of six bits, fit 16 bits, so most additions are of 16 lanes. Weights are unpacked once for up to four activation
//! rows, and two panels are multiplied at a time, so that activations are broadcast once for both.
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

use super::activation::{ActivationRow, Activations, GROUP_LEN, Scale};
use super::panel::{PANEL_ROWS, TILE_PANELS};
use crate::cache_line::CACHE_LINE_BYTES;
use crate::quant::BlockFormat;

/// Maximum activation rows that share unpacked weights: as many as there are registers for the sums.
const MAX_SHARED_ROWS: usize = 4;

/// Maximum activation rows limited by memory bandwidth, which is lower for two interleaved panels.
const MAX_STREAMED_ROWS: usize = 2;

thread_local! {
    static MERGED: RefCell<Vec<__m256i>> = const { RefCell::new(Vec::new()) };
}

/// Multiplies panels of `size` bytes with all rows of activations. Calls `out` with the index of an activation row, the
/// index of the first panel, and the sums of one or two panels.
pub(super) fn panels(
    format: BlockFormat,
    panels: &[u8],
    size: usize,
    x: &Activations,
    out: impl Fn(usize, usize, &[f32]),
) {
    let mut merged = MERGED.take();
    let merged_len = if format == BlockFormat::Q6K && x.has_biased() {
        size / k_quants::Q6_K_PANEL_BLOCK_BYTES * k_quants::MERGED_BLOCK_REGISTERS
    } else {
        0
    };
    if merged_len > 0 {
        let len = panels.len() / size * merged_len;
        if merged.len() < len {
            // SAFETY: all bit patterns are valid.
            merged.resize(len, unsafe { std::mem::zeroed() });
        }
        for (panel, to) in panels
            .chunks_exact(size)
            .zip(merged.chunks_exact_mut(merged_len))
        {
            // SAFETY: panels are made only if the level in use is AVX2 or above.
            unsafe { k_quants::merge_six_bits(panel, to) };
        }
    }
    let from = TaskPanels {
        format,
        panels,
        size,
        merged: &merged,
        merged_len,
    };
    let mut v = 0;
    while v < x.rows() {
        // SAFETY: as above.
        let done = unsafe {
            match x.rows() - v {
                1 => multiply_rows::<1>(&from, x, v, &out),
                2 => multiply_rows::<2>(&from, x, v, &out),
                3 => multiply_rows::<3>(&from, x, v, &out),
                _ => multiply_rows::<MAX_SHARED_ROWS>(&from, x, v, &out),
            }
        };
        v += done;
    }
    MERGED.replace(merged);
}

/// The panels of a task.
struct TaskPanels<'a> {
    format: BlockFormat,
    panels: &'a [u8],
    /// Size of a panel in bytes.
    size: usize,
    /// The same panels with one byte per weight, if they were merged.
    merged: &'a [__m256i],
    /// Length of a merged panel, or 0.
    merged_len: usize,
}

impl<'a> TaskPanels<'a> {
    #[inline(always)]
    fn panel(&self, i: usize) -> &'a [u8] {
        &self.panels[i * self.size..][..self.size]
    }

    /// Empty if the panels were not merged.
    #[inline(always)]
    fn merged(&self, i: usize) -> &'a [__m256i] {
        &self.merged[i * self.merged_len..][..self.merged_len]
    }
}

/// Multiplies all panels with `N` activation rows, which stay in the L1 cache.
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply_rows<const N: usize>(
    from: &TaskPanels<'_>,
    x: &Activations,
    first: usize,
    out: &impl Fn(usize, usize, &[f32]),
) -> usize {
    let rows: [ActivationRow<'_>; N] = std::array::from_fn(|i| x.row(first + i));
    let count = from.panels.len() / from.size;
    let mut at = 0;
    while N > MAX_STREAMED_ROWS && at + TILE_PANELS <= count {
        let panels = [from.panel(at), from.panel(at + 1)];
        let merged = [from.merged(at), from.merged(at + 1)];
        let sums = multiply(from.format, panels, merged, &rows);
        for n in 0..N {
            let mut results = [0.0; TILE_PANELS * PANEL_ROWS];
            // SAFETY: stores two times eight elements.
            unsafe {
                _mm256_storeu_ps(results.as_mut_ptr(), sums[0][n]);
                _mm256_storeu_ps(results.as_mut_ptr().add(PANEL_ROWS), sums[1][n]);
            }
            out(first + n, at, &results);
        }
        at += TILE_PANELS;
    }
    while at < count {
        let sums = multiply(from.format, [from.panel(at)], [from.merged(at)], &rows);
        for n in 0..N {
            let mut results = [0.0; PANEL_ROWS];
            // SAFETY: stores eight elements.
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
    merged: [&[__m256i]; P],
    rows: &[ActivationRow<'_>; N],
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
        BlockFormat::Q6K if merged[0].is_empty() => k_quants::six_bits(panels, rows),
        BlockFormat::Q6K => k_quants::six_bits_merged(panels, merged, rows),
    }
}

/// Pointers to the activations of a row.
#[derive(Clone, Copy)]
struct ActivationCursor {
    q: *const i8,
    scale: *const Scale,
}

/// # Panics
/// If a row has fewer than `groups` groups, since the loops do not check.
#[inline(always)]
fn cursors<const N: usize>(rows: &[ActivationRow<'_>; N], groups: usize) -> [ActivationCursor; N] {
    let mut cursors = [ActivationCursor {
        q: std::ptr::null(),
        scale: std::ptr::null(),
    }; N];
    for n in 0..N {
        assert!(rows[n].q.len() >= groups * GROUP_LEN && rows[n].scales.len() >= groups);
        cursors[n] = ActivationCursor {
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
    // SAFETY: by contract; no alignment is required.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// # Safety
/// 16 bytes can be read.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn load_f16(at: *const u8) -> __m256 {
    // SAFETY: by contract.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// Broadcasts four activations to all lanes.
///
/// # Safety
/// Four bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn broadcast4(at: *const i8) -> __m256i {
    // SAFETY: by contract.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// Keeps the compiler from reassociating a sum: it would add the products first, and there are not enough registers for
/// those of all rows.
#[inline]
#[target_feature(enable = "avx2")]
fn keep(mut sum: __m256i) -> __m256i {
    // SAFETY: the assembly is empty.
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) sum, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// `sum` plus the dot products of four columns of unsigned weights, as 16-bit integers.
#[inline]
#[target_feature(enable = "avx2")]
fn add_products(sum: __m256i, w: __m256i, q: __m256i) -> __m256i {
    keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w, q)))
}

/// Prefetch distance in bytes: about 200 ns at the memory bandwidth of one core.
const PREFETCH_BYTES: usize = 4096;

/// Prefetches weights: with few activation rows, a block is done before the next one has arrived. Follows the address
/// order; a whole panel ahead would often be one that another thread multiplies.
#[inline]
#[target_feature(enable = "avx2")]
fn prefetch<const N: usize, const P: usize>(blocks: [*const u8; P], size: usize) {
    if N <= MAX_STREAMED_ROWS {
        for p in 0..P {
            for line in (0..size).step_by(CACHE_LINE_BYTES) {
                // Past the last panel this has no effect.
                _mm_prefetch::<_MM_HINT_T0>(blocks[p].wrapping_add(PREFETCH_BYTES + line).cast());
            }
        }
    }
}

/// Pointers to panels, and the length of each.
#[inline(always)]
fn panel_pointers<const P: usize>(panels: [&[u8]; P]) -> ([*const u8; P], usize) {
    let len = panels[0].len();
    let mut pointers = [std::ptr::null(); P];
    for p in 0..P {
        assert_eq!(panels[p].len(), len, "panels differ in length");
        pointers[p] = panels[p].as_ptr();
    }
    (pointers, len)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn four_bits<const N: usize, const P: usize, const OFFSET: bool>(
    panels: [&[u8]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    let head = if OFFSET { 32 } else { 16 };
    let size = head + 128;
    let (panels, len) = panel_pointers(panels);
    let groups = len / size;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for g in 0..groups {
        // SAFETY: block `g` is inside the panels; `cursors` checked that every row has group `g`.
        unsafe {
            let blocks = panels.map(|p| p.add(g * size));
            prefetch::<N, P>(blocks, size);
            let dots = nibble_dots(
                blocks.map(|b| b.add(head)),
                x.map(|x| x.q.add(g * GROUP_LEN)),
            );
            for p in 0..P {
                let d = load_f16(blocks[p]);
                // The offset, to multiply with the sum of the activations.
                let m = if OFFSET {
                    load_f16(blocks[p].add(16))
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

/// The dot products of a group of nibbles, as 16-bit integers.
///
/// # Safety
/// 128 bytes can be read at every `at`, and a group at every `q`.
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
                let q = broadcast4(q[n].add(4 * j));
                for p in 0..P {
                    dots[p][n] = add_products(dots[p][n], w[p], q);
                }
            }
            for p in 0..P {
                w[p] = _mm256_and_si256(_mm256_srli_epi16::<4>(both[p]), low);
            }
            for n in 0..N {
                let q = broadcast4(q[n].add(4 * j + 16));
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
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    const BLOCK_BYTES: usize = 16 + 256;
    let (panels, len) = panel_pointers(panels);
    let groups = len / BLOCK_BYTES;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for g in 0..groups {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(g * BLOCK_BYTES));
            prefetch::<N, P>(blocks, BLOCK_BYTES);
            let mut dots = [[_mm256_setzero_si256(); N]; P];
            for j in 0..8 {
                let mut w = [ones; P];
                for p in 0..P {
                    w[p] = load(blocks[p].add(16 + 32 * j));
                }
                for n in 0..N {
                    let q = broadcast4(x[n].q.add(g * GROUP_LEN + 4 * j));
                    for p in 0..P {
                        // Moves the sign to the activations, so that one factor is unsigned. -128 · -127 is
                        // correct, since the magnitude 128 fits an unsigned byte.
                        let pairs =
                            _mm256_maddubs_epi16(_mm256_abs_epi8(w[p]), _mm256_sign_epi8(q, w[p]));
                        let pairs = _mm256_madd_epi16(pairs, ones);
                        dots[p][n] = keep(_mm256_add_epi32(dots[p][n], pairs));
                    }
                }
            }
            for p in 0..P {
                let d = load_f16(blocks[p]);
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

/// Unpacks quads `j` and `j + 4` of eight, four columns each, from nibbles.
///
/// # Safety
/// 32 bytes can be read at quad `j`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibbles(at: *const u8, j: usize) -> [__m256i; 2] {
    let low = _mm256_set1_epi8(15);
    // SAFETY: by contract.
    let both = unsafe { load(at.add(32 * j)) };
    let upper = _mm256_srli_epi16::<4>(both);
    [_mm256_and_si256(both, low), _mm256_and_si256(upper, low)]
}

/// Bits `j` and `j + 4` of every byte, moved to bit 4.
#[inline]
#[target_feature(enable = "avx2")]
fn fifth_bits(bits: __m256i, j: usize) -> [__m256i; 2] {
    let mask = _mm256_set1_epi8(16);
    let (left, right) = match j {
        0 => (_mm256_slli_epi16::<4>(bits), bits),
        1 => (_mm256_slli_epi16::<3>(bits), _mm256_srli_epi16::<1>(bits)),
        2 => (_mm256_slli_epi16::<2>(bits), _mm256_srli_epi16::<2>(bits)),
        _ => (_mm256_slli_epi16::<1>(bits), _mm256_srli_epi16::<3>(bits)),
    };
    [_mm256_and_si256(left, mask), _mm256_and_si256(right, mask)]
}

/// Half of the dot products of a 5-bit group, as 16-bit integers: quads 0 and 1, or 2 and 3, and those four further.
///
/// # Safety
/// 128 bytes can be read at every `at`, and a group at every `q`.
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
                let (low, fifth) = (nibbles(at[p], j), fifth_bits(bits[p], j));
                w[p][0] = _mm256_or_si256(low[0], fifth[0]);
                w[p][1] = _mm256_or_si256(low[1], fifth[1]);
            }
            for side in 0..2 {
                for n in 0..N {
                    // At most 4 · 2 · 31 · 127 = 31,496.
                    let q = broadcast4(q[n].add(4 * j + 16 * side));
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
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    let head = if OFFSET { 32 } else { 16 };
    let size = head + 32 + 128;
    let (panels, len) = panel_pointers(panels);
    let groups = len / size;
    let x = cursors(rows, groups);
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for g in 0..groups {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(g * size));
            prefetch::<N, P>(blocks, size);
            let mut bits = [ones; P];
            for p in 0..P {
                bits[p] = load(blocks[p].add(head));
            }
            let at = blocks.map(|b| b.add(head + 32));
            let q = x.map(|x| x.q.add(g * GROUP_LEN));
            let first = five_bits_half(bits, at, q, 0);
            let second = five_bits_half(bits, at, q, 1);
            for p in 0..P {
                let d = load_f16(blocks[p]);
                let m = if OFFSET {
                    load_f16(blocks[p].add(16))
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
