//! K-quants: super-blocks of 256 weights, in groups of 16 or 32 whose scales are quantised in turn.

use std::ops::RangeInclusive;

use super::fit::{self, MIN_GROUP_MAGNITUDE, Search, nearest};
use super::{half, to_half};

/// Recomputes the levels for the rounded scales; groups whose scale is zero keep theirs.
fn requantize(
    x: &[f32],
    levels: &mut [u8; 256],
    group: usize,
    scale: impl Fn(usize) -> (f32, f32),
    range: RangeInclusive<i32>,
) {
    let (low, high) = (*range.start(), *range.end());
    let groups = x.chunks_exact(group).zip(levels.chunks_exact_mut(group));
    for (i, (x, levels)) in groups.enumerate() {
        let (d, offset) = scale(i);
        if d == 0.0 {
            continue;
        }
        for (level, &v) in levels.iter_mut().zip(x) {
            *level = (nearest((v + offset) / d).clamp(low, high) - low) as u8;
        }
    }
}

/// Packs four rows of 32 two-bit levels into 32 bytes, twice.
fn pack_bit_pairs(levels: &[u8; 256], to: &mut [u8]) {
    for (levels, to) in levels.chunks_exact(128).zip(to.chunks_exact_mut(32)) {
        for (l, to) in to.iter_mut().enumerate() {
            *to = levels[l] | levels[l + 32] << 2 | levels[l + 64] << 4 | levels[l + 96] << 6;
        }
    }
}

pub(super) fn quantize_q2_k(x: &[f32], to: &mut [u8]) {
    let search = Search {
        max_level: 3,
        first: -0.5,
        steps: 15,
        use_absolute_error: true,
    };
    let mut levels = [0; 256];
    let mut fits = [(0.0, 0.0); 16];
    let mut max = (0.0_f32, 0.0_f32);
    let groups = x.chunks_exact(16).zip(levels.chunks_exact_mut(16));
    for (fit, (x, levels)) in fits.iter_mut().zip(groups) {
        let weights: [f32; 16] = std::array::from_fn(|i| x[i].abs());
        *fit = fit::affine(&search, x, &weights, levels);
        max = (max.0.max(fit.0), max.1.max(fit.1));
    }
    let (scales, rest) = to.split_at_mut(16);
    let (qs, ends) = rest.split_at_mut(64);
    scales.fill(0);
    ends.fill(0);
    if max.0 > 0.0 {
        let inverse = 15.0 / max.0;
        for (to, fit) in scales.iter_mut().zip(&fits) {
            *to = nearest(inverse * fit.0) as u8;
        }
        ends[..2].copy_from_slice(&to_half(max.0 / 15.0));
    }
    if max.1 > 0.0 {
        let inverse = 15.0 / max.1;
        for (to, fit) in scales.iter_mut().zip(&fits) {
            *to |= (nearest(inverse * fit.1) as u8) << 4;
        }
        ends[2..].copy_from_slice(&to_half(max.1 / 15.0));
    }
    let (d, m) = (half(ends), half(&ends[2..]));
    let scale = |i: usize| (d * f32::from(scales[i] & 15), m * f32::from(scales[i] >> 4));
    requantize(x, &mut levels, 16, scale, 0..=3);
    pack_bit_pairs(&levels, qs);
}

pub(super) fn quantize_q3_k(x: &[f32], to: &mut [u8]) {
    let mut levels = [0; 256];
    let mut fits = [0.0_f32; 16];
    let mut max = 0.0_f32;
    let groups = x.chunks_exact(16).zip(levels.chunks_exact_mut(16));
    for (fit, (x, levels)) in fits.iter_mut().zip(groups) {
        *fit = fit::symmetric_by_moves(4, x, levels);
        if fit.abs() > max.abs() {
            max = *fit;
        }
    }
    to.fill(0);
    let (mask, rest) = to.split_at_mut(32);
    let (qs, rest) = rest.split_at_mut(64);
    let (scales, d) = rest.split_at_mut(12);
    if max != 0.0 {
        let inverse = -32.0 / max;
        for (j, fit) in fits.iter().enumerate() {
            let l = (nearest(inverse * fit).clamp(-32, 31) + 32) as u8;
            scales[j % 8] |= (l & 15) << (j / 8 * 4);
            scales[j % 4 + 8] |= (l >> 4) << (j / 4 * 2);
        }
        d.copy_from_slice(&to_half(1.0 / inverse));
    }
    let d = half(d);
    let scales = q3_scales(scales);
    let scale = |i: usize| (d * f32::from(scales[i]), 0.0);
    requantize(x, &mut levels, 16, scale, -4..=3);
    for (row, levels) in levels.chunks_exact_mut(32).enumerate() {
        for (mask, level) in mask.iter_mut().zip(levels) {
            *mask |= (*level >> 2) << row;
            *level &= 3;
        }
    }
    pack_bit_pairs(&levels, qs);
}

/// The scale and offset of a group of `Q4_K` and `Q5_K`: 6 bits each, in 12 bytes.
#[inline(always)]
pub(crate) fn q4_scale_offset(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        (
            (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4,
            (scales[j + 4] >> 4) | (scales[j] >> 6) << 4,
        )
    }
}

/// Writes the scales and offsets of groups of 32 into the first 16 bytes of a block, and returns the levels.
fn quantize_groups(search: &Search, x: &[f32], head: &mut [u8]) -> [u8; 256] {
    let mut levels = [0; 256];
    let mut fits = [(0.0, 0.0); 8];
    let mut max = (0.0_f32, 0.0_f32);
    let groups = x.chunks_exact(32).zip(levels.chunks_exact_mut(32));
    for (fit, (x, levels)) in fits.iter_mut().zip(groups) {
        let mut square = 0.0_f32;
        for v in x {
            square += v * v;
        }
        let mean = (square / 32.0).sqrt();
        let weights: [f32; 32] = std::array::from_fn(|i| mean + x[i].abs());
        *fit = fit::affine(search, x, &weights, levels);
        max = (max.0.max(fit.0), max.1.max(fit.1));
    }
    let inverse = |max: f32| if max > 0.0 { 63.0 / max } else { 0.0 };
    let inverse = (inverse(max.0), inverse(max.1));
    head[..2].copy_from_slice(&to_half(max.0 / 63.0));
    head[2..4].copy_from_slice(&to_half(max.1 / 63.0));
    let (d, m) = (half(head), half(&head[2..]));
    let scales = &mut head[4..16];
    scales.fill(0);
    for (j, fit) in fits.iter().enumerate() {
        let scale = nearest(inverse.0 * fit.0).min(63) as u8;
        let offset = nearest(inverse.1 * fit.1).min(63) as u8;
        if j < 4 {
            scales[j] |= scale;
            scales[j + 4] |= offset;
        } else {
            scales[j + 4] |= (scale & 15) | (offset & 15) << 4;
            scales[j - 4] |= (scale >> 4) << 6;
            scales[j] |= (offset >> 4) << 6;
        }
    }
    let scale = |j: usize| {
        let (scale, offset) = q4_scale_offset(scales, j);
        (d * f32::from(scale), m * f32::from(offset))
    };
    requantize(x, &mut levels, 32, scale, 0..=search.max_level);
    levels
}

pub(super) fn quantize_q4_k(x: &[f32], to: &mut [u8]) {
    let search = Search {
        max_level: 15,
        first: -1.0,
        steps: 20,
        use_absolute_error: false,
    };
    let (head, qs) = to.split_at_mut(16);
    let levels = quantize_groups(&search, x, head);
    for (levels, qs) in levels.chunks_exact(64).zip(qs.chunks_exact_mut(32)) {
        for (l, q) in qs.iter_mut().enumerate() {
            *q = levels[l] | levels[l + 32] << 4;
        }
    }
}

pub(super) fn quantize_q5_k(x: &[f32], to: &mut [u8]) {
    let search = Search {
        max_level: 31,
        first: -0.5,
        steps: 15,
        use_absolute_error: false,
    };
    let (head, rest) = to.split_at_mut(16);
    let levels = quantize_groups(&search, x, head);
    let (high, qs) = rest.split_at_mut(32);
    high.fill(0);
    for (row, (levels, qs)) in levels
        .chunks_exact(64)
        .zip(qs.chunks_exact_mut(32))
        .enumerate()
    {
        for (l, q) in qs.iter_mut().enumerate() {
            let (a, b) = (levels[l], levels[l + 32]);
            *q = (a & 15) | (b & 15) << 4;
            high[l] |= (a >> 4) << (2 * row) | (b >> 4) << (2 * row + 1);
        }
    }
}

pub(super) fn quantize_q6_k(x: &[f32], to: &mut [u8]) {
    let mut levels = [0; 256];
    let mut fits = [0.0_f32; 16];
    let mut max = 0.0_f32;
    let groups = x.chunks_exact(16).zip(levels.chunks_exact_mut(16));
    for (fit, (x, levels)) in fits.iter_mut().zip(groups) {
        *fit = fit::symmetric(32, x, levels);
        if fit.abs() > max.abs() {
            max = *fit;
        }
    }
    to.fill(0);
    if max.abs() < MIN_GROUP_MAGNITUDE {
        return;
    }
    let (low, rest) = to.split_at_mut(128);
    let (high, rest) = rest.split_at_mut(64);
    let (scales, d) = rest.split_at_mut(16);
    let inverse = -128.0 / max;
    d.copy_from_slice(&to_half(1.0 / inverse));
    for (to, fit) in scales.iter_mut().zip(&fits) {
        *to = nearest(inverse * fit).min(127) as i8 as u8;
    }
    let d = half(d);
    let scale = |i: usize| (d * f32::from(scales[i] as i8), 0.0);
    requantize(x, &mut levels, 16, scale, -32..=31);
    for (n, levels) in levels.chunks_exact(128).enumerate() {
        for l in 0..32 {
            let q: [u8; 4] = std::array::from_fn(|i| levels[l + 32 * i]);
            low[n * 64 + l] = (q[0] & 15) | (q[2] & 15) << 4;
            low[n * 64 + l + 32] = (q[1] & 15) | (q[3] & 15) << 4;
            high[n * 32 + l] = q[0] >> 4 | (q[1] >> 4) << 2 | (q[2] >> 4) << 4 | (q[3] >> 4) << 6;
        }
    }
}

#[inline(always)]
pub(super) fn dequantize_q2_k(block: &[u8; 84], to: &mut [f32; 256]) {
    let (scales, qs) = (&block[..16], &block[16..80]);
    let (d, m) = (half(&block[80..]), half(&block[82..]));
    for i in 0..16 {
        let to: &mut [f32; 16] = (&mut to[16 * i..][..16]).try_into().expect("sixteen");
        let (scale, offset) = (d * f32::from(scales[i] & 15), m * f32::from(scales[i] >> 4));
        // 128 weights share 32 bytes, two bits each; a group is half of those bytes.
        let shift = i % 8 / 2 * 2;
        let qs = &qs[i / 8 * 32 + i % 2 * 16..][..16];
        for j in 0..16 {
            to[j] = scale * f32::from((qs[j] >> shift) & 3) - offset;
        }
    }
}

/// The scales of `Q3_K`: 6 bits each, in 12 bytes.
#[inline(always)]
pub(crate) fn q3_scales(scales: &[u8]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let low = (scales[j % 8] >> (j / 8 * 4)) & 15;
        let high = (scales[8 + j % 4] >> (j / 4 * 2)) & 3;
        (low | high << 4) as i8 - 32
    })
}

#[inline(always)]
pub(super) fn dequantize_q3_k(block: &[u8; 110], to: &mut [f32; 256]) {
    let (mask, qs) = (&block[..32], &block[32..96]);
    let scales = q3_scales(&block[96..108]);
    let d = half(&block[108..]);
    for i in 0..16 {
        let to: &mut [f32; 16] = (&mut to[16 * i..][..16]).try_into().expect("sixteen");
        let scale = d * f32::from(scales[i]);
        let (shift, bit) = (i % 8 / 2 * 2, i / 2);
        let qs = &qs[i / 8 * 32 + i % 2 * 16..][..16];
        let mask = &mask[i % 2 * 16..][..16];
        for j in 0..16 {
            let q = ((qs[j] >> shift) & 3) | ((mask[j] >> bit) & 1) << 2;
            to[j] = scale * f32::from(q as i8 - 4);
        }
    }
}

#[inline(always)]
pub(super) fn dequantize_q4_k(block: &[u8; 144], to: &mut [f32; 256]) {
    let (d, m) = (half(block), half(&block[2..]));
    let (scales, qs) = (&block[4..16], &block[16..]);
    for i in 0..8 {
        let to: &mut [f32; 32] = (&mut to[32 * i..][..32]).try_into().expect("32");
        let (scale, offset) = q4_scale_offset(scales, i);
        let (scale, offset) = (d * f32::from(scale), m * f32::from(offset));
        let shift = i % 2 * 4;
        let qs = &qs[i / 2 * 32..][..32];
        for j in 0..32 {
            to[j] = scale * f32::from((qs[j] >> shift) & 15) - offset;
        }
    }
}

#[inline(always)]
pub(super) fn dequantize_q5_k(block: &[u8; 176], to: &mut [f32; 256]) {
    let (d, m) = (half(block), half(&block[2..]));
    let (scales, high, qs) = (&block[4..16], &block[16..48], &block[48..]);
    for i in 0..8 {
        let to: &mut [f32; 32] = (&mut to[32 * i..][..32]).try_into().expect("32");
        let (scale, offset) = q4_scale_offset(scales, i);
        let (scale, offset) = (d * f32::from(scale), m * f32::from(offset));
        let shift = i % 2 * 4;
        let qs = &qs[i / 2 * 32..][..32];
        for j in 0..32 {
            let q = ((qs[j] >> shift) & 15) | ((high[j] >> i) & 1) << 4;
            to[j] = scale * f32::from(q) - offset;
        }
    }
}

#[inline(always)]
pub(super) fn dequantize_q6_k(block: &[u8; 210], to: &mut [f32; 256]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(&block[208..]);
    for i in 0..16 {
        let to: &mut [f32; 16] = (&mut to[16 * i..][..16]).try_into().expect("sixteen");
        let scale = d * f32::from(scales[i] as i8);
        // 128 weights are four rows of 32; rows 0 and 2 share a row of low nibbles, as 1 and 3 do.
        let (half, row, part) = (i / 8, i % 8 / 2, i % 2);
        let low = &low[half * 64 + row % 2 * 32 + part * 16..][..16];
        let high = &high[half * 32 + part * 16..][..16];
        for j in 0..16 {
            let q = ((low[j] >> (row / 2 * 4)) & 15) | ((high[j] >> (row * 2)) & 3) << 4;
            to[j] = scale * f32::from(q as i8 - 32);
        }
    }
}
