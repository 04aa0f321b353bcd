//! HalfWeights times many activations, as 16-bit integers.
//!
//! `vpmaddwd` and an addition take AVX2 less time for two steps than two fused multiply-adds of `f32`: 1.6 times
//! as many products a second on Zen 3. Activations are rounded once for all tasks, with a scale for every row and
//! block of [`BLOCK`] steps; panels of weights as they come into use, with one for every column and block. Blocks
//! are summed as integers, and their sums as `f32` in the order of `k`.
//!
//! # Error
//!
//! An activation is off by up to 1/8,190 of the largest of its block. Steps of weights are powers of two: a weight
//! is exact where it is at least half (`bf16`: 1/16) of the largest of its block, and else off by up to 1/4,096 of
//! that.
//!
//! # Numbers that are not tame
//!
//! Where a block of activations or weights has infinities, NaN, or a largest number outside 2⁻¹⁰⁰ to 2¹⁰⁰ that is
//! not 0, products are computed in `f32` as a whole: scales are always normal numbers here, and so is a scale of
//! weights times any sum.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shared_output::{self, SharedOutput};
use crate::cpu::gemm::{Packed, Wide};
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Level, Task};

/// Rows of activations from which on this is the faster way.
pub(super) const LEAST: usize = 24;

/// Steps that share a scale.
const BLOCK: usize = 128;

/// The largest integers that activations and weights become: an `f16` of 11 bits, times 2.
const TOP_X: i32 = 4095;
const TOP_W: i32 = 4094;

// The sum of a block fits, whatever its integers are, and so does any part of it. A pair of products, which
// `vpmaddwd` adds, does all the more.
const _: () = assert!(BLOCK as i64 * TOP_X as i64 * TOP_W as i64 <= i32::MAX as i64);

/// Columns of a panel of weights, and rows of a tile: twelve vectors of sums.
pub(super) const WIDTH: usize = 16;
pub(super) const HEIGHT: usize = 6;

/// Steps that are multiplied at once, at most: panels one after the other that fill half of a first-level cache. One panel
/// of [`Packed`] for AVX2 has up to 384.
const DEPTH: usize = 640;

/// Panels that these are, at most.
const RUNS: usize = 3;

/// Their blocks, at most: each panel may end with one that is not whole.
const BLOCKS: usize = DEPTH / BLOCK + RUNS;

/// Pairs of steps of a block, at most.
const PAIRS: usize = BLOCK / 2;

/// Rows of activations whose part of so many steps stays in a second-level cache.
const ROWS: usize = 64 * HEIGHT;

/// Two steps of a panel: for every column a pair of `i16`, the first one in the lower half.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u32; WIDTH]);

/// Whether products with these weights may be computed so: they are all tame, and the level gains by it.
pub(super) fn suits<B: Wide<Float = f32>>(b: &Packed<B>) -> bool {
    b.level() == Level::Avx2 && b.width() == WIDTH && b.depth() <= DEPTH && are_tame(b)
}

fn are_tame<B: Wide<Float = f32>>(b: &Packed<B>) -> bool {
    let tame = AtomicBool::new(true);
    let cut = Cut::of(b);
    pool::run(b.cols().div_ceil(WIDTH), |panel| {
        for run in 0..cut.runs() {
            if !simd::run_narrow(Tame(b.panel(run, panel))) {
                tame.store(false, Ordering::Relaxed);
            }
        }
    });
    tame.into_inner()
}

#[inline(always)]
fn is_tame(top: f32) -> bool {
    // 2¹⁰⁰ and its inverse.
    const MOST: f32 = f32::from_bits((127 + 100) << 23);
    const LEAST: f32 = f32::from_bits((127 - 100) << 23);
    top == 0.0 || (LEAST..=MOST).contains(&top)
}

/// To nearest, even of two: the last bits of a sum with 1.5 · 2²³ are the integer, if it has less than 22 bits.
#[inline(always)]
fn nearest(x: f32) -> u32 {
    (x + 12_582_912.0).to_bits().wrapping_sub(0x4B40_0000)
}

/// Two such integers of 16 bits, the first one in the lower half.
#[inline(always)]
fn pair(x: f32, y: f32) -> u32 {
    nearest(x) & 0xFFFF | nearest(y) << 16
}

/// Where rows are cut: at the panels' ends, and into blocks between them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Steps of a row, and of a panel.
    cols: usize,
    depth: usize,
}

impl Cut {
    pub(super) fn of<B: Wide>(b: &Packed<B>) -> Self {
        Self {
            cols: b.rows(),
            depth: b.depth(),
        }
    }

    /// Panels one after the other.
    fn runs(self) -> usize {
        self.cols.div_ceil(self.depth)
    }

    /// The steps of one. They begin where a pair does.
    fn steps(self, run: usize) -> Range<usize> {
        run * self.depth..self.cols.min((run + 1) * self.depth)
    }

    /// The blocks of one.
    fn blocks(self, run: usize) -> Range<usize> {
        let first = run * self.depth.div_ceil(BLOCK);
        first..first + self.steps(run).len().div_ceil(BLOCK)
    }

    /// Panels that are multiplied at once.
    fn together(self) -> usize {
        (DEPTH / self.depth).min(RUNS)
    }

    /// The panels of group `i`, none behind the last.
    fn group(self, i: usize) -> Range<usize> {
        let all = self.runs();
        all.min(i * self.together())..all.min((i + 1) * self.together())
    }

    /// Pairs and blocks of a row.
    fn row(self) -> (usize, usize) {
        let last = self.cols.saturating_sub(1) / self.depth;
        (self.cols.div_ceil(2), self.blocks(last).end)
    }
}

/// Rounded numbers, in panels of [`HEIGHT`] rows: for every two steps a pair of `i16` of each row, and for every
/// block the rows' scales. Rows missing in the last panel are zeros.
#[derive(Default)]
pub(super) struct Shorts {
    pairs: Vec<[u32; HEIGHT]>,
    scales: Vec<[f32; HEIGHT]>,
    cut: Cut,
    /// Pairs and blocks of a row.
    row: (usize, usize),
    rows: usize,
}

impl Shorts {
    /// Rounds `x`, whole rows; `false` where it is not tame.
    pub(super) fn set(&mut self, x: &[f32], cut: Cut) -> bool {
        (self.cut, self.row, self.rows) = (cut, cut.row(), x.len() / cut.cols);
        let (pairs, blocks) = self.row;
        let panels = self.rows.div_ceil(HEIGHT);
        if self.pairs.len() < panels * pairs {
            self.pairs.resize(panels * pairs, [0; HEIGHT]);
        }
        if self.scales.len() < panels * blocks {
            self.scales.resize(panels * blocks, [0.0; HEIGHT]);
        }
        let all = pool::DisjointSlice::new(&mut self.pairs);
        let tame = AtomicBool::new(true);
        pool::for_each_chunk(&mut self.scales[..panels * blocks], blocks, |i, scales| {
            let first = i * HEIGHT;
            let rows = HEIGHT.min(self.rows - first);
            let panel = Round {
                x: &x[first * cut.cols..][..rows * cut.cols],
                cut,
                pairs: shared_output::own(&all, i * pairs..(i + 1) * pairs),
                scales,
            };
            if !simd::run_narrow(panel) {
                tame.store(false, Ordering::Relaxed);
            }
        });
        tame.into_inner()
    }

    /// Some pairs and scales of a panel.
    #[inline(always)]
    fn panel(
        &self,
        i: usize,
        pairs: Range<usize>,
        blocks: Range<usize>,
    ) -> (&[[u32; HEIGHT]], &[[f32; HEIGHT]]) {
        (
            &self.pairs[i * self.row.0 + pairs.start..][..pairs.len()],
            &self.scales[i * self.row.1 + blocks.start..][..blocks.len()],
        )
    }
}

/// Rounds the rows of a panel, and finds out whether they are tame.
struct Round<'a> {
    x: &'a [f32],
    cut: Cut,
    pairs: &'a mut [[u32; HEIGHT]],
    scales: &'a mut [[f32; HEIGHT]],
}

impl Task for Round<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let cut = self.cut;
        let mut tame = true;
        let mut all = [[0; PAIRS]; HEIGHT];
        for run in 0..cut.runs() {
            let (steps, blocks) = (cut.steps(run), cut.blocks(run));
            for i in 0..blocks.len() {
                let first = steps.start + i * BLOCK;
                let last = steps.end.min(first + BLOCK);
                let scales = &mut self.scales[blocks.start + i];
                *scales = [0.0; HEIGHT];
                for (r, x) in self.x.chunks_exact(cut.cols).enumerate() {
                    let x = &x[first..last];
                    let top = match x.as_array() {
                        Some(x) => round(x, &mut all[r]),
                        None => {
                            let mut part = [0.0; BLOCK];
                            part[..x.len()].copy_from_slice(x);
                            round(&part, &mut all[r])
                        }
                    };
                    scales[r] = top / TOP_X as f32;
                    tame &= is_tame(top);
                }
                let pairs = &mut self.pairs[first / 2..last.div_ceil(2)];
                for i in 0..pairs.len() {
                    for r in 0..HEIGHT {
                        pairs[i][r] = all[r][i];
                    }
                }
            }
        }
        tame
    }
}

/// Rounds a block, and returns the largest number of it.
#[inline(always)]
fn round(x: &[f32; BLOCK], pairs: &mut [u32; PAIRS]) -> f32 {
    // As integers: NaN is greater than all numbers and is not lost.
    let mut top = 0;
    for i in 0..BLOCK {
        top = top.max((x[i].to_bits() & 0x7FFF_FFFF) as i32);
    }
    let top = f32::from_bits(top as u32);
    let inverse = if top == 0.0 { 0.0 } else { TOP_X as f32 / top };
    for i in 0..PAIRS {
        pairs[i] = pair(x[2 * i] * inverse, x[2 * i + 1] * inverse);
    }
    top
}

/// The largest numbers of a block of a panel, by column.
#[inline(always)]
fn tops<I: Isa, B: Wide<Float = f32>>(block: &[B]) -> [f32; WIDTH] {
    // As integers, as above: both kinds of halves are ordered like their bits.
    let steps = bytemuck::cast_slice::<B, u16>(block);
    let steps = steps.as_chunks::<WIDTH>().0;
    let mut tops = [0_u16; WIDTH];
    match I::LEVEL {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => tops = super::avx2::fixed_point::tops(steps),
        _ => {
            for i in 0..steps.len() {
                for c in 0..WIDTH {
                    tops[c] = tops[c].max(steps[i][c] & 0x7FFF);
                }
            }
        }
    }
    let mut halves = [B::default(); WIDTH];
    let mut wide = [0.0; WIDTH];
    halves.copy_from_slice(bytemuck::cast_slice(&tops));
    B::widen_run::<I>(&halves, &mut wide);
    wide
}

struct Tame<'a, B>(&'a [B]);

impl<B: Wide<Float = f32>> Task for Tame<'_, B> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let mut tame = true;
        for block in self.0.chunks(BLOCK * WIDTH) {
            let tops = tops::<I, B>(block);
            for c in 0..WIDTH {
                tame &= is_tame(tops[c]);
            }
        }
        tame
    }
}

/// Rounds a panel.
#[inline(always)]
fn narrow<I: Isa, B: Wide<Float = f32>>(
    panel: &[B],
    lines: &mut [Line],
    scales: &mut [[f32; WIDTH]],
) {
    let blocks = panel.chunks(BLOCK * WIDTH);
    let lines = lines.chunks_mut(PAIRS);
    for ((block, lines), scales) in blocks.zip(lines).zip(scales) {
        let tops = tops::<I, B>(block);
        let mut inverse = [0.0; WIDTH];
        for c in 0..WIDTH {
            // A power of two that makes an integer of 12 bits of the largest.
            let exponent = tops[c].to_bits() & 0x7F80_0000;
            let one = exponent.wrapping_sub(11 << 23);
            let many = ((254_u32 + 11) << 23).wrapping_sub(exponent);
            let is_zero = tops[c] == 0.0;
            scales[c] = if is_zero { 0.0 } else { f32::from_bits(one) };
            inverse[c] = if is_zero { 0.0 } else { f32::from_bits(many) };
        }
        let (whole, rest) = block.as_chunks::<{ 2 * WIDTH }>();
        for i in 0..lines.len() {
            let mut wide = [0.0; 2 * WIDTH];
            match whole.get(i) {
                Some(both) => B::widen_run::<I>(both, &mut wide),
                None => B::widen_run::<I>(rest, &mut wide[..rest.len()]),
            }
            for c in 0..WIDTH {
                lines[i].0[c] = pair(wide[c] * inverse[c], wide[WIDTH + c] * inverse[c]);
            }
        }
    }
}

/// Panels of a group in the same columns, rounded.
struct Right {
    lines: [Line; DEPTH / 2],
    scales: [[f32; WIDTH]; BLOCKS],
    /// Where blocks of lines end.
    ends: [usize; BLOCKS],
    blocks: usize,
}

impl Right {
    #[inline(always)]
    fn set<I: Isa, B: Wide<Float = f32>>(
        &mut self,
        b: &Packed<B>,
        cut: Cut,
        i: usize,
        panel: usize,
    ) {
        let mut at = 0;
        self.blocks = 0;
        for run in cut.group(i) {
            let lines = &mut self.lines[at..][..cut.steps(run).len().div_ceil(2)];
            narrow::<I, B>(b.panel(run, panel), lines, &mut self.scales[self.blocks..]);
            for end in (PAIRS..lines.len() + PAIRS).step_by(PAIRS) {
                self.ends[self.blocks] = at + end.min(lines.len());
                self.blocks += 1;
            }
            at += lines.len();
        }
    }

    #[inline(always)]
    fn with<'a>(&'a self, (pairs, rows): (&'a [[u32; HEIGHT]], &'a [[f32; HEIGHT]])) -> Tile<'a> {
        Tile {
            ends: &self.ends[..self.blocks],
            lines: &self.lines[..pairs.len()],
            columns: &self.scales[..self.blocks],
            pairs,
            rows,
        }
    }
}

/// A tile of [`HEIGHT`] rows and [`WIDTH`] columns, for the steps of a group of panels.
pub(super) struct Tile<'a> {
    /// Where the blocks of lines end.
    pub(super) ends: &'a [usize],
    /// Weights, and the columns' scales in every block.
    pub(super) lines: &'a [Line],
    pub(super) columns: &'a [[f32; WIDTH]],
    /// As many pairs of activations, and the rows' scales.
    pub(super) pairs: &'a [[u32; HEIGHT]],
    pub(super) rows: &'a [[f32; HEIGHT]],
}

pub(super) type Sums = [[f32; WIDTH]; HEIGHT];

/// Adds what a tile comes to.
#[inline(always)]
fn add<I: Isa>(tile: &Tile<'_>, sums: &mut Sums) {
    match I::LEVEL {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::avx2::fixed_point::add(tile, sums),
        _ => plain(tile, sums),
    }
}

/// The same integers, and floats in the same order, without intrinsics.
fn plain(tile: &Tile<'_>, sums: &mut Sums) {
    let both = |pair: u32| [pair as i16, (pair >> 16) as i16].map(i32::from);
    let mut first = 0;
    for (block, (columns, &last)) in tile.columns.iter().zip(tile.ends).enumerate() {
        for r in 0..HEIGHT {
            for c in 0..WIDTH {
                let mut dot = 0;
                for i in first..last {
                    let (w, x) = (both(tile.lines[i].0[c]), both(tile.pairs[i][r]));
                    dot += w[0] * x[0] + w[1] * x[1];
                }
                let dot = dot as f32 * columns[c];
                sums[r][c] = dot.mul_add(tile.rows[block][r], sums[r][c]);
            }
        }
        first = last;
    }
}

/// Multiplies a range of rows of weights, which are columns of `b`, from the beginning of a panel on, at a level
/// that the processor has.
pub(super) fn multiply<B: Wide<Float = f32>>(
    level: Level,
    b: &Packed<B>,
    x: &Shorts,
    range: Range<usize>,
    to: &SharedOutput<'_>,
) {
    assert_eq!(x.cut, Cut::of(b), "activations are cut as weights are");
    simd::run_at(level, Multiply { b, x, range, to });
}

struct Multiply<'a, B: Wide> {
    b: &'a Packed<B>,
    x: &'a Shorts,
    range: Range<usize>,
    to: &'a SharedOutput<'a>,
}

impl<B: Wide<Float = f32>> Task for Multiply<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (b, x, cut) = (self.b, self.x, self.x.cut);
        let mut right = Right {
            lines: [Line([0; WIDTH]); DEPTH / 2],
            scales: [[0.0; WIDTH]; BLOCKS],
            ends: [0; BLOCKS],
            blocks: 0,
        };
        let panels = self.range.start / WIDTH..self.range.end.div_ceil(WIDTH);
        let groups = cut.runs().div_ceil(cut.together());
        for first in (0..x.rows).step_by(ROWS) {
            let rows = first..x.rows.min(first + ROWS);
            for (group, panel) in (0..groups).flat_map(|g| panels.clone().map(move |p| (g, p))) {
                right.set::<I, B>(b, cut, group, panel);
                // Fetched meanwhile. Threads take tasks in turn, and tasks are mostly alike.
                let soon = if panel + 1 < panels.end {
                    self.panels(group, panel + 1)
                } else if group + 1 < groups {
                    self.panels(group + 1, panels.start)
                } else {
                    self.panels(0, panels.end + panels.len() * (pool::threads() - 1))
                };
                self.tiles::<I>(&right, soon, rows.clone(), group, panel);
            }
        }
    }
}

impl<'a, B: Wide<Float = f32>> Multiply<'a, B> {
    /// The panels of a group in the same columns; none where there are no such columns.
    #[inline(always)]
    fn panels(&self, group: usize, panel: usize) -> [&'a [B]; RUNS] {
        let mut panels: [&[B]; RUNS] = [&[]; RUNS];
        if panel * WIDTH < self.b.cols() {
            for (to, run) in panels.iter_mut().zip(self.x.cut.group(group)) {
                *to = self.b.panel(run, panel);
            }
        }
        panels
    }

    /// Multiplies all `rows` with some panels, and fetches others.
    #[inline(always)]
    fn tiles<I: Isa>(
        &self,
        right: &Right,
        soon: [&[B]; RUNS],
        rows: Range<usize>,
        group: usize,
        panel: usize,
    ) {
        let (x, cut, runs) = (self.x, self.x.cut, self.x.cut.group(group));
        let pairs = cut.steps(runs.start).start / 2..cut.steps(runs.end - 1).end.div_ceil(2);
        let blocks = cut.blocks(runs.start).start..cut.blocks(runs.end - 1).end;
        let col = panel * WIDTH;
        let width = WIDTH.min(self.range.end - col);
        // A part with every tile.
        let count = rows.len().div_ceil(HEIGHT);
        let mut soon = soon.map(|soon| soon.chunks(soon.len().div_ceil(count).max(1)));
        for first in rows.clone().step_by(HEIGHT) {
            let height = HEIGHT.min(rows.end - first);
            let to = |r: usize| self.to.get(first + r, col, width);
            for soon in &mut soon {
                fetch::<I, B>(soon.next().unwrap_or_default());
            }
            for r in 0..height {
                fetch::<I, f32>(to(r));
            }
            let tile = right.with(x.panel(first / HEIGHT, pairs.clone(), blocks.clone()));
            let mut sums = [[0.0; WIDTH]; HEIGHT];
            if group > 0 {
                for r in 0..HEIGHT {
                    if r < height {
                        copy(to(r), &mut sums[r]);
                    }
                }
            }
            add::<I>(&tile, &mut sums);
            for r in 0..HEIGHT {
                if r < height {
                    copy(&sums[r], to(r));
                }
            }
        }
    }
}

/// Calls for memory that is needed soon.
#[inline(always)]
fn fetch<I: Isa, T: bytemuck::Pod>(memory: &[T]) {
    #[cfg(target_arch = "x86_64")]
    if I::LEVEL == Level::Avx2 {
        super::avx2::fixed_point::fetch(bytemuck::cast_slice(memory));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = memory;
}

/// As many numbers as there are on both sides; mostly two vectors.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    match (from.as_array::<WIDTH>(), to.as_mut_array::<WIDTH>()) {
        (Some(from), Some(to)) => *to = *from,
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}
