//! Weights arranged for products of integers: eight rows side by side.
//!
//! A vector register then holds four columns of eight rows, four columns of the activations serve all of them,
//! and sums of different rows never have to be added across a register. The bits are those of the file, in
//! another order; only the 6-bit scales of `Q4_K` take a byte each.
//!
//! A panel is eight rows; it consists of blocks of 32 or 256 columns of all of them:
//!
//! | format | block |
//! |---|---|
//! | `Q4_0` | 8 `d`, 4 × 8 × 4 bytes of nibbles |
//! | `Q4_1` | 8 `d`, 8 `m`, 4 × 8 × 4 bytes of nibbles |
//! | `Q8_0` | 8 `d`, 8 × 8 × 4 bytes |
//! | `Q4_K` | 8 `d`, 8 `dmin`, 8 × 8 scales, 8 × 8 offsets, 8 × 4 × 8 × 4 bytes of nibbles |
//! | `Q6_K` | 8 `d`, 8 × 8 × 2 scales, 8 × (4 × 8 × 4 bytes of nibbles, 2 × 8 × 4 bytes of upper bits) |
//!
//! A byte of nibbles at place `j` of 16 is columns `j` and `j + 16` of 32; a byte of upper bits at place `j` of 8
//! is columns `j`, `j + 8`, `j + 16` and `j + 24`. `Q5_0` is arranged as `Q8_0`, `Q3_K` as `Q6_K`: the same numbers
//! with room to spare, which costs memory and saves unpacking.

use std::ops::Range;

use super::activation::Activations;
use super::part::Part;
use crate::cpu::pool;
use crate::cpu::simd::{self, Level};
use crate::quant::{BlockFormat, group, q3_scales, six_bits};

/// Rows of a panel.
pub(super) const HEIGHT: usize = 8;

/// A matrix arranged in panels.
pub(crate) struct Panels {
    format: BlockFormat,
    rows: usize,
    /// Bytes of a panel.
    size: usize,
    bytes: Vec<Line>,
}

/// A cache line: loads of panels do not cross lines more often than they must.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The format whose panels hold a format: its own, or one with more bits and scales of the same kind.
const fn arranged_as(format: BlockFormat) -> Option<BlockFormat> {
    match format {
        BlockFormat::Q5_0 => Some(BlockFormat::Q8_0),
        BlockFormat::Q3K => Some(BlockFormat::Q6K),
        other if block_bytes(other).is_some() => Some(other),
        _ => None,
    }
}

/// Bytes of a block of eight rows; `None` where the format is not arranged.
const fn block_bytes(format: BlockFormat) -> Option<usize> {
    match format {
        BlockFormat::Q4_0 => Some(16 + 128),
        BlockFormat::Q4_1 => Some(32 + 128),
        BlockFormat::Q8_0 => Some(16 + 256),
        BlockFormat::Q4K => Some(32 + 128 + 1024),
        BlockFormat::Q6K => Some(16 + 128 + 8 * 192),
        _ => None,
    }
}

impl Panels {
    /// Arranges a matrix; `None` where this machine or this format has no use for it.
    pub(crate) fn new(format: BlockFormat, bytes: &[u8], rows: usize, cols: usize) -> Option<Self> {
        if !matches!(simd::level(), Level::Avx2 | Level::Avx512) {
            return None;
        }
        let target = arranged_as(format)?;
        let block = block_bytes(target)?;
        let size = cols / format.block_len() * block;
        let count = rows.div_ceil(HEIGHT);
        if size == 0 || count == 0 {
            return None;
        }
        let lines = (count * size).div_ceil(size_of::<Line>());
        let mut panels = vec![bytemuck::Zeroable::zeroed(); lines];
        let all = &mut bytemuck::cast_slice_mut::<Line, u8>(&mut panels)[..count * size];
        let row = format.row_bytes(cols)?;
        pool::pieces(all, size, |i, panel| {
            let first = i * HEIGHT;
            for r in 0..HEIGHT.min(rows - first) {
                let from = bytes[(first + r) * row..][..row].chunks_exact(format.block_bytes());
                for (from, to) in from.zip(panel.chunks_exact_mut(block)) {
                    arrange(format, from, r, to);
                }
            }
        });
        Some(Self {
            format: target,
            rows,
            size,
            bytes: panels,
        })
    }

    /// Bytes of all panels.
    pub(crate) fn len(&self) -> usize {
        self.rows.div_ceil(HEIGHT) * self.size
    }

    /// Products for a range of rows, which begins at a panel.
    pub(super) fn multiply(&self, x: &Activations, range: Range<usize>, to: &Part<'_>) {
        let all = bytemuck::cast_slice::<Line, u8>(&self.bytes);
        for first in range.clone().step_by(HEIGHT) {
            let panel = &all[first / HEIGHT * self.size..][..self.size];
            let count = HEIGHT.min(range.end - first);
            let out = |v: usize, sums: &[f32; HEIGHT]| {
                to.get(v, first, count).copy_from_slice(&sums[..count]);
            };
            #[cfg(target_arch = "x86_64")]
            super::avx2::panel(self.format, panel, x, out);
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (self.format, panel, x, out);
        }
    }
}

/// Writes a block of row `r` into its place among eight.
fn arrange(format: BlockFormat, from: &[u8], r: usize, to: &mut [u8]) {
    // Four bytes of each row in turn.
    fn spread(from: &[u8], r: usize, to: &mut [u8]) {
        let pieces = to.chunks_exact_mut(4 * HEIGHT);
        for (from, to) in from.chunks_exact(4).zip(pieces) {
            to[4 * r..][..4].copy_from_slice(from);
        }
    }
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q8_0 => {
            to[2 * r..][..2].copy_from_slice(&from[..2]);
            spread(&from[2..], r, &mut to[16..]);
        }
        BlockFormat::Q4_1 => {
            to[2 * r..][..2].copy_from_slice(&from[..2]);
            to[16 + 2 * r..][..2].copy_from_slice(&from[2..4]);
            spread(&from[4..], r, &mut to[32..]);
        }
        BlockFormat::Q4K => {
            to[2 * r..][..2].copy_from_slice(&from[..2]);
            to[16 + 2 * r..][..2].copy_from_slice(&from[2..4]);
            for i in 0..8 {
                let (scale, offset) = six_bits(&from[4..16], i);
                to[32 + 8 * i + r] = scale;
                to[96 + 8 * i + r] = offset;
                let q = group(format, from, i).q;
                let bytes: [u8; 16] = std::array::from_fn(|j| (q[j] | q[j + 16] << 4) as u8);
                spread(&bytes, r, &mut to[160 + 128 * i..][..128]);
            }
        }
        BlockFormat::Q5_0 => {
            to[2 * r..][..2].copy_from_slice(&from[..2]);
            let q = group(format, from, 0).q.map(|q| (q - 16) as u8);
            spread(&q, r, &mut to[16..]);
        }
        BlockFormat::Q3K | BlockFormat::Q6K => {
            let (scales, d) = if format == BlockFormat::Q3K {
                (q3_scales(&from[96..108]).map(|s| s as u8), &from[108..])
            } else {
                (std::array::from_fn(|i| from[192 + i]), &from[208..])
            };
            to[2 * r..][..2].copy_from_slice(d);
            for i in 0..8 {
                let at = 16 + 16 * i + 2 * r;
                to[at..at + 2].copy_from_slice(&scales[2 * i..][..2]);
                let q = group(format, from, i).q.map(|q| (q + 32) as u8);
                let low: [u8; 16] = std::array::from_fn(|j| (q[j] & 15) | (q[j + 16] & 15) << 4);
                let high: [u8; 8] = std::array::from_fn(|j| {
                    (0..4).fold(0, |byte, k| byte | (q[j + 8 * k] >> 4) << (2 * k))
                });
                let to = &mut to[144 + 192 * i..][..192];
                spread(&low, r, &mut to[..128]);
                spread(&high, r, &mut to[128..]);
            }
        }
        _ => unreachable!("formats without blocks of eight rows are not arranged"),
    }
}
