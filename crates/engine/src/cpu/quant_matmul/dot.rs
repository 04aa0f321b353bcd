//! Products of integers with panels of weights, for processors that multiply bytes four by four and add them up:
//! AVX-512 with VNNI, ARM with dotprod or i8mm.
//!
//! Written once, over what such a processor does ([`Lanes`]): a group of 32 columns is unpacked to a byte a weight,
//! whatever the format, and multiplied. Integers are exact and floats are added in one order, so all processors
//! have the same bits, those of the plain [`tests`] included.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]
#![expect(
    unsafe_code,
    reason = "instructions that the caller found, on pointers into slices whose lengths were checked"
)]

#[cfg(test)]
mod tests;

use super::activation::{Activations, GROUP, Row, Scale};
use super::panel::{HEIGHT, TOGETHER, block_bytes};
use crate::quant::BlockFormat;

/// Rows of two panels: the most that are multiplied together.
pub(super) const MOST: usize = TOGETHER * HEIGHT;

/// A place in a panel, and the same place in the panel that is multiplied together with it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    at: *const u8,
    apart: usize,
    /// Whether the panel comes from memory: the vectors after the first ones find it in a cache.
    is_streamed: bool,
}

impl Place {
    #[inline(always)]
    fn add(self, bytes: usize) -> Self {
        Self {
            at: self.at.wrapping_add(bytes),
            ..self
        }
    }

    /// In the first panel.
    #[inline(always)]
    pub(super) fn first(self) -> *const u8 {
        self.at
    }

    /// In the second panel.
    #[inline(always)]
    #[cfg_attr(
        not(any(target_arch = "x86_64", test)),
        expect(dead_code, reason = "only AVX-512 takes two panels")
    )]
    pub(super) fn second(self) -> *const u8 {
        self.at.wrapping_add(self.apart)
    }
}

/// Prefetches what is multiplied soon: `AHEAD` bytes after `bytes` at `offset` of a panel of `len`, or as far into the
/// panels that follow. Without it, the first vectors are done with a block before the bytes of the next one are there.
/// Other processors than x86 prefetch by themselves.
#[inline(always)]
fn fetch(panel: Place, offset: usize, bytes: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if panel.is_streamed {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes between what is multiplied and what is prefetched meanwhile, as on AVX2.
        const AHEAD: usize = 4096;
        const LINE: usize = 64;
        let ahead = offset + AHEAD;
        // The next panels of two are behind both.
        let at = panel.add(if ahead < len {
            ahead
        } else {
            ahead + panel.apart
        });
        for line in (0..bytes).step_by(LINE) {
            // SAFETY: asks, and reads nothing: any address will do.
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

/// What a processor does for the rows of one panel or two.
///
/// # Safety
/// All functions want a processor that has the instructions, and places with as many bytes of every panel as they
/// read. Implementations are inlined into [`Lanes::enter`], which is compiled for those instructions.
pub(super) trait Lanes: Copy {
    /// Panels multiplied together: 1 or 2.
    const PANELS: usize;
    /// Vectors of activations that share unpacked weights, at most: 4, or 8 where registers hold the sums of so many.
    const SHARED: usize = 4;
    /// Whether the weights of a product are taken as bytes without sign.
    const UNSIGNED: bool;
    /// Four columns of every row.
    type Bytes: Copy;
    /// A whole number for every row.
    type Ints: Copy;
    /// A float for every row.
    type Floats: Copy;

    /// [`some`], compiled for the instructions.
    unsafe fn enter<const N: usize>(job: &Job<'_>, first: usize) -> [[f32; MOST]; N];

    /// 32 bytes of every panel.
    unsafe fn bytes(at: Place) -> Self::Bytes;
    /// Every byte shifted to the right, or to the left where `right` is negative, and masked; the mask has no bits
    /// where a neighbour's come in.
    unsafe fn field(bytes: Self::Bytes, right: i32, mask: u8) -> Self::Bytes;
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// With the upper bit of every byte inverted.
    unsafe fn flip(bytes: Self::Bytes) -> Self::Bytes;
    /// Sums of products: `w` are four columns after the other, `x` has as many numbers for each of the vectors.
    unsafe fn dots<const N: usize>(w: &[Self::Bytes], x: [*const i8; N]) -> [Self::Ints; N];

    /// A byte for every row, below 128.
    unsafe fn ints(at: Place) -> Self::Ints;
    /// Two bytes with sign for every row: the first of all rows, and the second.
    unsafe fn pairs(at: Place) -> [Self::Ints; 2];
    /// `a * b + c`
    unsafe fn mul_add(a: Self::Ints, b: Self::Ints, c: Self::Ints) -> Self::Ints;
    unsafe fn splat(x: i32) -> Self::Ints;

    /// A half-precision number for every row.
    unsafe fn halves(at: Place) -> Self::Floats;
    unsafe fn float(x: Self::Ints) -> Self::Floats;
    unsafe fn splat_float(x: f32) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    unsafe fn fnma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The numbers of all rows; of one panel, half of the room.
    unsafe fn store(x: Self::Floats, to: &mut [f32; MOST]);
}

/// One panel or two, to be multiplied with activations.
pub(super) struct Job<'a> {
    format: BlockFormat,
    /// The first panel.
    panel: &'a [u8],
    /// Bytes to the second panel, which is the first one again where there is no other.
    apart: usize,
    x: &'a Activations,
}

/// Multiplies panels, each `size` bytes, with all rows of activations. `out` gets the number of a row of activations,
/// that of the first panel multiplied, and the sums of as many panels as were.
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
        let together = L::PANELS.min(count - first);
        let job = Job {
            format,
            panel: &panels[first * size..][..size],
            apart: (together - 1) * size,
            x,
        };
        let mut v = 0;
        while v < x.rows() {
            // SAFETY: the caller's promise; both panels lie in `panels`.
            let done = unsafe {
                match x.rows() - v {
                    1 => each(L::enter::<1>(&job, v), v, first, together, &out),
                    2 => each(L::enter::<2>(&job, v), v, first, together, &out),
                    3 => each(L::enter::<3>(&job, v), v, first, together, &out),
                    8.. if L::SHARED == 8 => each(L::enter::<8>(&job, v), v, first, together, &out),
                    _ => each(L::enter::<4>(&job, v), v, first, together, &out),
                }
            };
            v += done;
        }
    }
}

fn each<const N: usize>(
    sums: [[f32; MOST]; N],
    v: usize,
    first: usize,
    together: usize,
    out: &impl Fn(usize, usize, &[f32]),
) -> usize {
    for (i, sums) in sums.iter().enumerate() {
        out(v + i, first, &sums[..together * HEIGHT]);
    }
    N
}

/// The activations of `N` rows.
#[derive(Clone, Copy)]
struct Vectors<const N: usize> {
    q: [*const i8; N],
    scales: [*const Scale; N],
}

/// What belongs to the activations of a group, of each vector.
#[derive(Clone, Copy)]
struct Known {
    d: f32,
    sum: f32,
    halves: [i32; 2],
}

impl<const N: usize> Vectors<N> {
    /// # Panics
    /// Where a row has fewer than `groups` groups: the loops do not look.
    #[inline(always)]
    fn new(rows: [Row<'_>; N], groups: usize) -> Self {
        let mut all = Self {
            q: [std::ptr::null(); N],
            scales: [std::ptr::null(); N],
        };
        for n in 0..N {
            assert!(rows[n].q.len() >= groups * GROUP && rows[n].scales.len() >= groups);
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
            q[n] = q[n].wrapping_add(g * GROUP + half * GROUP / 2);
        }
        q
    }

    /// # Safety
    /// Every row has group `g`.
    #[inline(always)]
    unsafe fn known(&self, n: usize, g: usize) -> Known {
        // SAFETY: by contract.
        let scale = unsafe { &*self.scales[n].add(g) };
        Known {
            d: scale.d,
            sum: scale.sum,
            halves: [i32::from(scale.halves[0]), i32::from(scale.halves[1])],
        }
    }
}

/// Multiplies the panels of a job with `N` rows of activations from `first` on.
///
/// # Safety
/// As for [`Lanes`]; where `L` takes two panels, there are two.
#[inline(always)]
pub(super) unsafe fn some<L: Lanes, const N: usize>(
    job: &Job<'_>,
    first: usize,
) -> [[f32; MOST]; N] {
    let mut rows = [job.x.row(first); N];
    for n in 1..N {
        rows[n] = job.x.row(first + n);
    }
    let at = Place {
        at: job.panel.as_ptr(),
        apart: job.apart,
        is_streamed: first == 0,
    };
    let blocks = job.panel.len() / block_bytes(job.format);
    let x = Vectors::new(rows, blocks * job.format.block_len() / GROUP);
    // A format a call, so that each is compiled for itself.
    macro_rules! formats {
        ($($format:ident $kind:ident)*) => {
            match job.format {
                // SAFETY: the panels have so many blocks, and rows as many groups as those.
                $(BlockFormat::$format => unsafe { $kind::<L, N>(BlockFormat::$format, at, blocks, &x) },)*
            }
        };
    }
    let sums = formats! {
        Q4_0 plain Q4_1 plain Q5_0 plain Q5_1 plain Q8_0 plain
        Q4K scaled Q5K scaled Q2K halved Q3K halved Q6K halved
    };
    let mut all = [[0.0; MOST]; N];
    for n in 0..N {
        // SAFETY: the caller's promise.
        unsafe { L::store(sums[n], &mut all[n]) };
    }
    all
}

/// Formats with a scale, and perhaps an offset, for 32 columns.
///
/// # Safety
/// As for [`some`]; every panel has `blocks` blocks, every row of activations as many groups.
#[inline(always)]
unsafe fn plain<L: Lanes, const N: usize>(
    format: BlockFormat,
    at: Place,
    blocks: usize,
    x: &Vectors<N>,
) -> [L::Floats; N] {
    let size = block_bytes(format);
    let offset = matches!(format, BlockFormat::Q4_1 | BlockFormat::Q5_1);
    // What weights without sign are too large by.
    let zero = match format {
        BlockFormat::Q4_0 => 8.0,
        BlockFormat::Q5_0 => 16.0,
        _ => 0.0,
    };
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [L::splat_float(0.0); N];
        for g in 0..blocks {
            let block = at.add(g * size);
            fetch(at, g * size, size, blocks * size);
            let (d, head) = (L::halves(block), if offset { 32 } else { 16 });
            let mut w = weights::<L>(format, block.add(head));
            let flipped = L::UNSIGNED && format == BlockFormat::Q8_0;
            if flipped {
                for place in 0..8 {
                    w[place] = L::flip(w[place]);
                }
            }
            let dots = L::dots(&w, x.group(g, 0));
            for n in 0..N {
                let known = x.known(n, g);
                let mut dot = dots[n];
                if flipped {
                    let count = known.halves[0] + known.halves[1];
                    dot = L::mul_add(L::splat(-128), L::splat(count), dot);
                }
                let scale = L::mul(d, L::splat_float(known.d));
                sums[n] = L::fma(L::float(dot), scale, sums[n]);
                let sum = L::splat_float(known.sum);
                if offset {
                    sums[n] = L::fma(L::halves(block.add(16)), sum, sums[n]);
                } else if zero != 0.0 {
                    let m = L::mul(d, L::splat_float(-zero));
                    sums[n] = L::fma(m, sum, sums[n]);
                }
            }
        }
        sums
    }
}

/// Formats with a scale and an offset for every 32 of 256 columns.
///
/// # Safety
/// As for [`plain`], with eight groups a block.
#[inline(always)]
unsafe fn scaled<L: Lanes, const N: usize>(
    format: BlockFormat,
    at: Place,
    blocks: usize,
    x: &Vectors<N>,
) -> [L::Floats; N] {
    let size = block_bytes(format);
    let group = (size - 160) / 8;
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [L::splat_float(0.0); N];
        for b in 0..blocks {
            let block = at.add(b * size);
            let (d, m) = (L::halves(block), L::halves(block.add(16)));
            for i in 0..8 {
                let g = b * 8 + i;
                fetch(at, b * size + i * size / 8, size / 8, blocks * size);
                let w = weights::<L>(format, block.add(160 + group * i));
                let dots = L::dots(&w, x.group(g, 0));
                let s = L::ints(block.add(32 + 8 * i));
                let o = L::mul(m, L::float(L::ints(block.add(96 + 8 * i))));
                for n in 0..N {
                    let known = x.known(n, g);
                    let dot = L::float(L::mul_add(dots[n], s, L::splat(0)));
                    let scale = L::mul(d, L::splat_float(known.d));
                    sums[n] = L::fma(dot, scale, sums[n]);
                    sums[n] = L::fnma(o, L::splat_float(known.sum), sums[n]);
                }
            }
        }
        sums
    }
}

/// Formats with a scale for every 16 of 256 columns.
///
/// # Safety
/// As for [`plain`], with eight groups a block.
#[inline(always)]
unsafe fn halved<L: Lanes, const N: usize>(
    format: BlockFormat,
    at: Place,
    blocks: usize,
    x: &Vectors<N>,
) -> [L::Floats; N] {
    let size = block_bytes(format);
    // Where scales and weights are, and what the latter are too large by.
    let (scales, first, zero) = match format {
        BlockFormat::Q2K => (32, 288, 0),
        BlockFormat::Q3K => (16, 144, 4),
        _ => (16, 144, 32),
    };
    let group = (size - first) / 8;
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [L::splat_float(0.0); N];
        for b in 0..blocks {
            let block = at.add(b * size);
            let d = L::halves(block);
            for i in 0..8 {
                let g = b * 8 + i;
                fetch(at, b * size + i * size / 8, size / 8, blocks * size);
                let w = weights::<L>(format, block.add(first + group * i));
                let near = L::dots(&w[..4], x.group(g, 0));
                let far = L::dots(&w[4..], x.group(g, 1));
                let s = L::pairs(block.add(scales + 16 * i));
                for n in 0..N {
                    let known = x.known(n, g);
                    let mut dot = L::mul_add(near[n], s[0], L::splat(0));
                    dot = L::mul_add(far[n], s[1], dot);
                    if zero != 0 {
                        dot = L::mul_add(s[0], L::splat(-zero * known.halves[0]), dot);
                        dot = L::mul_add(s[1], L::splat(-zero * known.halves[1]), dot);
                    }
                    let one = L::splat_float(known.d);
                    sums[n] = L::fma(L::float(dot), L::mul(d, one), sums[n]);
                    if format == BlockFormat::Q2K {
                        let o = L::pairs(block.add(160 + 16 * i));
                        let off = L::mul_add(o[0], L::splat(known.halves[0]), L::splat(0));
                        let off = L::mul_add(o[1], L::splat(known.halves[1]), off);
                        let m = L::mul(L::halves(block.add(16)), one);
                        sums[n] = L::fnma(L::float(off), m, sums[n]);
                    }
                }
            }
        }
        sums
    }
}

/// The 32 columns of a group, four by four, each weight a byte; of those with a zero above 0, without sign.
///
/// # Safety
/// As for [`Lanes`]: the group's planes of bits begin at `at`.
#[inline(always)]
unsafe fn weights<L: Lanes>(format: BlockFormat, at: Place) -> [L::Bytes; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        match format {
            BlockFormat::Q8_0 => {
                let mut w = [L::bytes(at); 8];
                for place in 1..8 {
                    w[place] = L::bytes(at.add(32 * place));
                }
                w
            }
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K => nibbles::<L>(at),
            BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5K => {
                let mut w = nibbles::<L>(at.add(32));
                let bits = L::bytes(at);
                for place in 0..8 {
                    w[place] = L::or(w[place], L::field(bits, place as i32 - 4, 16));
                }
                w
            }
            BlockFormat::Q2K => crumbs::<L>(at, 0),
            BlockFormat::Q3K => {
                let mut w = crumbs::<L>(at.add(32), 0);
                let bits = L::bytes(at);
                for place in 0..8 {
                    w[place] = L::or(w[place], L::field(bits, place as i32 - 2, 4));
                }
                w
            }
            BlockFormat::Q6K => {
                let (mut w, upper) = (nibbles::<L>(at), crumbs::<L>(at.add(128), 4));
                for place in 0..8 {
                    w[place] = L::or(w[place], upper[place]);
                }
                w
            }
        }
    }
}

/// # Safety
/// As for [`weights`].
#[inline(always)]
unsafe fn nibbles<L: Lanes>(at: Place) -> [L::Bytes; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut w = [L::bytes(at); 8];
        for place in 0..4 {
            let both = L::bytes(at.add(32 * place));
            w[place] = L::field(both, 0, 15);
            w[place + 4] = L::field(both, 4, 15);
        }
        w
    }
}

/// Pairs of bits, as bits `to` and `to + 1`.
///
/// # Safety
/// As for [`weights`].
#[inline(always)]
unsafe fn crumbs<L: Lanes>(at: Place, to: i32) -> [L::Bytes; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut w = [L::bytes(at); 8];
        for place in 0..8 {
            let four = L::bytes(at.add(32 * (place % 2)));
            w[place] = L::field(four, (place / 2 * 2) as i32 - to, 3 << to);
        }
        w
    }
}
