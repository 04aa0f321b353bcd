//! Quantised weights repacked for integer dot products: eight rows interleaved.
//!
//! A vector register then holds four columns of eight rows, all of which use the same four activations, and no sum
//! needs a horizontal addition. The bits are those of the file, in another order; only scales of 4 and 6 bits take a
//! byte each.
//!
//! A panel is eight rows; it consists of blocks of 32 or 256 columns of all eight:
//!
//! | format | block |
//! |---|---|
//! | `Q4_0` | 8 `d`, 4 × 8 × 4 bytes of nibbles |
//! | `Q4_1` | 8 `d`, 8 `m`, 4 × 8 × 4 bytes of nibbles |
//! | `Q5_0` | 8 `d`, 8 × 4 bytes of fifth bits, 4 × 8 × 4 bytes of nibbles |
//! | `Q5_1` | 8 `d`, 8 `m`, as `Q5_0` |
//! | `Q8_0` | 8 `d`, 8 × 8 × 4 bytes |
//! | `Q2_K` | 8 `d`, 8 `dmin`, 8 × 8 × 2 scales, 8 × 8 × 2 offsets, 8 × 2 × 8 × 4 bytes of bit pairs |
//! | `Q3_K` | 8 `d`, 8 × 8 × 2 scales, 8 × (8 × 4 bytes of third bits, 2 × 8 × 4 bytes of bit pairs) |
//! | `Q4_K` | 8 `d`, 8 `dmin`, 8 × 8 scales, 8 × 8 offsets, 8 × 4 × 8 × 4 bytes of nibbles |
//! | `Q5_K` | as `Q4_K`, and before the nibbles of every 32 columns 8 × 4 bytes of fifth bits |
//! | `Q6_K` | 8 `d`, 8 × 8 × 2 scales, 8 × (4 × 8 × 4 bytes of nibbles, 2 × 8 × 4 bytes of high bits) |
//!
//! Byte `j` of 16 bytes of nibbles stores columns `j` and `j + 16` of 32; byte `j` of 8 bytes of bit pairs stores
//! columns `j`, `j + 8`, `j + 16` and `j + 24`; byte `j` of 4 bytes of single bits stores every fourth column from `j`
//! on.

use std::ops::Range;

use super::activation::Activations;
use super::shared_output::SharedOutput;
use crate::cpu::huge_pages::{ArenaSlice, REPACK_BAND_BYTES};
use crate::cpu::pool;
use crate::cpu::simd::{self, Family, Features, MAX_MATVEC_ROWS};
use crate::quant::{BlockFormat, group, q3_scales, q4_scale_offset};

/// Number of rows of a panel.
pub(super) const PANEL_ROWS: usize = 8;

/// Panels that a kernel multiplies at a time; tasks have a multiple of it.
pub(super) const TILE_PANELS: usize = 2;

/// From this many activation rows, merge Q6_K's low and high bits once per panel instead of once per row.
const MIN_MERGED_ROWS: usize = 16;

/// A matrix repacked into panels.
pub(crate) struct Panels {
    format: BlockFormat,
    rows: usize,
    /// Size of a panel in bytes.
    size: usize,
    bytes: ArenaSlice,
}

/// Returns true if this machine has kernels for panels.
pub(super) fn is_useful() -> bool {
    // Others multiply rows in the layout of the file.
    !matches!(
        simd::chosen(Family::QuantMatvec),
        Features::Scalar | Features::Neon
    )
}

/// Size in bytes of the panels of a matrix.
pub(super) fn bytes(format: BlockFormat, rows: usize, cols: usize) -> usize {
    let blocks = rows
        .div_ceil(PANEL_ROWS)
        .saturating_mul(cols / format.block_len());
    blocks.saturating_mul(block_bytes(format))
}

/// Size in bytes of a block of eight rows.
pub(super) const fn block_bytes(format: BlockFormat) -> usize {
    match format {
        BlockFormat::Q4_0 => 16 + 128,
        BlockFormat::Q4_1 => 32 + 128,
        BlockFormat::Q5_0 => 16 + 32 + 128,
        BlockFormat::Q5_1 => 32 + 32 + 128,
        BlockFormat::Q8_0 => 16 + 256,
        BlockFormat::Q2K => 32 + 256 + 8 * 64,
        BlockFormat::Q3K => 16 + 128 + 8 * 96,
        BlockFormat::Q4K => 32 + 128 + 8 * 128,
        BlockFormat::Q5K => 32 + 128 + 8 * 160,
        BlockFormat::Q6K => 16 + 128 + 8 * 192,
    }
}

impl Panels {
    /// Repacks a matrix; `None` if this machine has no kernels for panels.
    pub(crate) fn new(
        format: BlockFormat,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        is_useful().then(|| Self::repack(format, bytes, rows, cols, copied))?
    }

    /// Repacks a matrix; `None` if it is empty, or memory is exhausted.
    pub(super) fn repack(
        format: BlockFormat,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        let block = block_bytes(format);
        let size = cols / format.block_len() * block;
        let count = rows.div_ceil(PANEL_ROWS);
        if size == 0 || count == 0 {
            return None;
        }
        let mut panels = ArenaSlice::new(count.checked_mul(size)?)?;
        let row = format.row_bytes(cols)?;
        let band = (REPACK_BAND_BYTES / size).max(1);
        for (i, band_panels) in panels.bytes_mut().chunks_mut(band * size).enumerate() {
            let start = i * band * PANEL_ROWS;
            pool::for_each_chunk(band_panels, size, |i, panel| {
                let first = start + i * PANEL_ROWS;
                for r in 0..PANEL_ROWS.min(rows - first) {
                    let from = bytes[(first + r) * row..][..row].chunks_exact(format.block_bytes());
                    for (from, to) in from.zip(panel.chunks_exact_mut(block)) {
                        repack_block(format, from, r, to);
                    }
                }
            });
            copied(start * row..(start + band * PANEL_ROWS).min(rows) * row);
        }
        Some(Self {
            format,
            rows,
            size,
            bytes: panels,
        })
    }

    /// Calls `f` with the format, all panels, and the size of each.
    #[cfg(test)]
    pub(super) fn with<T>(&self, f: impl FnOnce(BlockFormat, &[u8], usize) -> T) -> T {
        f(self.format, self.bytes.bytes(), self.size)
    }

    /// Size of all panels in bytes.
    pub(crate) fn len(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS) * self.size
    }

    /// Returns true if products with this many vectors merge Q6_K's bits per panel, which needs biased activations.
    pub(super) fn wants_biased(&self, vectors: usize) -> bool {
        features(vectors) == Features::Avx2
            && self.format == BlockFormat::Q6K
            && vectors >= MIN_MERGED_ROWS
    }

    /// Multiplies a range of rows, which starts at a panel.
    pub(super) fn multiply(&self, x: &Activations, range: Range<usize>, to: &SharedOutput<'_>) {
        let terms = x.terms();
        // Stores the sums of a row of activations with one or more panels of the range.
        let out = |v: usize, panel: usize, sums: &[f32]| {
            let first = range.start + panel * PANEL_ROWS;
            let count = sums.len().min(range.end - first);
            let to = to.get(v / terms, first, count);
            if !v.is_multiple_of(terms) {
                to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
            } else if count == sums.len() {
                // The length is a constant after inlining.
                to.copy_from_slice(sums);
            } else {
                to.copy_from_slice(&sums[..count]);
            }
        };
        let all = range.start / PANEL_ROWS * self.size..range.end.div_ceil(PANEL_ROWS) * self.size;
        let panels = &self.bytes.bytes()[all];
        match features(x.rows()) {
            #[cfg(target_arch = "x86_64")]
            Features::Avx512Vnni => {
                super::avx512::multiply(self.format, panels, self.size, x, out);
            }
            #[cfg(target_arch = "x86_64")]
            _ => super::avx2::panels(self.format, panels, self.size, x, out),
            #[cfg(target_arch = "aarch64")]
            Features::NeonI8mm => {
                super::neon::multiply::<true>(self.format, panels, self.size, x, out);
            }
            #[cfg(target_arch = "aarch64")]
            _ => super::neon::multiply::<false>(self.format, panels, self.size, x, out),
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            _ => drop((self.format, panels, x, out)),
        }
    }
}

/// The features to use for a number of activation rows.
fn features(rows: usize) -> Features {
    simd::chosen(if rows <= MAX_MATVEC_ROWS {
        Family::QuantMatvec
    } else {
        Family::QuantMatmul
    })
}

/// Interleaves the bytes of row `r`, four at a time.
fn interleave(from: &[u8], r: usize, to: &mut [u8]) {
    let pieces = to.chunks_exact_mut(4 * PANEL_ROWS);
    for (from, to) in from.chunks_exact(4).zip(pieces) {
        to[4 * r..][..4].copy_from_slice(from);
    }
}

/// Packs the low four bits of 32 levels.
fn nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| (q[j] & 15) | (q[j + 16] & 15) << 4)
}

/// Packs two bits of 32 levels, from bit `at` on.
fn bit_pairs(q: &[u8; 32], at: u32) -> [u8; 8] {
    std::array::from_fn(|j| (0..4).fold(0, |byte, k| byte | ((q[j + 8 * k] >> at) & 3) << (2 * k)))
}

/// Packs bit `at` of 32 levels.
fn single_bits(q: &[u8; 32], at: u32) -> [u8; 4] {
    std::array::from_fn(|j| (0..8).fold(0, |byte, k| byte | ((q[j + 4 * k] >> at) & 1) << k))
}

/// Interleaves a block of row `r` of eight into a panel.
fn repack_block(format: BlockFormat, from: &[u8], r: usize, to: &mut [u8]) {
    // The levels of a group, offset to be non-negative.
    let levels = |i: usize, zero: i8| group(format, from, i).q.map(|q| (q + zero) as u8);
    let mut half = |at: usize, from: &[u8]| to[at + 2 * r..][..2].copy_from_slice(&from[..2]);
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q8_0 => {
            half(0, from);
            interleave(&from[2..], r, &mut to[16..]);
        }
        BlockFormat::Q4_1 => {
            half(0, from);
            half(16, &from[2..]);
            interleave(&from[4..], r, &mut to[32..]);
        }
        BlockFormat::Q5_0 | BlockFormat::Q5_1 => {
            half(0, from);
            let mut head = 16;
            if format == BlockFormat::Q5_1 {
                half(16, &from[2..]);
                head = 32;
            }
            let q = levels(0, 0);
            interleave(&single_bits(&q, 4), r, &mut to[head..head + 32]);
            interleave(&nibbles(&q), r, &mut to[head + 32..]);
        }
        BlockFormat::Q4K | BlockFormat::Q5K => {
            half(0, from);
            half(16, &from[2..]);
            let size = if format == BlockFormat::Q5K { 160 } else { 128 };
            for i in 0..8 {
                let (scale, offset) = q4_scale_offset(&from[4..16], i);
                to[32 + 8 * i + r] = scale;
                to[96 + 8 * i + r] = offset;
                let q = levels(i, 0);
                let (bits, low) = to[160 + size * i..][..size].split_at_mut(size - 128);
                if !bits.is_empty() {
                    interleave(&single_bits(&q, 4), r, bits);
                }
                interleave(&nibbles(&q), r, low);
            }
        }
        BlockFormat::Q2K => {
            half(0, &from[80..]);
            half(16, &from[82..]);
            for i in 0..8 {
                for half in 0..2 {
                    let (byte, at) = (from[2 * i + half], 16 * i + 2 * r + half);
                    to[32 + at] = byte & 15;
                    to[160 + at] = byte >> 4;
                }
                interleave(
                    &bit_pairs(&levels(i, 0), 0),
                    r,
                    &mut to[288 + 64 * i..][..64],
                );
            }
        }
        BlockFormat::Q3K => {
            half(0, &from[108..]);
            let scales = q3_scales(&from[96..108]).map(|s| s as u8);
            for i in 0..8 {
                to[16 + 16 * i + 2 * r..][..2].copy_from_slice(&scales[2 * i..][..2]);
                let q = levels(i, 4);
                let to = &mut to[144 + 96 * i..][..96];
                interleave(&single_bits(&q, 2), r, &mut to[..32]);
                interleave(&bit_pairs(&q, 0), r, &mut to[32..]);
            }
        }
        BlockFormat::Q6K => {
            half(0, &from[208..]);
            for i in 0..8 {
                to[16 + 16 * i + 2 * r..][..2].copy_from_slice(&from[192 + 2 * i..][..2]);
                let q = levels(i, 32);
                let to = &mut to[144 + 192 * i..][..192];
                interleave(&nibbles(&q), r, &mut to[..128]);
                interleave(&bit_pairs(&q, 4), r, &mut to[128..]);
            }
        }
    }
}
