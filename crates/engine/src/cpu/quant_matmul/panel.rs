//! Weights arranged for products of integers: eight rows side by side.
//!
//! A vector register then holds four columns of eight rows, four columns of the activations serve all of them,
//! and sums of different rows never have to be added across a register. The bits are those of the file, in
//! another order; only scales of 4 and 6 bits take a byte each.
//!
//! A panel is eight rows; it consists of blocks of 32 or 256 columns of all of them:
//!
//! | format | block |
//! |---|---|
//! | `Q4_0` | 8 `d`, 4 × 8 × 4 bytes of nibbles |
//! | `Q4_1` | 8 `d`, 8 `m`, 4 × 8 × 4 bytes of nibbles |
//! | `Q5_0` | 8 `d`, 8 × 4 bytes of fifth bits, 4 × 8 × 4 bytes of nibbles |
//! | `Q5_1` | 8 `d`, 8 `m`, as `Q5_0` |
//! | `Q8_0` | 8 `d`, 8 × 8 × 4 bytes |
//! | `Q2_K` | 8 `d`, 8 `dmin`, 8 × 8 × 2 scales, 8 × 8 × 2 offsets, 8 × 2 × 8 × 4 bytes of pairs of bits |
//! | `Q3_K` | 8 `d`, 8 × 8 × 2 scales, 8 × (8 × 4 bytes of third bits, 2 × 8 × 4 bytes of pairs of bits) |
//! | `Q4_K` | 8 `d`, 8 `dmin`, 8 × 8 scales, 8 × 8 offsets, 8 × 4 × 8 × 4 bytes of nibbles |
//! | `Q5_K` | as `Q4_K`, and before the nibbles of every 32 columns 8 × 4 bytes of fifth bits |
//! | `Q6_K` | 8 `d`, 8 × 8 × 2 scales, 8 × (4 × 8 × 4 bytes of nibbles, 2 × 8 × 4 bytes of upper bits) |
//!
//! A byte of nibbles at place `j` of 16 is columns `j` and `j + 16` of 32; a byte of pairs of bits at place `j` of
//! 8 is columns `j`, `j + 8`, `j + 16` and `j + 24`; a byte of single bits at place `j` of 4 is every fourth
//! column from `j` on.

use std::ops::Range;

use super::activation::Activations;
use super::shared_output::SharedOutput;
use crate::cpu::huge_pages::{ArenaSlice, REPACK_BAND_BYTES};
use crate::cpu::pool;
use crate::cpu::simd::{self, Family, Features, MAX_MATVEC_ROWS};
use crate::quant::{BlockFormat, group, q3_scales, six_bits};

/// Rows of a panel.
pub(super) const HEIGHT: usize = 8;

/// Panels that are multiplied together: tasks have a multiple of so many.
pub(super) const TOGETHER: usize = 2;

/// Vectors from which on weights whose bits are in two places are put together for all of them before.
const MANY: usize = 16;

/// A matrix arranged in panels.
pub(crate) struct Panels {
    format: BlockFormat,
    rows: usize,
    /// Bytes of a panel.
    size: usize,
    bytes: ArenaSlice,
}

/// Whether this machine multiplies panels.
pub(super) fn is_useful() -> bool {
    // Others multiply rows as they are in the file.
    !matches!(
        simd::chosen(Family::QuantMatvec),
        Features::Scalar | Features::Neon
    )
}

/// Bytes of the panels of a matrix.
pub(super) fn bytes(format: BlockFormat, rows: usize, cols: usize) -> usize {
    rows.div_ceil(HEIGHT) * (cols / format.block_len()) * block_bytes(format)
}

/// Bytes of a block of eight rows.
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
    /// Arranges a matrix; `None` where this machine has no use for it.
    pub(crate) fn new(
        format: BlockFormat,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        is_useful().then(|| Self::arrange(format, bytes, rows, cols, copied))?
    }

    /// Arranges a matrix that has rows and columns.
    pub(super) fn arrange(
        format: BlockFormat,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        let block = block_bytes(format);
        let size = cols / format.block_len() * block;
        let count = rows.div_ceil(HEIGHT);
        if size == 0 || count == 0 {
            return None;
        }
        let mut panels = ArenaSlice::new(count * size);
        let row = format.row_bytes(cols)?;
        let band = (REPACK_BAND_BYTES / size).max(1);
        for (i, band_panels) in panels.bytes_mut().chunks_mut(band * size).enumerate() {
            let start = i * band * HEIGHT;
            pool::for_each_chunk(band_panels, size, |i, panel| {
                let first = start + i * HEIGHT;
                for r in 0..HEIGHT.min(rows - first) {
                    let from = bytes[(first + r) * row..][..row].chunks_exact(format.block_bytes());
                    for (from, to) in from.zip(panel.chunks_exact_mut(block)) {
                        arrange(format, from, r, to);
                    }
                }
            });
            copied(start * row..(start + band * HEIGHT).min(rows) * row);
        }
        Some(Self {
            format,
            rows,
            size,
            bytes: panels,
        })
    }

    /// Calls `f` with the format, all panels, and the bytes of each.
    #[cfg(test)]
    pub(super) fn with<T>(&self, f: impl FnOnce(BlockFormat, &[u8], usize) -> T) -> T {
        f(self.format, self.bytes.bytes(), self.size)
    }

    /// Bytes of all panels.
    pub(crate) fn len(&self) -> usize {
        self.rows.div_ceil(HEIGHT) * self.size
    }

    /// Whether products with so many vectors put weights together before, and want activations without sign for it.
    pub(super) fn wants_raised(&self, vectors: usize) -> bool {
        features(vectors) == Features::Avx2 && self.format == BlockFormat::Q6K && vectors >= MANY
    }

    /// Products for a range of rows, which begins at a panel.
    pub(super) fn multiply(&self, x: &Activations, range: Range<usize>, to: &SharedOutput<'_>) {
        let parts = x.parts();
        // Takes the sums of a row of activations with one panel of the range or more.
        let out = |v: usize, panel: usize, sums: &[f32]| {
            let first = range.start + panel * HEIGHT;
            let count = sums.len().min(range.end - first);
            let to = to.get(v / parts, first, count);
            if !v.is_multiple_of(parts) {
                to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
            } else if count == sums.len() {
                // A length that is known where this is inlined.
                to.copy_from_slice(sums);
            } else {
                to.copy_from_slice(&sums[..count]);
            }
        };
        let all = range.start / HEIGHT * self.size..range.end.div_ceil(HEIGHT) * self.size;
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

/// The kernels for so many rows of activations.
fn features(rows: usize) -> Features {
    simd::chosen(if rows <= MAX_MATVEC_ROWS {
        Family::QuantMatvec
    } else {
        Family::QuantMatmul
    })
}

/// Four bytes of each row in turn.
fn spread(from: &[u8], r: usize, to: &mut [u8]) {
    let pieces = to.chunks_exact_mut(4 * HEIGHT);
    for (from, to) in from.chunks_exact(4).zip(pieces) {
        to[4 * r..][..4].copy_from_slice(from);
    }
}

/// The low four bits of 32 numbers.
fn nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| (q[j] & 15) | (q[j + 16] & 15) << 4)
}

/// Two bits of 32 numbers, from bit `at` on.
fn crumbs(q: &[u8; 32], at: u32) -> [u8; 8] {
    std::array::from_fn(|j| (0..4).fold(0, |byte, k| byte | ((q[j + 8 * k] >> at) & 3) << (2 * k)))
}

/// Bit `at` of 32 numbers.
fn single_bits(q: &[u8; 32], at: u32) -> [u8; 4] {
    std::array::from_fn(|j| (0..8).fold(0, |byte, k| byte | ((q[j + 4 * k] >> at) & 1) << k))
}

/// Writes a block of row `r` into its place among eight.
fn arrange(format: BlockFormat, from: &[u8], r: usize, to: &mut [u8]) {
    // The numbers of a group, none of them negative.
    let levels = |i: usize, zero: i8| group(format, from, i).q.map(|q| (q + zero) as u8);
    let mut half = |at: usize, from: &[u8]| to[at + 2 * r..][..2].copy_from_slice(&from[..2]);
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q8_0 => {
            half(0, from);
            spread(&from[2..], r, &mut to[16..]);
        }
        BlockFormat::Q4_1 => {
            half(0, from);
            half(16, &from[2..]);
            spread(&from[4..], r, &mut to[32..]);
        }
        BlockFormat::Q5_0 | BlockFormat::Q5_1 => {
            half(0, from);
            let mut head = 16;
            if format == BlockFormat::Q5_1 {
                half(16, &from[2..]);
                head = 32;
            }
            let q = levels(0, 0);
            spread(&single_bits(&q, 4), r, &mut to[head..head + 32]);
            spread(&nibbles(&q), r, &mut to[head + 32..]);
        }
        BlockFormat::Q4K | BlockFormat::Q5K => {
            half(0, from);
            half(16, &from[2..]);
            let size = if format == BlockFormat::Q5K { 160 } else { 128 };
            for i in 0..8 {
                let (scale, offset) = six_bits(&from[4..16], i);
                to[32 + 8 * i + r] = scale;
                to[96 + 8 * i + r] = offset;
                let q = levels(i, 0);
                let (bits, low) = to[160 + size * i..][..size].split_at_mut(size - 128);
                if !bits.is_empty() {
                    spread(&single_bits(&q, 4), r, bits);
                }
                spread(&nibbles(&q), r, low);
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
                spread(&crumbs(&levels(i, 0), 0), r, &mut to[288 + 64 * i..][..64]);
            }
        }
        BlockFormat::Q3K => {
            half(0, &from[108..]);
            let scales = q3_scales(&from[96..108]).map(|s| s as u8);
            for i in 0..8 {
                to[16 + 16 * i + 2 * r..][..2].copy_from_slice(&scales[2 * i..][..2]);
                let q = levels(i, 4);
                let to = &mut to[144 + 96 * i..][..96];
                spread(&single_bits(&q, 2), r, &mut to[..32]);
                spread(&crumbs(&q, 0), r, &mut to[32..]);
            }
        }
        BlockFormat::Q6K => {
            half(0, &from[208..]);
            for i in 0..8 {
                to[16 + 16 * i + 2 * r..][..2].copy_from_slice(&from[192 + 2 * i..][..2]);
                let q = levels(i, 32);
                let to = &mut to[144 + 192 * i..][..192];
                spread(&nibbles(&q), r, &mut to[..128]);
                spread(&crumbs(&q, 4), r, &mut to[128..]);
            }
        }
    }
}
