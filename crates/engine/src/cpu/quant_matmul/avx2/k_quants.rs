//! Integer kernels on panels of K-quants for AVX2.
#![expect(
    unsafe_code,
    reason = "intrinsics that the level in use has, on pointers into slices whose lengths were checked"
)]

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_and_si256, _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi16,
    _mm256_cvtepu8_epi32, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_slli_epi32,
    _mm256_srli_epi16, _mm256_srli_epi32, _mm256_sub_epi8, _mm256_sub_epi16, _mm256_sub_epi32,
};

use super::super::activation::{ActivationRow, GROUP_LEN, Scale};
use super::{
    add_products, broadcast4, cursors, five_bits_half, keep, load, load_f16, nibble_dots,
    panel_pointers, prefetch,
};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn four_bits<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    const BLOCK_BYTES: usize = 32 + 128 + 1024;
    let (panels, len) = panel_pointers(panels);
    let blocks = len / BLOCK_BYTES;
    let x = cursors(rows, blocks * 8);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for b in 0..blocks {
        // SAFETY: block `b` is inside the panels; `cursors` checked that every row has its eight groups.
        unsafe {
            let blocks = panels.map(|p| p.add(b * BLOCK_BYTES));
            let (mut d, mut m) = ([_mm256_setzero_ps(); P], [_mm256_setzero_ps(); P]);
            for p in 0..P {
                d[p] = load_f16(blocks[p]);
                m[p] = load_f16(blocks[p].add(16));
            }
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch::<N, P>(blocks.map(|b| b.add(BLOCK_BYTES / 8 * i)), BLOCK_BYTES / 8);
                let q = x.map(|x| x.q.add(g * GROUP_LEN));
                let dots = nibble_dots(blocks.map(|b| b.add(160 + 128 * i)), q);
                for p in 0..P {
                    let (s, o) = scales(blocks[p], i);
                    let o = _mm256_mul_ps(m[p], o);
                    for n in 0..N {
                        let scale = &*x[n].scale.add(g);
                        let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(dots[p][n], s));
                        let d = _mm256_mul_ps(d[p], _mm256_set1_ps(scale.d));
                        sums[p][n] = _mm256_fmadd_ps(dot, d, sums[p][n]);
                        sums[p][n] = _mm256_fnmadd_ps(o, _mm256_set1_ps(scale.sum), sums[p][n]);
                    }
                }
            }
        }
    }
    sums
}

/// Size in bytes of a block of eight rows of `Q6_K`.
pub(super) const Q6_K_PANEL_BLOCK_BYTES: usize = 16 + 128 + 8 * 192;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn six_bits<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    const BLOCK_BYTES: usize = Q6_K_PANEL_BLOCK_BYTES;
    let (panels, len) = panel_pointers(panels);
    let blocks = len / BLOCK_BYTES;
    let x = cursors(rows, blocks * 8);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(b * BLOCK_BYTES));
            let mut d = [_mm256_setzero_ps(); P];
            for p in 0..P {
                d[p] = load_f16(blocks[p]);
            }
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch::<N, P>(blocks.map(|b| b.add(BLOCK_BYTES / 8 * i)), BLOCK_BYTES / 8);
                let mut scales = [[_mm256_setzero_si256(); 2]; P];
                let mut dots = [[_mm256_setzero_si256(); N]; P];
                for p in 0..P {
                    // The scales of both half groups of every row, as 16-bit integers.
                    let pairs = _mm256_cvtepi8_epi16(load16(blocks[p].add(16 + 16 * i)));
                    scales[p] = split_pairs(pairs);
                    // The zero point of 32 times the sums of the activations in both half groups.
                    let off = _mm256_slli_epi16::<5>(pairs);
                    let off = _mm256_sub_epi16(_mm256_setzero_si256(), off);
                    for n in 0..N {
                        dots[p][n] = _mm256_madd_epi16(off, half_sums(x[n].scale.add(g)));
                    }
                }
                let groups = blocks.map(|b| b.add(144 + 192 * i));
                for j in 0..2 {
                    let mut w = [[_mm256_setzero_si256(); 4]; P];
                    for p in 0..P {
                        w[p] = six_bits_at(groups[p], j);
                    }
                    for half in 0..2 {
                        for n in 0..N {
                            let q = x[n].q.add(g * GROUP_LEN + 4 * j + 16 * half);
                            let (near, far) = (broadcast4(q), broadcast4(q.add(8)));
                            for p in 0..P {
                                // At most 2 · 2 · 63 · 127 = 32,004.
                                let pairs = _mm256_add_epi16(
                                    _mm256_maddubs_epi16(w[p][2 * half], near),
                                    _mm256_maddubs_epi16(w[p][2 * half + 1], far),
                                );
                                let products = _mm256_madd_epi16(pairs, scales[p][half]);
                                dots[p][n] = keep(_mm256_add_epi32(dots[p][n], products));
                            }
                        }
                    }
                }
                for p in 0..P {
                    for n in 0..N {
                        let scale = &*x[n].scale.add(g);
                        let d = _mm256_mul_ps(d[p], _mm256_set1_ps(scale.d));
                        sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[p][n]), d, sums[p][n]);
                    }
                }
            }
        }
    }
    sums
}

/// Registers of a merged group of eight rows of `Q6_K`, which needs no further unpacking: eight of signed weights, four
/// columns each, two with the scales of the half groups, and one that corrects the bias of the activations.
const MERGED_GROUP_REGISTERS: usize = 8 + 2 + 1;

/// Registers of a merged block of eight groups.
pub(super) const MERGED_BLOCK_REGISTERS: usize = 8 * MERGED_GROUP_REGISTERS;

/// Merges the low and high bits of a panel.
#[target_feature(enable = "avx2")]
pub(super) fn merge_six_bits(panel: &[u8], to: &mut [__m256i]) {
    let blocks = panel.as_chunks::<Q6_K_PANEL_BLOCK_BYTES>().0.iter();
    for (block, to) in blocks.zip(to.as_chunks_mut::<MERGED_BLOCK_REGISTERS>().0) {
        for (i, to) in to
            .as_chunks_mut::<MERGED_GROUP_REGISTERS>()
            .0
            .iter_mut()
            .enumerate()
        {
            // SAFETY: 16 bytes of scales, and 192 bytes of a group, can be read.
            let (pairs, w) = unsafe {
                let group = block.as_ptr().add(144 + 192 * i);
                (
                    _mm256_cvtepi8_epi16(load16(block.as_ptr().add(16 + 16 * i))),
                    [six_bits_at(group, 0), six_bits_at(group, 1)],
                )
            };
            let scales = split_pairs(pairs);
            let mut excess = _mm256_setzero_si256();
            for half in 0..2 {
                let mut sum = _mm256_setzero_si256();
                for quad in 4 * half..4 * half + 4 {
                    let w = _mm256_sub_epi8(w[quad % 2][quad / 2], _mm256_set1_epi8(32));
                    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_set1_epi8(1), w));
                    to[quad] = w;
                }
                excess = _mm256_add_epi32(excess, _mm256_madd_epi16(sum, scales[half]));
                to[8 + half] = scales[half];
            }
            // Times 128, the bias of the activations.
            let excess = _mm256_slli_epi32::<7>(excess);
            to[10] = _mm256_sub_epi32(_mm256_setzero_si256(), excess);
        }
    }
}

/// As [`six_bits`], with groups from [`merge_six_bits`] and biased activations. Reads only the block scales of `panels`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn six_bits_merged<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    merged: [&[__m256i]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    let (panels, len) = panel_pointers(panels);
    let blocks = len / Q6_K_PANEL_BLOCK_BYTES;
    let x = cursors(rows, blocks * 8);
    let (mut biased, mut groups) = ([std::ptr::null(); N], [std::ptr::null(); P]);
    for n in 0..N {
        assert!(
            rows[n].biased.len() >= blocks * 8 * GROUP_LEN,
            "biased activations are missing"
        );
        biased[n] = rows[n].biased.as_ptr().cast::<i8>();
    }
    for p in 0..P {
        assert!(
            merged[p].len() >= blocks * MERGED_BLOCK_REGISTERS,
            "merged weights are missing"
        );
        groups[p] = merged[p].as_ptr();
    }
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`; the other lengths were checked above.
        unsafe {
            let mut d = [_mm256_setzero_ps(); P];
            for p in 0..P {
                d[p] = load_f16(panels[p].add(b * Q6_K_PANEL_BLOCK_BYTES));
            }
            for g in b * 8..b * 8 + 8 {
                let groups = groups.map(|p| p.add(g * MERGED_GROUP_REGISTERS));
                let mut dots = [[_mm256_setzero_si256(); N]; P];
                for p in 0..P {
                    dots[p] = [*groups[p].add(10); N];
                }
                for half in 0..2 {
                    for j in 0..2 {
                        let w = groups.map(|g| {
                            let quad = g.add(j + 4 * half);
                            [*quad, *quad.add(2)]
                        });
                        for n in 0..N {
                            let q = biased[n].add(g * GROUP_LEN + 4 * j + 16 * half);
                            let (near, far) = (broadcast4(q), broadcast4(q.add(8)));
                            for p in 0..P {
                                // At most 2 · 2 · 255 · 32 = 32,640.
                                let pairs = _mm256_add_epi16(
                                    _mm256_maddubs_epi16(near, w[p][0]),
                                    _mm256_maddubs_epi16(far, w[p][1]),
                                );
                                let products = pairs_at(pairs, groups[p].add(8 + half));
                                dots[p][n] = keep(_mm256_add_epi32(dots[p][n], products));
                            }
                        }
                    }
                }
                for p in 0..P {
                    for n in 0..N {
                        let scale = &*x[n].scale.add(g);
                        let d = _mm256_mul_ps(d[p], _mm256_set1_ps(scale.d));
                        sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[p][n]), d, sums[p][n]);
                    }
                }
            }
        }
    }
    sums
}

/// `vpmaddwd` with a memory operand, since no register is free for the factor.
///
/// # Safety
/// The factor can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pairs_at(mut pairs: __m256i, factor: *const __m256i) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        asm!(
            "vpmaddwd {0}, {0}, ymmword ptr [{1}]",
            inout(ymm_reg) pairs,
            in(reg) factor,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    pairs
}

/// Unpacks the six bits of quads `j`, `j + 2`, `j + 4` and `j + 6` of eight, four columns each.
///
/// # Safety
/// 192 bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn six_bits_at(group: *const u8, j: usize) -> [__m256i; 4] {
    let low = _mm256_set1_epi8(15);
    let high = _mm256_set1_epi8(0x30);
    // SAFETY: by contract.
    let (near, far, upper) = unsafe {
        (
            load(group.add(32 * j)),
            load(group.add(64 + 32 * j)),
            load(group.add(128 + 32 * j)),
        )
    };
    let bits = [
        _mm256_and_si256(_mm256_slli_epi16::<4>(upper), high),
        _mm256_and_si256(_mm256_slli_epi16::<2>(upper), high),
        _mm256_and_si256(upper, high),
        _mm256_and_si256(_mm256_srli_epi16::<2>(upper), high),
    ];
    [
        _mm256_or_si256(_mm256_and_si256(near, low), bits[0]),
        _mm256_or_si256(_mm256_and_si256(far, low), bits[1]),
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16::<4>(near), low), bits[2]),
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16::<4>(far), low), bits[3]),
    ]
}

/// The scales of group `i` of a `Q4_K` or `Q5_K` block, each twice as a 16-bit integer, and the offsets.
///
/// # Safety
/// 160 bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn scales(block: *const u8, i: usize) -> (__m256i, __m256) {
    // SAFETY: by contract.
    unsafe {
        (
            load_scales(block.add(32 + 8 * i)),
            _mm256_cvtepi32_ps(load8_u32(block.add(96 + 8 * i))),
        )
    }
}

/// The sums of both half groups, broadcast to all lanes.
///
/// # Safety
/// `scale` can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half_sums(scale: *const Scale) -> __m256i {
    // SAFETY: by contract; two 16-bit integers are read as one of 32 bits.
    _mm256_set1_epi32(unsafe {
        (&raw const (*scale).half_sums)
            .cast::<i32>()
            .read_unaligned()
    })
}

/// Loads 16 bytes.
///
/// # Safety
/// 16 bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load16(at: *const u8) -> __m128i {
    // SAFETY: by contract.
    unsafe { _mm_loadu_si128(at.cast()) }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn five_bits<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    const BLOCK_BYTES: usize = 32 + 128 + 8 * 160;
    let (panels, len) = panel_pointers(panels);
    let blocks = len / BLOCK_BYTES;
    let x = cursors(rows, blocks * 8);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(b * BLOCK_BYTES));
            let (mut d, mut m) = ([_mm256_setzero_ps(); P], [_mm256_setzero_ps(); P]);
            for p in 0..P {
                d[p] = load_f16(blocks[p]);
                m[p] = load_f16(blocks[p].add(16));
            }
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch::<N, P>(blocks.map(|b| b.add(BLOCK_BYTES / 8 * i)), BLOCK_BYTES / 8);
                let groups = blocks.map(|b| b.add(160 + 160 * i));
                let mut bits = [_mm256_setzero_si256(); P];
                for p in 0..P {
                    bits[p] = load(groups[p]);
                }
                let at = groups.map(|g| g.add(32));
                let q = x.map(|x| x.q.add(g * GROUP_LEN));
                let first = five_bits_half(bits, at, q, 0);
                let second = five_bits_half(bits, at, q, 1);
                for p in 0..P {
                    let (s, o) = scales(blocks[p], i);
                    let o = _mm256_mul_ps(m[p], o);
                    for n in 0..N {
                        let scale = &*x[n].scale.add(g);
                        let dot = _mm256_add_epi32(
                            _mm256_madd_epi16(first[p][n], s),
                            _mm256_madd_epi16(second[p][n], s),
                        );
                        let d = _mm256_mul_ps(d[p], _mm256_set1_ps(scale.d));
                        sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[p][n]);
                        sums[p][n] = _mm256_fnmadd_ps(o, _mm256_set1_ps(scale.sum), sums[p][n]);
                    }
                }
            }
        }
    }
    sums
}

/// Loads eight bytes as 32-bit integers.
///
/// # Safety
/// Eight bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load8_u32(at: *const u8) -> __m256i {
    // SAFETY: by contract.
    _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(at.cast()) })
}

/// Loads eight bytes as 16-bit integers, each twice: the scale of a row for both of its sums.
///
/// # Safety
/// Eight bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_scales(at: *const u8) -> __m256i {
    // SAFETY: by contract.
    let s = unsafe { load8_u32(at) };
    _mm256_or_si256(s, _mm256_slli_epi32::<16>(s))
}

/// The first of every pair of 16-bit integers, twice, and the second, twice.
#[inline]
#[target_feature(enable = "avx2")]
fn split_pairs(pairs: __m256i) -> [__m256i; 2] {
    let first = _mm256_slli_epi32::<16>(pairs);
    let second = _mm256_srli_epi32::<16>(pairs);
    [
        _mm256_or_si256(first, _mm256_srli_epi32::<16>(first)),
        _mm256_or_si256(second, _mm256_slli_epi32::<16>(second)),
    ]
}

/// Unpacks the two bits of quads `j`, `j + 2`, `j + 4` and `j + 6` of eight, four columns each.
#[inline]
#[target_feature(enable = "avx2")]
fn bit_pairs(all: __m256i) -> [__m256i; 4] {
    let mask = _mm256_set1_epi8(3);
    [
        _mm256_and_si256(all, mask),
        _mm256_and_si256(_mm256_srli_epi16::<2>(all), mask),
        _mm256_and_si256(_mm256_srli_epi16::<4>(all), mask),
        _mm256_and_si256(_mm256_srli_epi16::<6>(all), mask),
    ]
}

/// Bits `j`, `j + 2`, `j + 4` and `j + 6` of every byte, moved to bit 2.
#[inline]
#[target_feature(enable = "avx2")]
fn third_bits(bits: __m256i, j: usize) -> [__m256i; 4] {
    let mask = _mm256_set1_epi8(4);
    let all = if j == 0 {
        [
            _mm256_slli_epi16::<2>(bits),
            bits,
            _mm256_srli_epi16::<2>(bits),
            _mm256_srli_epi16::<4>(bits),
        ]
    } else {
        [
            _mm256_slli_epi16::<1>(bits),
            _mm256_srli_epi16::<1>(bits),
            _mm256_srli_epi16::<3>(bits),
            _mm256_srli_epi16::<5>(bits),
        ]
    };
    [
        _mm256_and_si256(all[0], mask),
        _mm256_and_si256(all[1], mask),
        _mm256_and_si256(all[2], mask),
        _mm256_and_si256(all[3], mask),
    ]
}

/// The dot products of both half groups, as 16-bit integers. `w(p, j)` returns weights of up to three bits of panel `p`:
/// quads `j`, `j + 2`, `j + 4` and `j + 6`, for `j` below 2.
///
/// # Safety
/// A group can be read at every `q`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half_group_dots<const N: usize, const P: usize>(
    w: impl Fn(usize, usize) -> [__m256i; 4],
    q: [*const i8; N],
) -> [[[__m256i; 2]; N]; P] {
    let mut dots = [[[_mm256_setzero_si256(); 2]; N]; P];
    for p in 0..P {
        for j in 0..2 {
            let w = w(p, j);
            for n in 0..N {
                for k in 0..4 {
                    // SAFETY: by contract.
                    let q = unsafe { broadcast4(q[n].add(4 * j + 8 * k)) };
                    dots[p][n][k / 2] = add_products(dots[p][n][k / 2], w[k], q);
                }
            }
        }
    }
    dots
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn two_bits<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    const BLOCK_BYTES: usize = 32 + 256 + 8 * 64;
    let (panels, len) = panel_pointers(panels);
    let blocks = len / BLOCK_BYTES;
    let x = cursors(rows, blocks * 8);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(b * BLOCK_BYTES));
            let (mut d, mut m) = ([_mm256_setzero_ps(); P], [_mm256_setzero_ps(); P]);
            for p in 0..P {
                d[p] = load_f16(blocks[p]);
                m[p] = load_f16(blocks[p].add(16));
            }
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch::<N, P>(blocks.map(|b| b.add(BLOCK_BYTES / 8 * i)), BLOCK_BYTES / 8);
                let q = x.map(|x| x.q.add(g * GROUP_LEN));
                let w = |p: usize, j| bit_pairs(load(blocks[p].add(288 + 64 * i + 32 * j)));
                let dots: [_; P] = half_group_dots(w, q);
                for p in 0..P {
                    let pairs =
                        |at: usize| _mm256_cvtepu8_epi16(load16(blocks[p].add(at + 16 * i)));
                    let [first, second] = split_pairs(pairs(32));
                    let offsets = pairs(160);
                    for n in 0..N {
                        let dot = _mm256_add_epi32(
                            _mm256_madd_epi16(dots[p][n][0], first),
                            _mm256_madd_epi16(dots[p][n][1], second),
                        );
                        let scale = x[n].scale.add(g);
                        let off = _mm256_madd_epi16(offsets, half_sums(scale));
                        let one = _mm256_set1_ps((*scale).d);
                        let d = _mm256_mul_ps(d[p], one);
                        sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[p][n]);
                        let m = _mm256_mul_ps(m[p], one);
                        sums[p][n] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(off), m, sums[p][n]);
                    }
                }
            }
        }
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn three_bits<const N: usize, const P: usize>(
    panels: [&[u8]; P],
    rows: &[ActivationRow<'_>; N],
) -> [[__m256; N]; P] {
    const BLOCK_BYTES: usize = 16 + 128 + 8 * 96;
    let (panels, len) = panel_pointers(panels);
    let blocks = len / BLOCK_BYTES;
    let x = cursors(rows, blocks * 8);
    let mut sums = [[_mm256_setzero_ps(); N]; P];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let blocks = panels.map(|p| p.add(b * BLOCK_BYTES));
            let mut d = [_mm256_setzero_ps(); P];
            for p in 0..P {
                d[p] = load_f16(blocks[p]);
            }
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch::<N, P>(blocks.map(|b| b.add(BLOCK_BYTES / 8 * i)), BLOCK_BYTES / 8);
                let groups = blocks.map(|b| b.add(144 + 96 * i));
                let mut bits = [_mm256_setzero_si256(); P];
                for p in 0..P {
                    bits[p] = load(groups[p]);
                }
                let q = x.map(|x| x.q.add(g * GROUP_LEN));
                let w = |p: usize, j: usize| {
                    let (low, high) = (
                        bit_pairs(load(groups[p].add(32 + 32 * j))),
                        third_bits(bits[p], j),
                    );
                    [
                        _mm256_or_si256(low[0], high[0]),
                        _mm256_or_si256(low[1], high[1]),
                        _mm256_or_si256(low[2], high[2]),
                        _mm256_or_si256(low[3], high[3]),
                    ]
                };
                let dots: [_; P] = half_group_dots(w, q);
                for p in 0..P {
                    let pairs = _mm256_cvtepi8_epi16(load16(blocks[p].add(16 + 16 * i)));
                    let [first, second] = split_pairs(pairs);
                    for n in 0..N {
                        let dot = _mm256_add_epi32(
                            _mm256_madd_epi16(dots[p][n][0], first),
                            _mm256_madd_epi16(dots[p][n][1], second),
                        );
                        let scale = x[n].scale.add(g);
                        let off = _mm256_madd_epi16(pairs, half_sums(scale));
                        let dot = _mm256_sub_epi32(dot, _mm256_slli_epi32::<2>(off));
                        let d = _mm256_mul_ps(d[p], _mm256_set1_ps((*scale).d));
                        sums[p][n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[p][n]);
                    }
                }
            }
        }
    }
    sums
}
