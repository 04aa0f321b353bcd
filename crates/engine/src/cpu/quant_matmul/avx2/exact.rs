//! Dot products of `f32` activations with blocks dequantised in registers, for AVX2.
//!
//! Weights are bit-identical to [`crate::quant::dequantize`], and sums to [`crate::cpu::gemm::dot_at`] at this level: 32
//! lanes, each a chain of FMAs, reduced pairwise. So results do not depend on whether weights were dequantised here or in
//! advance.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are calls here, for which every register is saved"
)]
#![expect(
    unsafe_code,
    reason = "intrinsics that the level in use has, on pointers into slices whose lengths were checked"
)]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_and_si128, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_set1_epi8,
    _mm_set1_epi16, _mm_srli_epi16, _mm_srli_si128, _mm256_add_ps, _mm256_and_si256,
    _mm256_andnot_si256, _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_extracti128_si256, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set_m128i,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi64x,
    _mm256_setzero_ps, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srl_epi16, _mm256_storeu_ps,
    _mm256_sub_epi8, _mm256_xor_ps,
};

use crate::quant::{BlockFormat, q3_scales, q4_scale_offset};

/// Weights that are dequantised at a time.
const GROUP_LEN: usize = 32;

/// The dot products of one row of blocks with `N` vectors of at least its length.
///
/// # Panics
/// If a vector is shorter than the row.
pub(in super::super) fn dot<const N: usize>(
    format: BlockFormat,
    row: &[u8],
    x: [&[f32]; N],
) -> [f32; N] {
    // SAFETY: called only if the level in use is AVX2 or above.
    unsafe {
        match format {
            BlockFormat::Q4_0 => sums::<{ BlockFormat::Q4_0 as usize }, N>(row, x),
            BlockFormat::Q4_1 => sums::<{ BlockFormat::Q4_1 as usize }, N>(row, x),
            BlockFormat::Q5_0 => sums::<{ BlockFormat::Q5_0 as usize }, N>(row, x),
            BlockFormat::Q5_1 => sums::<{ BlockFormat::Q5_1 as usize }, N>(row, x),
            BlockFormat::Q8_0 => sums::<{ BlockFormat::Q8_0 as usize }, N>(row, x),
            BlockFormat::Q2K => sums::<{ BlockFormat::Q2K as usize }, N>(row, x),
            BlockFormat::Q3K => sums::<{ BlockFormat::Q3K as usize }, N>(row, x),
            BlockFormat::Q4K => sums::<{ BlockFormat::Q4K as usize }, N>(row, x),
            BlockFormat::Q5K => sums::<{ BlockFormat::Q5K as usize }, N>(row, x),
            BlockFormat::Q6K => sums::<{ BlockFormat::Q6K as usize }, N>(row, x),
        }
    }
}

/// Dequantises blocks.
///
/// # Panics
/// If `to` is shorter than the blocks.
pub(in super::super) fn widen(format: BlockFormat, blocks: &[u8], to: &mut [f32]) {
    // SAFETY: as above.
    unsafe {
        match format {
            BlockFormat::Q4_0 => write::<{ BlockFormat::Q4_0 as usize }>(blocks, to),
            BlockFormat::Q4_1 => write::<{ BlockFormat::Q4_1 as usize }>(blocks, to),
            BlockFormat::Q5_0 => write::<{ BlockFormat::Q5_0 as usize }>(blocks, to),
            BlockFormat::Q5_1 => write::<{ BlockFormat::Q5_1 as usize }>(blocks, to),
            BlockFormat::Q8_0 => write::<{ BlockFormat::Q8_0 as usize }>(blocks, to),
            BlockFormat::Q2K => write::<{ BlockFormat::Q2K as usize }>(blocks, to),
            BlockFormat::Q3K => write::<{ BlockFormat::Q3K as usize }>(blocks, to),
            BlockFormat::Q4K => write::<{ BlockFormat::Q4K as usize }>(blocks, to),
            BlockFormat::Q5K => write::<{ BlockFormat::Q5K as usize }>(blocks, to),
            BlockFormat::Q6K => write::<{ BlockFormat::Q6K as usize }>(blocks, to),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn sums<const FORMAT: usize, const N: usize>(row: &[u8], x: [&[f32]; N]) -> [f32; N] {
    let format = const { BlockFormat::ALL[FORMAT] };
    let groups = const { BlockFormat::ALL[FORMAT].block_len() / GROUP_LEN };
    let blocks = row.chunks_exact(const { BlockFormat::ALL[FORMAT].block_bytes() });
    for x in x {
        assert!(
            x.len() >= blocks.len() * groups * GROUP_LEN,
            "a vector is shorter than the row"
        );
    }
    let mut lanes = [[_mm256_setzero_ps(); 4]; N];
    let mut at = 0;
    for block in blocks {
        for i in 0..groups {
            let weights = group(format, block, i);
            for n in 0..N {
                for k in 0..4 {
                    // SAFETY: `at` plus a group is at most the length that was checked.
                    let x = unsafe { _mm256_loadu_ps(x[n].as_ptr().add(at + 8 * k)) };
                    lanes[n][k] = _mm256_fmadd_ps(weights[k], x, lanes[n][k]);
                }
            }
            at += GROUP_LEN;
        }
    }
    let mut sums = [0.0; N];
    for n in 0..N {
        let [a, b, c, d] = lanes[n];
        let mut lanes = [0.0_f32; 8];
        let eight = _mm256_add_ps(_mm256_add_ps(a, c), _mm256_add_ps(b, d));
        // SAFETY: stores eight elements.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), eight) };
        let [a, b, c, d, e, f, g, h] = lanes;
        sums[n] = ((a + e) + (c + g)) + ((b + f) + (d + h));
    }
    sums
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn write<const FORMAT: usize>(blocks: &[u8], to: &mut [f32]) {
    let format = const { BlockFormat::ALL[FORMAT] };
    let len = const { BlockFormat::ALL[FORMAT].block_len() };
    let blocks = blocks.chunks_exact(const { BlockFormat::ALL[FORMAT].block_bytes() });
    assert!(
        to.len() >= blocks.len() * len,
        "the output is shorter than the weights"
    );
    for (block, to) in blocks.zip(to.chunks_exact_mut(len)) {
        for i in 0..len / GROUP_LEN {
            let weights = group(format, block, i);
            for k in 0..4 {
                // SAFETY: `to` has as many elements as the block has weights.
                unsafe { _mm256_storeu_ps(to.as_mut_ptr().add(i * GROUP_LEN + 8 * k), weights[k]) };
            }
        }
    }
}

/// The weights of group `i` of a block; specialised if `format` is a constant.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn group(format: BlockFormat, block: &[u8], i: usize) -> [__m256; 4] {
    match format {
        BlockFormat::Q4_0 => scaled(zero_at(nibbles(&block[2..18]), 8), [half(&block[0..2]); 2]),
        BlockFormat::Q4_1 => affine(
            nibbles(&block[4..20]),
            [half(&block[0..2]); 2],
            [half(&block[2..4]); 2],
        ),
        BlockFormat::Q5_0 => {
            let q = _mm256_or_si256(nibbles(&block[6..22]), fifth_bits(&block[2..6]));
            scaled(zero_at(q, 16), [half(&block[0..2]); 2])
        }
        BlockFormat::Q5_1 => {
            let q = _mm256_or_si256(nibbles(&block[8..24]), fifth_bits(&block[4..8]));
            affine(q, [half(&block[0..2]); 2], [half(&block[2..4]); 2])
        }
        BlockFormat::Q8_0 => scaled(bytes(&block[2..34]), [half(&block[0..2]); 2]),
        BlockFormat::Q2K => {
            let (d, m) = (half(&block[80..82]), half(&block[82..84]));
            let [a, b] = [block[2 * i], block[2 * i + 1]];
            let q = bits(bytes(&block[16 + i / 4 * 32..][..32]), i % 4 * 2, 3);
            affine(
                q,
                [times(d, a & 15), times(d, b & 15)],
                [minus(times(m, a >> 4)), minus(times(m, b >> 4))],
            )
        }
        BlockFormat::Q3K => {
            let d = half(&block[108..110]);
            let scales = q3_scales(&block[96..108]);
            let low = bits(bytes(&block[32 + i / 4 * 32..][..32]), i % 4 * 2, 3);
            let high = bits(bytes(&block[..32]), i, 1);
            let q = _mm256_or_si256(low, _mm256_slli_epi16::<2>(high));
            let scales = [times(d, scales[2 * i]), times(d, scales[2 * i + 1])];
            scaled(zero_at(q, 4), scales)
        }
        BlockFormat::Q4K => {
            let q = bits(bytes(&block[16 + i / 2 * 32..][..32]), i % 2 * 4, 15);
            let (scale, offset) = k_scale(block, i);
            affine(q, [scale; 2], [minus(offset); 2])
        }
        BlockFormat::Q5K => {
            let low = bits(bytes(&block[48 + i / 2 * 32..][..32]), i % 2 * 4, 15);
            let high = bits(bytes(&block[16..48]), i, 1);
            let q = _mm256_or_si256(low, _mm256_slli_epi16::<4>(high));
            let (scale, offset) = k_scale(block, i);
            affine(q, [scale; 2], [minus(offset); 2])
        }
        BlockFormat::Q6K => {
            let (d, row) = (half(&block[208..210]), i % 4);
            let low = bytes(&block[i / 4 * 64 + row % 2 * 32..][..32]);
            let high = bytes(&block[128 + i / 4 * 32..][..32]);
            let high = _mm256_slli_epi16::<4>(bits(high, row * 2, 3));
            let q = _mm256_or_si256(bits(low, row / 2 * 4, 15), high);
            let [a, b] = [block[192 + 2 * i] as i8, block[193 + 2 * i] as i8];
            scaled(zero_at(q, 32), [times(d, a), times(d, b)])
        }
    }
}

/// The scale and offset of a group of `Q4_K` and `Q5_K`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn k_scale(block: &[u8], i: usize) -> (__m256, __m256) {
    let (d, m) = (half(&block[0..2]), half(&block[2..4]));
    let (scale, offset) = q4_scale_offset(&block[4..16], i);
    (times(d, scale), times(m, offset))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn times(d: __m256, scale: impl Into<f32>) -> __m256 {
    _mm256_mul_ps(d, _mm256_set1_ps(scale.into()))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn minus(x: __m256) -> __m256 {
    _mm256_xor_ps(x, _mm256_set1_ps(-0.0))
}

/// An `f16`, broadcast to every lane. Converting a single lane would merge it into a register with unrelated lanes, often
/// one of the sums, and wait for it (a false dependency).
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn half(bytes: &[u8]) -> __m256 {
    _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes([bytes[0], bytes[1]])))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn bytes(from: &[u8]) -> __m256i {
    assert!(from.len() >= 32);
    // SAFETY: there are 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// A field of every byte, from bit `at` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn bits(bytes: __m256i, at: usize, mask: i8) -> __m256i {
    let count = _mm_cvtsi32_si128(at as i32);
    _mm256_and_si256(_mm256_srl_epi16(bytes, count), _mm256_set1_epi8(mask))
}

/// 16 bytes as 32 nibbles: all low ones, then all high ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn nibbles(from: &[u8]) -> __m256i {
    assert!(from.len() >= 16);
    // SAFETY: there are 16 bytes.
    let both: __m128i = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
    let mask = _mm_set1_epi8(15);
    let high = _mm_and_si128(_mm_srli_epi16::<4>(both), mask);
    _mm256_set_m128i(high, _mm_and_si128(both, mask))
}

/// The bits of a word as bytes of 16 or 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn fifth_bits(word: &[u8]) -> __m256i {
    let word = i32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    // Byte `j / 8` of the word in lane `j`, and its bit `j % 8`.
    let from = _mm256_setr_epi64x(
        0,
        0x0101_0101_0101_0101,
        0x0202_0202_0202_0202,
        0x0303_0303_0303_0303,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(word), from);
    let is_zero = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), _mm256_set1_epi8(0));
    _mm256_andnot_si256(is_zero, _mm256_set1_epi8(16))
}

/// Subtracts the zero point.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn zero_at(q: __m256i, zero: i8) -> __m256i {
    _mm256_sub_epi8(q, _mm256_set1_epi8(zero))
}

/// Every level as `f32`, times the scale of its half group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn scaled(q: __m256i, scale: [__m256; 2]) -> [__m256; 4] {
    let halves = [_mm256_castsi256_si128(q), _mm256_extracti128_si256::<1>(q)];
    let mut to = [_mm256_setzero_ps(); 4];
    for (h, half) in halves.into_iter().enumerate() {
        let eight = [half, _mm_srli_si128::<8>(half)];
        for k in 0..2 {
            let q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight[k]));
            to[2 * h + k] = _mm256_mul_ps(q, scale[h]);
        }
    }
    to
}

/// As [`scaled`], plus the offset of the half group. Rounds twice, as [`crate::quant::dequantize`] does.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn affine(q: __m256i, scale: [__m256; 2], offset: [__m256; 2]) -> [__m256; 4] {
    let mut to = scaled(q, scale);
    for k in 0..4 {
        to[k] = _mm256_add_ps(to[k], offset[k / 2]);
    }
    to
}
