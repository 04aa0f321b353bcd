//! Blocks unpacked to integers, for integer dot products.

use super::k_quants::{q3_scales, q4_scale_offset};
use super::{BlockFormat, half};

/// 32 weights as integers: weight `i` is `scale[i / 16] * q[i] - offset[i / 16]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) q: [i8; 32],
    pub(crate) scale: [f32; 2],
    pub(crate) offset: [f32; 2],
}

/// Unpacks group `i` of a block.
#[inline(always)]
pub(crate) fn group(format: BlockFormat, block: &[u8], i: usize) -> Group {
    match format {
        BlockFormat::Q4_0 => {
            let d = half(block);
            signed(nibbles(&block[2..]), d, 8.0)
        }
        BlockFormat::Q4_1 => {
            let (d, m) = (half(block), half(&block[2..]));
            affine(nibbles(&block[4..]), d, -m)
        }
        BlockFormat::Q5_0 => {
            let d = half(block);
            let q = five_bits(&block[2..6], &block[6..]);
            signed(q, d, 16.0)
        }
        BlockFormat::Q5_1 => {
            let (d, m) = (half(block), half(&block[2..]));
            let q = five_bits(&block[4..8], &block[8..]);
            affine(q, d, -m)
        }
        BlockFormat::Q8_0 => {
            let q = std::array::from_fn(|j| block[2 + j] as i8);
            affine(q, half(block), 0.0)
        }
        BlockFormat::Q2K => {
            let (d, m) = (half(&block[80..]), half(&block[82..]));
            let shift = i % 4 * 2;
            let qs = &block[16 + i / 4 * 32..][..32];
            let scales = [block[2 * i], block[2 * i + 1]];
            Group {
                q: std::array::from_fn(|j| ((qs[j] >> shift) & 3) as i8),
                scale: scales.map(|s| d * f32::from(s & 15)),
                offset: scales.map(|s| m * f32::from(s >> 4)),
            }
        }
        BlockFormat::Q3K => {
            let d = half(&block[108..]);
            let shift = i % 4 * 2;
            let qs = &block[32 + i / 4 * 32..][..32];
            let mask = &block[..32];
            let scales = q3_scales(&block[96..108]);
            Group {
                q: std::array::from_fn(|j| {
                    (((qs[j] >> shift) & 3) | ((mask[j] >> i) & 1) << 2) as i8 - 4
                }),
                scale: [scales[2 * i], scales[2 * i + 1]].map(|s| d * f32::from(s)),
                offset: [0.0; 2],
            }
        }
        BlockFormat::Q4K => {
            let (d, m) = (half(block), half(&block[2..]));
            let (scale, offset) = q4_scale_offset(&block[4..16], i);
            let qs = &block[16 + i / 2 * 32..][..32];
            let shift = i % 2 * 4;
            let q = std::array::from_fn(|j| ((qs[j] >> shift) & 15) as i8);
            affine(q, d * f32::from(scale), m * f32::from(offset))
        }
        BlockFormat::Q5K => {
            let (d, m) = (half(block), half(&block[2..]));
            let (scale, offset) = q4_scale_offset(&block[4..16], i);
            let (high, qs) = (&block[16..48], &block[48 + i / 2 * 32..][..32]);
            let shift = i % 2 * 4;
            let q = std::array::from_fn(|j| {
                (((qs[j] >> shift) & 15) | ((high[j] >> i) & 1) << 4) as i8
            });
            affine(q, d * f32::from(scale), m * f32::from(offset))
        }
        BlockFormat::Q6K => {
            let d = half(&block[208..]);
            let scales = [block[192 + 2 * i] as i8, block[193 + 2 * i] as i8];
            let row = i % 4;
            let low = &block[i / 4 * 64 + row % 2 * 32..][..32];
            let high = &block[128 + i / 4 * 32..][..32];
            let q = std::array::from_fn(|j| {
                let low = (low[j] >> (row / 2 * 4)) & 15;
                (low | ((high[j] >> (row * 2)) & 3) << 4) as i8 - 32
            });
            Group {
                q,
                scale: scales.map(|s| d * f32::from(s)),
                offset: [0.0; 2],
            }
        }
    }
}

#[inline(always)]
fn affine(q: [i8; 32], scale: f32, offset: f32) -> Group {
    Group {
        q,
        scale: [scale; 2],
        offset: [offset; 2],
    }
}

#[inline(always)]
fn signed(q: [i8; 32], scale: f32, zero: f32) -> Group {
    affine(q, scale, scale * zero)
}

#[inline(always)]
fn nibbles(qs: &[u8]) -> [i8; 32] {
    std::array::from_fn(|j| ((qs[j % 16] >> (j / 16 * 4)) & 15) as i8)
}

#[inline(always)]
fn five_bits(high: &[u8], qs: &[u8]) -> [i8; 32] {
    let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
    std::array::from_fn(|j| {
        let low = (qs[j % 16] >> (j / 16 * 4)) & 15;
        (low | (((high >> j) & 1) << 4) as u8) as i8
    })
}
