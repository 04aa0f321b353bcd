//! Integer kernels on panels, for processors with 4-way dot products of bytes: AVX-512 with VNNI, ARM with dotprod or
//! i8mm.
//!
//! Written once, generic over the instructions of the processor ([`Lanes`]): a group of 32 columns of any format is
//! unpacked to one byte per weight and multiplied. Integers are exact and floats are added in a fixed order, so results
//! are bit-identical on all processors, including the portable implementation in [`tests`].
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]
#![expect(
    unsafe_code,
    reason = "instructions that the caller detected, on pointers into slices whose lengths were checked"
)]

#[cfg(test)]
mod tests;

use super::activation::{ActivationRow, Activations, GROUP_LEN, Scale};
use super::panel::{PANEL_ROWS, TILE_PANELS, block_bytes};
use crate::quant::BlockFormat;

/// Rows of two panels, the maximum of a kernel.
pub(super) const TILE_ROWS: usize = TILE_PANELS * PANEL_ROWS;

/// A position in a panel, and the same position in the second panel of the pair.
#[derive(Clone, Copy)]
pub(super) struct PanelCursor {
    at: *const u8,
    /// Distance of the second panel in bytes.
    apart: usize,
    /// True if the panel is read from memory: for vectors after the first it is cached.
    is_streamed: bool,
}

impl PanelCursor {
    #[inline(always)]
    fn add(self, bytes: usize) -> Self {
        Self {
            at: self.at.wrapping_add(bytes),
            ..self
        }
    }

    /// The position in the first panel.
    #[inline(always)]
    pub(super) fn first(self) -> *const u8 {
        self.at
    }

    /// The position in the second panel.
    #[inline(always)]
    #[cfg_attr(
        not(any(target_arch = "x86_64", test)),
        expect(dead_code, reason = "only AVX-512 takes two panels")
    )]
    pub(super) fn second(self) -> *const u8 {
        self.at.wrapping_add(self.apart)
    }
}

/// Prefetches `bytes` bytes, `PREFETCH_BYTES` after `offset` in a panel of `len`, or as far into the following panels.
/// Without it, the first vectors finish a block before the next one has arrived. Processors other than x86 rely on
/// hardware prefetching.
#[inline(always)]
fn prefetch(panel: PanelCursor, offset: usize, bytes: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if panel.is_streamed {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        use crate::cache_line::CACHE_LINE_BYTES;

        /// Prefetch distance, as on AVX2.
        const PREFETCH_BYTES: usize = 4096;
        let ahead = offset + PREFETCH_BYTES;
        // The next pair of panels follows both.
        let at = panel.add(if ahead < len {
            ahead
        } else {
            ahead + panel.apart
        });
        for line in (0..bytes).step_by(CACHE_LINE_BYTES) {
            // SAFETY: a prefetch accepts any address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(at.first().wrapping_add(line).cast());
                if panel.apart > 0 {
                    _mm_prefetch::<_MM_HINT_T0>(at.second().wrapping_add(line).cast());
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (panel.is_streamed, offset, bytes, len);
}

/// The instructions of a processor, applied to the rows of one panel or two.
///
/// # Safety
/// All functions require a processor that has the instructions, and cursors with as many bytes of every panel as they
/// read. Implementations are inlined into [`Lanes::enter`], which is compiled for those instructions.
pub(super) trait Lanes: Copy {
    /// Panels of a kernel call: 1 or 2.
    const PANELS: usize;
    /// Maximum activation rows that share unpacked weights: 4, or 8 if there are enough registers for the sums.
    const MAX_SHARED_ROWS: usize = 4;
    /// True if dot products treat weights as unsigned.
    const UNSIGNED: bool;
    /// Four columns of every row.
    type Bytes: Copy;
    /// An integer for every row.
    type Ints: Copy;
    /// A float for every row.
    type Floats: Copy;

    /// [`multiply_rows`], compiled for these instructions.
    unsafe fn enter<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N];

    /// Loads 32 bytes of every panel.
    unsafe fn bytes(at: PanelCursor) -> Self::Bytes;
    /// Shifts every byte to the right, or to the left if `right` is negative, and masks it; the mask clears the bits
    /// shifted in from neighbours.
    unsafe fn field(bytes: Self::Bytes, right: i32, mask: u8) -> Self::Bytes;
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Inverts the top bit of every byte.
    unsafe fn flip(bytes: Self::Bytes) -> Self::Bytes;
    /// Dot products: every element of `w` is four columns; `x` points to as many activations of each vector.
    unsafe fn dots<const N: usize>(w: &[Self::Bytes], x: [*const i8; N]) -> [Self::Ints; N];

    /// Loads a byte below 128 for every row.
    unsafe fn ints(at: PanelCursor) -> Self::Ints;
    /// Loads two signed bytes for every row: the first of all rows, and the second.
    unsafe fn pairs(at: PanelCursor) -> [Self::Ints; 2];
    /// `a * b + c`
    unsafe fn mul_add(a: Self::Ints, b: Self::Ints, c: Self::Ints) -> Self::Ints;
    unsafe fn splat(x: i32) -> Self::Ints;

    /// Loads an `f16` for every row.
    unsafe fn load_f16(at: PanelCursor) -> Self::Floats;
    unsafe fn float(x: Self::Ints) -> Self::Floats;
    unsafe fn splat_float(x: f32) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    unsafe fn fnma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Stores the values of all rows; those of one panel fill half of `to`.
    unsafe fn store(x: Self::Floats, to: &mut [f32; TILE_ROWS]);
}

/// One panel or two, and the activations to multiply them with.
pub(super) struct PanelJob<'a> {
    format: BlockFormat,
    /// The first panel.
    panel: &'a [u8],
    /// Distance of the second panel in bytes; zero if there is none.
    apart: usize,
    x: &'a Activations,
}

/// Multiplies panels of `size` bytes with all rows of activations. Calls `out` with the index of an activation row, the
/// index of the first panel, and the sums of one or two panels.
///
/// # Safety
/// The processor must have the instructions of `L`.
pub(super) unsafe fn multiply<L: Lanes>(
    format: BlockFormat,
    panels: &[u8],
    size: usize,
    x: &Activations,
    out: impl Fn(usize, usize, &[f32]),
) {
    let count = panels.len() / size;
    for first in (0..count).step_by(L::PANELS) {
        let panel_count = L::PANELS.min(count - first);
        let job = PanelJob {
            format,
            panel: &panels[first * size..][..size],
            apart: (panel_count - 1) * size,
            x,
        };
        let mut v = 0;
        while v < x.rows() {
            // SAFETY: the caller's contract; both panels are inside `panels`.
            let done = unsafe {
                match x.rows() - v {
                    1 => write_sums(L::enter::<1>(&job, v), v, first, panel_count, &out),
                    2 => write_sums(L::enter::<2>(&job, v), v, first, panel_count, &out),
                    3 => write_sums(L::enter::<3>(&job, v), v, first, panel_count, &out),
                    8.. if L::MAX_SHARED_ROWS == 8 => {
                        write_sums(L::enter::<8>(&job, v), v, first, panel_count, &out)
                    }
                    _ => write_sums(L::enter::<4>(&job, v), v, first, panel_count, &out),
                }
            };
            v += done;
        }
    }
}

/// Passes the sums of `N` activation rows to `out`, and returns `N`.
fn write_sums<const N: usize>(
    sums: [[f32; TILE_ROWS]; N],
    v: usize,
    first: usize,
    panel_count: usize,
    out: &impl Fn(usize, usize, &[f32]),
) -> usize {
    for (i, sums) in sums.iter().enumerate() {
        out(v + i, first, &sums[..panel_count * PANEL_ROWS]);
    }
    N
}

/// Pointers to `N` rows of activations.
#[derive(Clone, Copy)]
struct ActivationPointers<const N: usize> {
    q: [*const i8; N],
    scales: [*const Scale; N],
}

/// [`Scale`] of a group, with widened sums.
#[derive(Clone, Copy)]
struct GroupScale {
    d: f32,
    sum: f32,
    half_sums: [i32; 2],
}

impl<const N: usize> ActivationPointers<N> {
    /// # Panics
    /// If a row has fewer than `groups` groups, since the loops do not check.
    #[inline(always)]
    fn new(rows: [ActivationRow<'_>; N], groups: usize) -> Self {
        let mut all = Self {
            q: [std::ptr::null(); N],
            scales: [std::ptr::null(); N],
        };
        for n in 0..N {
            assert!(rows[n].q.len() >= groups * GROUP_LEN && rows[n].scales.len() >= groups);
            all.q[n] = rows[n].q.as_ptr();
            all.scales[n] = rows[n].scales.as_ptr();
        }
        all
    }

    /// Half `half` of group `g`.
    #[inline(always)]
    fn group(&self, g: usize, half: usize) -> [*const i8; N] {
        let mut q = self.q;
        for n in 0..N {
            q[n] = q[n].wrapping_add(g * GROUP_LEN + half * GROUP_LEN / 2);
        }
        q
    }

    /// # Safety
    /// Every row has group `g`.
    #[inline(always)]
    unsafe fn group_scale(&self, n: usize, g: usize) -> GroupScale {
        // SAFETY: by contract.
        let scale = unsafe { &*self.scales[n].add(g) };
        GroupScale {
            d: scale.d,
            sum: scale.sum,
            half_sums: scale.half_sums.map(i32::from),
        }
    }
}

/// Multiplies the panels of a job with `N` rows of activations from `first` on.
///
/// # Safety
/// As for [`Lanes`]; if `L` takes two panels, there are two.
#[inline(always)]
pub(super) unsafe fn multiply_rows<L: Lanes, const N: usize>(
    job: &PanelJob<'_>,
    first: usize,
) -> [[f32; TILE_ROWS]; N] {
    let mut rows = [job.x.row(first); N];
    for n in 1..N {
        rows[n] = job.x.row(first + n);
    }
    let at = PanelCursor {
        at: job.panel.as_ptr(),
        apart: job.apart,
        is_streamed: first == 0,
    };
    let blocks = job.panel.len() / block_bytes(job.format);
    let x = ActivationPointers::new(rows, blocks * job.format.block_len() / GROUP_LEN);
    // One call per format, so that each is compiled separately.
    macro_rules! formats {
        ($($format:ident $kind:ident)*) => {
            match job.format {
                // SAFETY: the panels have `blocks` blocks, and the rows as many groups as those.
                $(BlockFormat::$format => unsafe { $kind::<L, N>(BlockFormat::$format, at, blocks, &x) },)*
            }
        };
    }
    let sums = formats! {
        Q4_0 legacy Q4_1 legacy Q5_0 legacy Q5_1 legacy Q8_0 legacy
        Q4K scale_per_32 Q5K scale_per_32 Q2K scale_per_16 Q3K scale_per_16 Q6K scale_per_16
    };
    let mut all = [[0.0; TILE_ROWS]; N];
    for n in 0..N {
        // SAFETY: the caller's contract.
        unsafe { L::store(sums[n], &mut all[n]) };
    }
    all
}

/// The legacy formats: a scale, and in some an offset, for 32 columns.
///
/// # Safety
/// As for [`multiply_rows`]; every panel has `blocks` blocks, every row of activations as many groups.
#[inline(always)]
unsafe fn legacy<L: Lanes, const N: usize>(
    format: BlockFormat,
    at: PanelCursor,
    blocks: usize,
    x: &ActivationPointers<N>,
) -> [L::Floats; N] {
    let size = block_bytes(format);
    let offset = matches!(format, BlockFormat::Q4_1 | BlockFormat::Q5_1);
    // The zero point of unsigned weights.
    let zero = match format {
        BlockFormat::Q4_0 => 8.0,
        BlockFormat::Q5_0 => 16.0,
        _ => 0.0,
    };
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [L::splat_float(0.0); N];
        for g in 0..blocks {
            let block = at.add(g * size);
            prefetch(at, g * size, size, blocks * size);
            let (d, head) = (L::load_f16(block), if offset { 32 } else { 16 });
            let mut w = weights::<L>(format, block.add(head));
            let flipped = L::UNSIGNED && format == BlockFormat::Q8_0;
            if flipped {
                for quad in 0..8 {
                    w[quad] = L::flip(w[quad]);
                }
            }
            let dots = L::dots(&w, x.group(g, 0));
            for n in 0..N {
                let x_scale = x.group_scale(n, g);
                let mut dot = dots[n];
                if flipped {
                    let count = x_scale.half_sums[0] + x_scale.half_sums[1];
                    dot = L::mul_add(L::splat(-128), L::splat(count), dot);
                }
                let scale = L::mul(d, L::splat_float(x_scale.d));
                sums[n] = L::fma(L::float(dot), scale, sums[n]);
                let sum = L::splat_float(x_scale.sum);
                if offset {
                    sums[n] = L::fma(L::load_f16(block.add(16)), sum, sums[n]);
                } else if zero != 0.0 {
                    let m = L::mul(d, L::splat_float(-zero));
                    sums[n] = L::fma(m, sum, sums[n]);
                }
            }
        }
        sums
    }
}

/// K-quants with a scale and an offset for every 32 of 256 columns.
///
/// # Safety
/// As for [`legacy`], with eight groups a block.
#[inline(always)]
unsafe fn scale_per_32<L: Lanes, const N: usize>(
    format: BlockFormat,
    at: PanelCursor,
    blocks: usize,
    x: &ActivationPointers<N>,
) -> [L::Floats; N] {
    let size = block_bytes(format);
    let group = (size - 160) / 8;
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [L::splat_float(0.0); N];
        for b in 0..blocks {
            let block = at.add(b * size);
            let (d, m) = (L::load_f16(block), L::load_f16(block.add(16)));
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch(at, b * size + i * size / 8, size / 8, blocks * size);
                let w = weights::<L>(format, block.add(160 + group * i));
                let dots = L::dots(&w, x.group(g, 0));
                let s = L::ints(block.add(32 + 8 * i));
                let o = L::mul(m, L::float(L::ints(block.add(96 + 8 * i))));
                for n in 0..N {
                    let x_scale = x.group_scale(n, g);
                    let dot = L::float(L::mul_add(dots[n], s, L::splat(0)));
                    let scale = L::mul(d, L::splat_float(x_scale.d));
                    sums[n] = L::fma(dot, scale, sums[n]);
                    sums[n] = L::fnma(o, L::splat_float(x_scale.sum), sums[n]);
                }
            }
        }
        sums
    }
}

/// K-quants with a scale for every 16 of 256 columns.
///
/// # Safety
/// As for [`legacy`], with eight groups a block.
#[inline(always)]
unsafe fn scale_per_16<L: Lanes, const N: usize>(
    format: BlockFormat,
    at: PanelCursor,
    blocks: usize,
    x: &ActivationPointers<N>,
) -> [L::Floats; N] {
    let size = block_bytes(format);
    // Offsets of scales and weights in a block, and the zero point of unsigned weights.
    let (scales, first, zero) = match format {
        BlockFormat::Q2K => (32, 288, 0),
        BlockFormat::Q3K => (16, 144, 4),
        _ => (16, 144, 32),
    };
    let group = (size - first) / 8;
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [L::splat_float(0.0); N];
        for b in 0..blocks {
            let block = at.add(b * size);
            let d = L::load_f16(block);
            for i in 0..8 {
                let g = b * 8 + i;
                prefetch(at, b * size + i * size / 8, size / 8, blocks * size);
                let w = weights::<L>(format, block.add(first + group * i));
                let first_half = L::dots(&w[..4], x.group(g, 0));
                let second_half = L::dots(&w[4..], x.group(g, 1));
                let s = L::pairs(block.add(scales + 16 * i));
                for n in 0..N {
                    let x_scale = x.group_scale(n, g);
                    let mut dot = L::mul_add(first_half[n], s[0], L::splat(0));
                    dot = L::mul_add(second_half[n], s[1], dot);
                    if zero != 0 {
                        dot = L::mul_add(s[0], L::splat(-zero * x_scale.half_sums[0]), dot);
                        dot = L::mul_add(s[1], L::splat(-zero * x_scale.half_sums[1]), dot);
                    }
                    let one = L::splat_float(x_scale.d);
                    sums[n] = L::fma(L::float(dot), L::mul(d, one), sums[n]);
                    if format == BlockFormat::Q2K {
                        let o = L::pairs(block.add(160 + 16 * i));
                        let off = L::mul_add(o[0], L::splat(x_scale.half_sums[0]), L::splat(0));
                        let off = L::mul_add(o[1], L::splat(x_scale.half_sums[1]), off);
                        let m = L::mul(L::load_f16(block.add(16)), one);
                        sums[n] = L::fnma(L::float(off), m, sums[n]);
                    }
                }
            }
        }
        sums
    }
}

/// Unpacks the 32 columns of a group, four at a time, to one byte per weight; unsigned if the zero point is not 0.
///
/// # Safety
/// As for [`Lanes`]: the bit planes of the group start at `at`.
#[inline(always)]
unsafe fn weights<L: Lanes>(format: BlockFormat, at: PanelCursor) -> [L::Bytes; 8] {
    // SAFETY: the caller's contract.
    unsafe {
        match format {
            BlockFormat::Q8_0 => {
                let mut w = [L::bytes(at); 8];
                for quad in 1..8 {
                    w[quad] = L::bytes(at.add(32 * quad));
                }
                w
            }
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K => nibbles::<L>(at),
            BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5K => {
                let mut w = nibbles::<L>(at.add(32));
                let bits = L::bytes(at);
                for quad in 0..8 {
                    w[quad] = L::or(w[quad], L::field(bits, quad as i32 - 4, 16));
                }
                w
            }
            BlockFormat::Q2K => bit_pairs::<L>(at, 0),
            BlockFormat::Q3K => {
                let mut w = bit_pairs::<L>(at.add(32), 0);
                let bits = L::bytes(at);
                for quad in 0..8 {
                    w[quad] = L::or(w[quad], L::field(bits, quad as i32 - 2, 4));
                }
                w
            }
            BlockFormat::Q6K => {
                let (mut w, upper) = (nibbles::<L>(at), bit_pairs::<L>(at.add(128), 4));
                for quad in 0..8 {
                    w[quad] = L::or(w[quad], upper[quad]);
                }
                w
            }
        }
    }
}

/// Unpacks nibbles.
///
/// # Safety
/// As for [`weights`].
#[inline(always)]
unsafe fn nibbles<L: Lanes>(at: PanelCursor) -> [L::Bytes; 8] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut w = [L::bytes(at); 8];
        for quad in 0..4 {
            let both = L::bytes(at.add(32 * quad));
            w[quad] = L::field(both, 0, 15);
            w[quad + 4] = L::field(both, 4, 15);
        }
        w
    }
}

/// Unpacks bit pairs to bits `to` and `to + 1`.
///
/// # Safety
/// As for [`weights`].
#[inline(always)]
unsafe fn bit_pairs<L: Lanes>(at: PanelCursor, to: i32) -> [L::Bytes; 8] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut w = [L::bytes(at); 8];
        for quad in 0..8 {
            let four = L::bytes(at.add(32 * (quad % 2)));
            w[quad] = L::field(four, (quad / 2 * 2) as i32 - to, 3 << to);
        }
        w
    }
}
