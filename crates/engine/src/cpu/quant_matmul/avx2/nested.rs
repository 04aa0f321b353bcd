//! Products of integers with panels of the nested formats, by AVX2.
#![expect(
    unsafe_code,
    reason = "intrinsics that the level in use has, on pointers into slices whose lengths were checked"
)]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_and_si256, _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi16,
    _mm256_cvtepu8_epi32, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_slli_epi32,
    _mm256_srli_epi16, _mm256_srli_epi32, _mm256_sub_epi16, _mm256_sub_epi32,
};

use super::super::activation::{GROUP, Row};
use super::{cursors, five_bits_half, four, halves, load, nibbles};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn four_bits<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 32 + 128 + 1024;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: block `b` lies in the panel; `cursors` checked that every row has its eight groups.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let (d, m) = (halves(block), halves(block.add(16)));
            for i in 0..8 {
                let g = b * 8 + i;
                let mut dots = [_mm256_setzero_si256(); N];
                for j in 0..4 {
                    let [a, b] = nibbles(block.add(160 + 128 * i), j);
                    for n in 0..N {
                        let q = x[n].q.add(g * GROUP + 4 * j);
                        dots[n] = _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(a, four(q)));
                        dots[n] =
                            _mm256_add_epi16(dots[n], _mm256_maddubs_epi16(b, four(q.add(16))));
                    }
                }
                let (s, o) = (both(block.add(32 + 8 * i)), eight(block.add(96 + 8 * i)));
                let o = _mm256_mul_ps(m, _mm256_cvtepi32_ps(o));
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
pub(super) fn six_bits<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 16 + 128 + 8 * 192;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let low = _mm256_set1_epi8(15);
    let high = _mm256_set1_epi8(0x30);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let d = halves(block);
            for i in 0..8 {
                let g = b * 8 + i;
                let group = block.add(144 + 192 * i);
                // Of every row the scales of both halves, as 16 bits.
                let scales: __m128i = _mm_loadu_si128(block.add(16 + 16 * i).cast());
                let pairs = _mm256_cvtepi8_epi16(scales);
                let [first, second] = apart(pairs);
                // What 32 less in every weight takes off, from the sums of the activations' halves.
                let off = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16::<5>(pairs));
                let mut dots = [off; N];
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let counts = (&raw const scale.halves).cast::<i32>().read_unaligned();
                    dots[n] = _mm256_madd_epi16(off, _mm256_set1_epi32(counts));
                }
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
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[n]), d, sums[n]);
                }
            }
        }
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn five_bits<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 32 + 128 + 8 * 160;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let (d, m) = (halves(block), halves(block.add(16)));
            for i in 0..8 {
                let g = b * 8 + i;
                let group = block.add(160 + 160 * i);
                let bits = load(group);
                let q = x.map(|x| x.q.add(g * GROUP));
                let first = five_bits_half(bits, group.add(32), q, 0);
                let second = five_bits_half(bits, group.add(32), q, 1);
                let (s, o) = (both(block.add(32 + 8 * i)), eight(block.add(96 + 8 * i)));
                let o = _mm256_mul_ps(m, _mm256_cvtepi32_ps(o));
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let dot = _mm256_add_epi32(
                        _mm256_madd_epi16(first[n], s),
                        _mm256_madd_epi16(second[n], s),
                    );
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[n]);
                    sums[n] = _mm256_fnmadd_ps(o, _mm256_set1_ps(scale.sum), sums[n]);
                }
            }
        }
    }
    sums
}

/// Eight bytes as 32-bit numbers.
///
/// # Safety
/// Eight bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn eight(at: *const u8) -> __m256i {
    // SAFETY: by contract.
    _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(at.cast()) })
}

/// Eight bytes as 16-bit numbers, each twice: the scale of a row for both sums of it.
///
/// # Safety
/// Eight bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn both(at: *const u8) -> __m256i {
    // SAFETY: by contract.
    let s = unsafe { eight(at) };
    _mm256_or_si256(s, _mm256_slli_epi32::<16>(s))
}

/// The first of every pair of 16-bit numbers twice, and the second.
#[inline]
#[target_feature(enable = "avx2")]
fn apart(pairs: __m256i) -> [__m256i; 2] {
    let first = _mm256_slli_epi32::<16>(pairs);
    let second = _mm256_srli_epi32::<16>(pairs);
    [
        _mm256_or_si256(first, _mm256_srli_epi32::<16>(first)),
        _mm256_or_si256(second, _mm256_slli_epi32::<16>(second)),
    ]
}

/// Two bits of every byte: four columns at each of the places `j`, `j + 2`, `j + 4` and `j + 6` of eight.
#[inline]
#[target_feature(enable = "avx2")]
fn crumbs(all: __m256i) -> [__m256i; 4] {
    let mask = _mm256_set1_epi8(3);
    [
        _mm256_and_si256(all, mask),
        _mm256_and_si256(_mm256_srli_epi16::<2>(all), mask),
        _mm256_and_si256(_mm256_srli_epi16::<4>(all), mask),
        _mm256_and_si256(_mm256_srli_epi16::<6>(all), mask),
    ]
}

/// Bits `j`, `j + 2`, `j + 4` and `j + 6` of every byte, as the third.
#[inline]
#[target_feature(enable = "avx2")]
fn third(bits: __m256i, j: usize) -> [__m256i; 4] {
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

/// The products of four columns at four places, the first two and the last two added.
///
/// # Safety
/// 28 bytes can be read at `q`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn quarter(w: [__m256i; 4], q: *const i8) -> [__m256i; 2] {
    // SAFETY: by contract.
    unsafe {
        [
            _mm256_add_epi16(
                _mm256_maddubs_epi16(w[0], four(q)),
                _mm256_maddubs_epi16(w[1], four(q.add(8))),
            ),
            _mm256_add_epi16(
                _mm256_maddubs_epi16(w[2], four(q.add(16))),
                _mm256_maddubs_epi16(w[3], four(q.add(24))),
            ),
        ]
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn two_bits<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 32 + 256 + 8 * 64;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let (d, m) = (halves(block), halves(block.add(16)));
            for i in 0..8 {
                let g = b * 8 + i;
                let pairs = |at: usize| {
                    let bytes: __m128i = _mm_loadu_si128(block.add(at + 16 * i).cast());
                    _mm256_cvtepu8_epi16(bytes)
                };
                let [first, second] = apart(pairs(32));
                let offsets = pairs(160);
                let mut dots = [[_mm256_setzero_si256(); 2]; N];
                for j in 0..2 {
                    let w = crumbs(load(block.add(288 + 64 * i + 32 * j)));
                    for n in 0..N {
                        let [a, b] = quarter(w, x[n].q.add(g * GROUP + 4 * j));
                        dots[n][0] = _mm256_add_epi16(dots[n][0], a);
                        dots[n][1] = _mm256_add_epi16(dots[n][1], b);
                    }
                }
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let dot = _mm256_add_epi32(
                        _mm256_madd_epi16(dots[n][0], first),
                        _mm256_madd_epi16(dots[n][1], second),
                    );
                    let counts = (&raw const scale.halves).cast::<i32>().read_unaligned();
                    let off = _mm256_madd_epi16(offsets, _mm256_set1_epi32(counts));
                    let one = _mm256_set1_ps(scale.d);
                    let d = _mm256_mul_ps(d, one);
                    sums[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[n]);
                    let m = _mm256_mul_ps(m, one);
                    sums[n] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(off), m, sums[n]);
                }
            }
        }
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn three_bits<const N: usize>(panel: &[u8], rows: [Row<'_>; N]) -> [__m256; N] {
    const SIZE: usize = 16 + 128 + 8 * 96;
    let blocks = panel.len() / SIZE;
    let x = cursors(rows, blocks * 8);
    let mut sums = [_mm256_setzero_ps(); N];
    for b in 0..blocks {
        // SAFETY: as in `four_bits`.
        unsafe {
            let block = panel.as_ptr().add(b * SIZE);
            let d = halves(block);
            for i in 0..8 {
                let g = b * 8 + i;
                let group = block.add(144 + 96 * i);
                let scales: __m128i = _mm_loadu_si128(block.add(16 + 16 * i).cast());
                let pairs = _mm256_cvtepi8_epi16(scales);
                let [first, second] = apart(pairs);
                let bits = load(group);
                let mut dots = [[_mm256_setzero_si256(); 2]; N];
                for j in 0..2 {
                    let (low, top) = (crumbs(load(group.add(32 + 32 * j))), third(bits, j));
                    let w = [
                        _mm256_or_si256(low[0], top[0]),
                        _mm256_or_si256(low[1], top[1]),
                        _mm256_or_si256(low[2], top[2]),
                        _mm256_or_si256(low[3], top[3]),
                    ];
                    for n in 0..N {
                        let [a, b] = quarter(w, x[n].q.add(g * GROUP + 4 * j));
                        dots[n][0] = _mm256_add_epi16(dots[n][0], a);
                        dots[n][1] = _mm256_add_epi16(dots[n][1], b);
                    }
                }
                for n in 0..N {
                    let scale = &*x[n].scale.add(g);
                    let dot = _mm256_add_epi32(
                        _mm256_madd_epi16(dots[n][0], first),
                        _mm256_madd_epi16(dots[n][1], second),
                    );
                    let counts = (&raw const scale.halves).cast::<i32>().read_unaligned();
                    let off = _mm256_madd_epi16(pairs, _mm256_set1_epi32(counts));
                    let dot = _mm256_sub_epi32(dot, _mm256_slli_epi32::<2>(off));
                    let d = _mm256_mul_ps(d, _mm256_set1_ps(scale.d));
                    sums[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums[n]);
                }
            }
        }
    }
    sums
}
