//! Fixed-point i16 GEMM: half-precision weights times many activation rows.
//!
//! On AVX2, `vpmaddwd` and an addition take less time for two steps than two `f32` FMAs: 1.6 times as many products a
//! second on Zen 3. Activations are rounded once for all tasks, with a scale for every row and block of [`BLOCK_LEN`]
//! steps; panels of weights are rounded when they are used, with a scale for every column and block. Blocks are summed
//! as integers, and their sums as `f32` in the order of `k`.
//!
//! # Error
//!
//! The error of an activation is up to 1/8,190 of the largest magnitude in its block. The scales of weights are powers
//! of two: a weight is exact if it is at least half (`bf16`: 1/16) of the largest magnitude in its block; otherwise its
//! error is up to 1/4,096 of that.
//!
//! # Range
//!
//! If a block of activations or weights has infinities, NaN, or a non-zero largest magnitude outside 2⁻¹⁰⁰ to 2¹⁰⁰, the
//! whole product is computed in `f32`. So scales are always normal numbers here, and so is a scale of weights times any
//! sum.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shared_output::{self, SharedOutput};
use crate::cpu::gemm::{FloatElement, GemmPanels};
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Level, Task};

/// Minimum activation rows for which this is faster than `f32`.
pub(super) const MIN_ROWS: usize = 24;

/// Steps that share a scale.
const BLOCK_LEN: usize = 128;

/// Largest integers of activations and weights: an 11-bit significand of `f16`, times 2.
const MAX_ACTIVATION_LEVEL: i32 = 4095;
const MAX_WEIGHT_LEVEL: i32 = 4094;

// The sum of a block, or of any part of it, cannot overflow; nor can the pair of products that `vpmaddwd` adds.
const _: () = assert!(
    BLOCK_LEN as i64 * MAX_ACTIVATION_LEVEL as i64 * MAX_WEIGHT_LEVEL as i64 <= i32::MAX as i64
);

/// Columns of a panel of weights, and rows of a tile: twelve vectors of sums.
pub(super) const TILE_COLS: usize = 16;
pub(super) const TILE_ROWS: usize = 6;

/// Maximum steps of a group, the depth blocks that are multiplied in one pass: they fill half of an L1 cache. A depth
/// block of [`GemmPanels`] for AVX2 has up to 384 steps.
const MAX_GROUP_STEPS: usize = 640;

/// Maximum depth blocks of a group.
const MAX_GROUP_DEPTH_BLOCKS: usize = 3;

/// Maximum blocks of a group: each depth block may end with a partial one.
const MAX_GROUP_BLOCKS: usize = MAX_GROUP_STEPS / BLOCK_LEN + MAX_GROUP_DEPTH_BLOCKS;

/// Maximum pairs of steps in a block.
const BLOCK_PAIRS: usize = BLOCK_LEN / 2;

/// Activation rows whose share of a group stays in an L2 cache.
const L2_ROWS: usize = 64 * TILE_ROWS;

/// Two steps of a panel: for every column a pair of `i16`, the first in the low half.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct WeightPairs(pub(super) [u32; TILE_COLS]);

/// Returns true if these weights can use this kernel: they are in range, and it is faster at their level.
pub(super) fn suits<B: FloatElement<Float = f32>>(b: &GemmPanels<B>) -> bool {
    b.level() == Level::Avx2
        && b.width() == TILE_COLS
        && b.depth() <= MAX_GROUP_STEPS
        && are_in_range(b)
}

fn are_in_range<B: FloatElement<Float = f32>>(b: &GemmPanels<B>) -> bool {
    let in_range = AtomicBool::new(true);
    let blocking = KBlocking::of(b);
    pool::run(b.cols().div_ceil(TILE_COLS), |panel| {
        for depth_block in 0..blocking.depth_blocks() {
            if !simd::run_narrow(RangeCheck(b.panel(depth_block, panel))) {
                in_range.store(false, Ordering::Relaxed);
            }
        }
    });
    in_range.into_inner()
}

/// Returns true if a block with the largest magnitude `max` can be scaled.
#[inline(always)]
fn is_in_range(max: f32) -> bool {
    // 2¹⁰⁰ and its inverse.
    const MAX: f32 = f32::from_bits((127 + 100) << 23);
    const MIN: f32 = f32::from_bits((127 - 100) << 23);
    max == 0.0 || (MIN..=MAX).contains(&max)
}

/// Rounds to nearest, ties to even: the low bits of a sum with 1.5 · 2²³ are the integer, if it has less than 22 bits.
#[inline(always)]
fn nearest(x: f32) -> u32 {
    (x + 12_582_912.0).to_bits().wrapping_sub(0x4B40_0000)
}

/// Two 16-bit integers, the first in the low half.
#[inline(always)]
fn pair(x: f32, y: f32) -> u32 {
    nearest(x) & 0xFFFF | nearest(y) << 16
}

/// How the inner dimension is split: into depth blocks, as the panels are, and those into blocks with a scale.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct KBlocking {
    /// Steps of a row, and of a depth block.
    cols: usize,
    depth: usize,
}

impl KBlocking {
    pub(super) fn of<B: FloatElement>(b: &GemmPanels<B>) -> Self {
        Self {
            cols: b.rows(),
            depth: b.depth(),
        }
    }

    /// Number of depth blocks.
    fn depth_blocks(self) -> usize {
        self.cols.div_ceil(self.depth)
    }

    /// The steps of a depth block. The first has an even index.
    fn steps(self, depth_block: usize) -> Range<usize> {
        depth_block * self.depth..self.cols.min((depth_block + 1) * self.depth)
    }

    /// The blocks of a depth block.
    fn blocks(self, depth_block: usize) -> Range<usize> {
        let first = depth_block * self.depth.div_ceil(BLOCK_LEN);
        first..first + self.steps(depth_block).len().div_ceil(BLOCK_LEN)
    }

    /// Depth blocks of a group.
    fn group_len(self) -> usize {
        (MAX_GROUP_STEPS / self.depth).min(MAX_GROUP_DEPTH_BLOCKS)
    }

    /// The depth blocks of group `i`; empty past the last.
    fn group(self, i: usize) -> Range<usize> {
        let all = self.depth_blocks();
        all.min(i * self.group_len())..all.min((i + 1) * self.group_len())
    }

    /// Number of pairs of a row.
    fn row_pairs(self) -> usize {
        self.cols.div_ceil(2)
    }

    /// Number of blocks of a row.
    fn row_blocks(self) -> usize {
        let last = self.cols.saturating_sub(1) / self.depth;
        self.blocks(last).end
    }
}

/// Activations in fixed point, in panels of [`TILE_ROWS`] rows: for every two steps a pair of `i16` of each row, and for
/// every block the scales of the rows. The last panel is padded with zeros.
#[derive(Default)]
pub(super) struct FixedPointActivations {
    pairs: Vec<[u32; TILE_ROWS]>,
    scales: Vec<[f32; TILE_ROWS]>,
    blocking: KBlocking,
    row_pairs: usize,
    row_blocks: usize,
    rows: usize,
}

impl FixedPointActivations {
    /// Rounds `x`, whole rows; returns false if a value is out of range.
    pub(super) fn set(&mut self, x: &[f32], blocking: KBlocking) -> bool {
        let (pairs, blocks) = (blocking.row_pairs(), blocking.row_blocks());
        (self.blocking, self.rows) = (blocking, x.len() / blocking.cols);
        (self.row_pairs, self.row_blocks) = (pairs, blocks);
        let panels = self.rows.div_ceil(TILE_ROWS);
        if self.pairs.len() < panels * pairs {
            self.pairs.resize(panels * pairs, [0; TILE_ROWS]);
        }
        if self.scales.len() < panels * blocks {
            self.scales.resize(panels * blocks, [0.0; TILE_ROWS]);
        }
        let all = pool::DisjointSlice::new(&mut self.pairs);
        let in_range = AtomicBool::new(true);
        pool::for_each_chunk(&mut self.scales[..panels * blocks], blocks, |i, scales| {
            let first = i * TILE_ROWS;
            let rows = TILE_ROWS.min(self.rows - first);
            let panel = RoundPanel {
                x: &x[first * blocking.cols..][..rows * blocking.cols],
                blocking,
                pairs: shared_output::own(&all, i * pairs..(i + 1) * pairs),
                scales,
            };
            if !simd::run_narrow(panel) {
                in_range.store(false, Ordering::Relaxed);
            }
        });
        in_range.into_inner()
    }

    /// A range of pairs of a panel, and the scales of a range of blocks.
    #[inline(always)]
    fn panel(
        &self,
        i: usize,
        pairs: Range<usize>,
        blocks: Range<usize>,
    ) -> (&[[u32; TILE_ROWS]], &[[f32; TILE_ROWS]]) {
        (
            &self.pairs[i * self.row_pairs + pairs.start..][..pairs.len()],
            &self.scales[i * self.row_blocks + blocks.start..][..blocks.len()],
        )
    }
}

/// Rounds the rows of a panel; returns false if a value is out of range.
struct RoundPanel<'a> {
    x: &'a [f32],
    blocking: KBlocking,
    pairs: &'a mut [[u32; TILE_ROWS]],
    scales: &'a mut [[f32; TILE_ROWS]],
}

impl Task for RoundPanel<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let blocking = self.blocking;
        let mut in_range = true;
        let mut all = [[0; BLOCK_PAIRS]; TILE_ROWS];
        for depth_block in 0..blocking.depth_blocks() {
            let (steps, blocks) = (blocking.steps(depth_block), blocking.blocks(depth_block));
            for i in 0..blocks.len() {
                let first = steps.start + i * BLOCK_LEN;
                let last = steps.end.min(first + BLOCK_LEN);
                let scales = &mut self.scales[blocks.start + i];
                *scales = [0.0; TILE_ROWS];
                for (r, x) in self.x.chunks_exact(blocking.cols).enumerate() {
                    let x = &x[first..last];
                    let max = match x.as_array() {
                        Some(x) => round(x, &mut all[r]),
                        None => {
                            let mut padded = [0.0; BLOCK_LEN];
                            padded[..x.len()].copy_from_slice(x);
                            round(&padded, &mut all[r])
                        }
                    };
                    scales[r] = max / MAX_ACTIVATION_LEVEL as f32;
                    in_range &= is_in_range(max);
                }
                let pairs = &mut self.pairs[first / 2..last.div_ceil(2)];
                for i in 0..pairs.len() {
                    for r in 0..TILE_ROWS {
                        pairs[i][r] = all[r][i];
                    }
                }
            }
        }
        in_range
    }
}

/// Rounds a block, and returns its largest magnitude.
#[inline(always)]
fn round(x: &[f32; BLOCK_LEN], pairs: &mut [u32; BLOCK_PAIRS]) -> f32 {
    // Compares bits as integers, in which NaN exceeds every number, so it is not lost.
    let mut max = 0;
    for i in 0..BLOCK_LEN {
        max = max.max((x[i].to_bits() & 0x7FFF_FFFF) as i32);
    }
    let max = f32::from_bits(max as u32);
    let inverse = if max == 0.0 {
        0.0
    } else {
        MAX_ACTIVATION_LEVEL as f32 / max
    };
    for i in 0..BLOCK_PAIRS {
        pairs[i] = pair(x[2 * i] * inverse, x[2 * i + 1] * inverse);
    }
    max
}

/// The largest magnitude of each column in a block of a panel.
#[inline(always)]
fn maxima<I: Isa, B: FloatElement<Float = f32>>(block: &[B]) -> [f32; TILE_COLS] {
    // As integers, as above: `f16` and `bf16` are ordered like their bits.
    let steps = bytemuck::cast_slice::<B, u16>(block);
    let steps = steps.as_chunks::<TILE_COLS>().0;
    let mut maxima = [0_u16; TILE_COLS];
    match I::LEVEL {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => maxima = super::avx2::fixed_point::maxima(steps),
        _ => {
            for i in 0..steps.len() {
                for c in 0..TILE_COLS {
                    maxima[c] = maxima[c].max(steps[i][c] & 0x7FFF);
                }
            }
        }
    }
    let mut halves = [B::default(); TILE_COLS];
    let mut wide = [0.0; TILE_COLS];
    halves.copy_from_slice(bytemuck::cast_slice(&maxima));
    B::widen_slice::<I>(&halves, &mut wide);
    wide
}

struct RangeCheck<'a, B>(&'a [B]);

impl<B: FloatElement<Float = f32>> Task for RangeCheck<'_, B> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let mut in_range = true;
        for block in self.0.chunks(BLOCK_LEN * TILE_COLS) {
            let maxima = maxima::<I, B>(block);
            for c in 0..TILE_COLS {
                in_range &= is_in_range(maxima[c]);
            }
        }
        in_range
    }
}

/// Rounds a panel of weights.
#[inline(always)]
fn narrow<I: Isa, B: FloatElement<Float = f32>>(
    panel: &[B],
    weights: &mut [WeightPairs],
    scales: &mut [[f32; TILE_COLS]],
) {
    let blocks = panel.chunks(BLOCK_LEN * TILE_COLS);
    let weights = weights.chunks_mut(BLOCK_PAIRS);
    for ((block, weights), scales) in blocks.zip(weights).zip(scales) {
        let maxima = maxima::<I, B>(block);
        let mut inverse = [0.0; TILE_COLS];
        for c in 0..TILE_COLS {
            // The power of two that scales the largest magnitude to a 12-bit integer.
            let exponent = maxima[c].to_bits() & 0x7F80_0000;
            let scale = exponent.wrapping_sub(11 << 23);
            let inverse_bits = ((254_u32 + 11) << 23).wrapping_sub(exponent);
            let is_zero = maxima[c] == 0.0;
            scales[c] = if is_zero { 0.0 } else { f32::from_bits(scale) };
            inverse[c] = if is_zero {
                0.0
            } else {
                f32::from_bits(inverse_bits)
            };
        }
        let (whole, rest) = block.as_chunks::<{ 2 * TILE_COLS }>();
        for i in 0..weights.len() {
            let mut wide = [0.0; 2 * TILE_COLS];
            match whole.get(i) {
                Some(both) => B::widen_slice::<I>(both, &mut wide),
                None => B::widen_slice::<I>(rest, &mut wide[..rest.len()]),
            }
            for c in 0..TILE_COLS {
                weights[i].0[c] = pair(wide[c] * inverse[c], wide[TILE_COLS + c] * inverse[c]);
            }
        }
    }
}

/// The rounded weights of one column panel, for the depth blocks of a group.
struct RoundedPanels {
    weights: [WeightPairs; MAX_GROUP_STEPS / 2],
    scales: [[f32; TILE_COLS]; MAX_GROUP_BLOCKS],
    /// End indices of the blocks in `weights`.
    ends: [usize; MAX_GROUP_BLOCKS],
    blocks: usize,
}

impl RoundedPanels {
    #[inline(always)]
    fn set<I: Isa, B: FloatElement<Float = f32>>(
        &mut self,
        b: &GemmPanels<B>,
        blocking: KBlocking,
        i: usize,
        panel: usize,
    ) {
        let mut at = 0;
        self.blocks = 0;
        for depth_block in blocking.group(i) {
            let weights = &mut self.weights[at..][..blocking.steps(depth_block).len().div_ceil(2)];
            narrow::<I, B>(
                b.panel(depth_block, panel),
                weights,
                &mut self.scales[self.blocks..],
            );
            for end in (BLOCK_PAIRS..weights.len() + BLOCK_PAIRS).step_by(BLOCK_PAIRS) {
                self.ends[self.blocks] = at + end.min(weights.len());
                self.blocks += 1;
            }
            at += weights.len();
        }
    }

    #[inline(always)]
    fn tile<'a>(
        &'a self,
        pairs: &'a [[u32; TILE_ROWS]],
        rows: &'a [[f32; TILE_ROWS]],
    ) -> FixedPointTile<'a> {
        FixedPointTile {
            ends: &self.ends[..self.blocks],
            weights: &self.weights[..pairs.len()],
            columns: &self.scales[..self.blocks],
            pairs,
            rows,
        }
    }
}

/// The operands of a tile of [`TILE_ROWS`] rows and [`TILE_COLS`] columns, for the steps of a group.
pub(super) struct FixedPointTile<'a> {
    /// End indices of the blocks in `weights`.
    pub(super) ends: &'a [usize],
    /// Weights, and the scales of the columns in every block.
    pub(super) weights: &'a [WeightPairs],
    pub(super) columns: &'a [[f32; TILE_COLS]],
    /// As many pairs of activations, and the scales of the rows in every block.
    pub(super) pairs: &'a [[u32; TILE_ROWS]],
    pub(super) rows: &'a [[f32; TILE_ROWS]],
}

/// The sums of a tile.
pub(super) type TileSums = [[f32; TILE_COLS]; TILE_ROWS];

/// Adds the products of a tile to `sums`.
#[inline(always)]
fn add<I: Isa>(tile: &FixedPointTile<'_>, sums: &mut TileSums) {
    match I::LEVEL {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::avx2::fixed_point::add(tile, sums),
        _ => add_portable(tile, sums),
    }
}

/// [`add`] without intrinsics: the same integers, and floats in the same order.
fn add_portable(tile: &FixedPointTile<'_>, sums: &mut TileSums) {
    let both = |pair: u32| [pair as i16, (pair >> 16) as i16].map(i32::from);
    let mut first = 0;
    for (block, (columns, &last)) in tile.columns.iter().zip(tile.ends).enumerate() {
        for r in 0..TILE_ROWS {
            for c in 0..TILE_COLS {
                let mut dot = 0;
                for i in first..last {
                    let (w, x) = (both(tile.weights[i].0[c]), both(tile.pairs[i][r]));
                    dot += w[0] * x[0] + w[1] * x[1];
                }
                let dot = dot as f32 * columns[c];
                sums[r][c] = dot.mul_add(tile.rows[block][r], sums[r][c]);
            }
        }
        first = last;
    }
}

/// Multiplies a range of rows of weights, which are columns of `b` and start at a panel, at a level that the processor
/// has.
pub(super) fn multiply<B: FloatElement<Float = f32>>(
    level: Level,
    b: &GemmPanels<B>,
    x: &FixedPointActivations,
    range: Range<usize>,
    to: &SharedOutput<'_>,
) {
    assert_eq!(
        x.blocking,
        KBlocking::of(b),
        "the blocking of activations and weights differs"
    );
    simd::run_at(level, Multiply { b, x, range, to });
}

struct Multiply<'a, B: FloatElement> {
    b: &'a GemmPanels<B>,
    x: &'a FixedPointActivations,
    range: Range<usize>,
    to: &'a SharedOutput<'a>,
}

impl<B: FloatElement<Float = f32>> Task for Multiply<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (b, x, blocking) = (self.b, self.x, self.x.blocking);
        let mut weights = RoundedPanels {
            weights: [WeightPairs([0; TILE_COLS]); MAX_GROUP_STEPS / 2],
            scales: [[0.0; TILE_COLS]; MAX_GROUP_BLOCKS],
            ends: [0; MAX_GROUP_BLOCKS],
            blocks: 0,
        };
        let panels = self.range.start / TILE_COLS..self.range.end.div_ceil(TILE_COLS);
        let groups = blocking.depth_blocks().div_ceil(blocking.group_len());
        for first in (0..x.rows).step_by(L2_ROWS) {
            let rows = first..x.rows.min(first + L2_ROWS);
            for (group, panel) in (0..groups).flat_map(|g| panels.clone().map(move |p| (g, p))) {
                weights.set::<I, B>(b, blocking, group, panel);
                // To prefetch. Threads alternate between tasks, most of which have the same size.
                let next = if panel + 1 < panels.end {
                    self.panels(group, panel + 1)
                } else if group + 1 < groups {
                    self.panels(group + 1, panels.start)
                } else {
                    self.panels(0, panels.end + panels.len() * (pool::threads() - 1))
                };
                self.tiles::<I>(&weights, next, rows.clone(), group, panel);
            }
        }
    }
}

impl<'a, B: FloatElement<Float = f32>> Multiply<'a, B> {
    /// The depth blocks of a group of a column panel; empty past the last panel.
    #[inline(always)]
    fn panels(&self, group: usize, panel: usize) -> [&'a [B]; MAX_GROUP_DEPTH_BLOCKS] {
        let mut panels: [&[B]; MAX_GROUP_DEPTH_BLOCKS] = [&[]; MAX_GROUP_DEPTH_BLOCKS];
        if panel * TILE_COLS < self.b.cols() {
            for (to, depth_block) in panels.iter_mut().zip(self.x.blocking.group(group)) {
                *to = self.b.panel(depth_block, panel);
            }
        }
        panels
    }

    /// Multiplies all `rows` with a group of a panel, and prefetches `next`.
    #[inline(always)]
    fn tiles<I: Isa>(
        &self,
        weights: &RoundedPanels,
        next: [&[B]; MAX_GROUP_DEPTH_BLOCKS],
        rows: Range<usize>,
        group: usize,
        panel: usize,
    ) {
        let (x, blocking, depth_blocks) = (self.x, self.x.blocking, self.x.blocking.group(group));
        let pairs = blocking.steps(depth_blocks.start).start / 2
            ..blocking.steps(depth_blocks.end - 1).end.div_ceil(2);
        let blocks =
            blocking.blocks(depth_blocks.start).start..blocking.blocks(depth_blocks.end - 1).end;
        let col = panel * TILE_COLS;
        let width = TILE_COLS.min(self.range.end - col);
        // One chunk of each with every tile.
        let count = rows.len().div_ceil(TILE_ROWS);
        let mut next = next.map(|next| next.chunks(next.len().div_ceil(count).max(1)));
        for first in rows.clone().step_by(TILE_ROWS) {
            let height = TILE_ROWS.min(rows.end - first);
            let to = |r: usize| self.to.get(first + r, col, width);
            for chunks in &mut next {
                prefetch::<I, B>(chunks.next().unwrap_or_default());
            }
            for r in 0..height {
                prefetch::<I, f32>(to(r));
            }
            let (x_pairs, x_scales) = x.panel(first / TILE_ROWS, pairs.clone(), blocks.clone());
            let tile = weights.tile(x_pairs, x_scales);
            let mut sums = [[0.0; TILE_COLS]; TILE_ROWS];
            if group > 0 {
                for r in 0..TILE_ROWS {
                    if r < height {
                        copy(to(r), &mut sums[r]);
                    }
                }
            }
            add::<I>(&tile, &mut sums);
            for r in 0..TILE_ROWS {
                if r < height {
                    copy(&sums[r], to(r));
                }
            }
        }
    }
}

/// Prefetches memory.
#[inline(always)]
fn prefetch<I: Isa, T: bytemuck::Pod>(memory: &[T]) {
    #[cfg(target_arch = "x86_64")]
    if I::LEVEL == Level::Avx2 {
        super::avx2::fixed_point::prefetch(bytemuck::cast_slice(memory));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = memory;
}

/// Copies as many elements as both slices have: usually two vectors.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    match (from.as_array::<TILE_COLS>(), to.as_mut_array::<TILE_COLS>()) {
        (Some(from), Some(to)) => *to = *from,
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}
