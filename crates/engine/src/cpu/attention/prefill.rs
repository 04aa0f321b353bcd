//! Attention of many queries.
//!
//! Keys and values are first arranged, once for all queries, into the panels that products of matrices
//! read; then every block of queries of every head takes in one block of keys after the other.

use super::tile::{self, KEYS, Seen, WIDTH};
use super::{Heads, Problem};
use crate::Result;
use crate::cpu::row::{Float, Real};
use crate::cpu::simd::{self, Family, Isa, Task};
use crate::cpu::{grid, pool};
use crate::storage::Storage;

/// Queries of a block: their sums and scores stay in the second cache, and a block of keys is used often
/// enough to be worth reading.
const QUERIES: usize = 96;

pub(super) fn run<T: Float>(problem: &Problem<'_, T>, to: &mut [T]) -> Result<()> {
    let shape = *problem.k.layout.shape();
    let (batch, key_heads) = (shape[0], shape[1]);
    let blocks = problem.keys.div_ceil(KEYS);
    let columns = problem.value_dim.next_multiple_of(WIDTH);
    let (k_size, v_size) = (problem.dim * KEYS, KEYS * columns);
    let bytes = |size: usize| batch * key_heads * blocks * size * size_of::<T::Real>();
    let mut k_panels = Storage::new("attention", bytes(k_size))?;
    let mut v_panels = Storage::new("attention", bytes(v_size))?;
    let k_all = bytemuck::cast_slice_mut::<u8, T::Real>(k_panels.bytes_mut().expect("just made"));
    let v_all = bytemuck::cast_slice_mut::<u8, T::Real>(v_panels.bytes_mut().expect("just made"));
    let place = |i: usize| {
        (
            i / blocks / key_heads,
            i / blocks % key_heads,
            i % blocks * KEYS,
        )
    };
    pool::for_each_chunk(k_all, k_size, |i, panels| {
        simd::run_as(
            Family::Attention,
            Arrange {
                from: &problem.k,
                place: place(i),
                panels,
                columns: None,
            },
        );
    });
    pool::for_each_chunk(v_all, v_size, |i, panels| {
        simd::run_as(
            Family::Attention,
            Arrange {
                from: &problem.v,
                place: place(i),
                panels,
                columns: Some(columns),
            },
        );
    });
    let row = problem.queries * problem.value_dim;
    grid::blocks(to, (1, row), QUERIES * problem.value_dim, |mut out| {
        let (batch, head) = (out.matrix / problem.heads, out.matrix % problem.heads);
        let first = out.column / problem.value_dim;
        let count = out.width / problem.value_dim;
        let head_of_keys = batch * key_heads + head / problem.group;
        let space = QUERIES * (problem.dim + KEYS + columns);
        T::Real::with_scratch(space, |space| {
            simd::run_as(
                Family::Attention,
                Block {
                    problem,
                    place: (batch, head, first),
                    k: &k_all[head_of_keys * blocks * k_size..][..blocks * k_size],
                    v: &v_all[head_of_keys * blocks * v_size..][..blocks * v_size],
                    columns,
                    count,
                    space,
                    to: out.row(0),
                },
            );
        });
    });
    Ok(())
}

/// Arranges a block of keys as panels whose columns are keys, or a block of values as panels whose columns
/// are dims. What is missing at the end is 0.
struct Arrange<'a, T: Float> {
    from: &'a Heads<'a, T>,
    place: (usize, usize, usize),
    panels: &'a mut [T::Real],
    /// For values: dims, rounded up to whole panels.
    columns: Option<usize>,
}

impl<T: Float> Task for Arrange<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (batch, head, first) = self.place;
        let shape = self.from.layout.shape();
        let (rows, dim) = (shape[2], shape[3]);
        T::Real::with_scratch(dim, |space| {
            if first + KEYS > rows || self.columns.is_some_and(|c| c != dim) {
                self.panels.fill(T::Real::ZERO);
            }
            for i in 0..KEYS.min(rows - first) {
                let row = T::view::<I>(self.from.row(batch, head, first + i), space);
                if self.columns.is_some() {
                    for (panel, part) in self
                        .panels
                        .chunks_exact_mut(KEYS * WIDTH)
                        .zip(row.chunks(WIDTH))
                    {
                        panel[i * WIDTH..][..part.len()].copy_from_slice(part);
                    }
                } else {
                    let panel = &mut self.panels[i / WIDTH * WIDTH * dim..][..WIDTH * dim];
                    for (to, &x) in panel.chunks_exact_mut(WIDTH).zip(row) {
                        to[i % WIDTH] = x;
                    }
                }
            }
        });
    }
}

/// A block of queries of a head.
struct Block<'a, T: Float> {
    problem: &'a Problem<'a, T>,
    /// Batch, head and first query.
    place: (usize, usize, usize),
    k: &'a [T::Real],
    v: &'a [T::Real],
    columns: usize,
    count: usize,
    space: &'a mut [T::Real],
    to: &'a mut [T],
}

impl<T: Float> Task for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (p, count, columns) = (self.problem, self.count, self.columns);
        let (batch, head, first) = self.place;
        let dim = p.dim;
        let (q, space) = self.space.split_at_mut(QUERIES * dim);
        let (scores, sums) = space.split_at_mut(QUERIES * KEYS);
        let scale = T::Real::of(p.op.scale());
        for (i, row) in q.chunks_exact_mut(dim.max(1)).take(count).enumerate() {
            T::widen::<I>(p.q.row(batch, head, first + i), row);
            for x in row {
                *x = *x * scale;
            }
        }
        if dim == 0 {
            scores.fill(T::Real::ZERO);
        }
        sums[..count * columns].fill(T::Real::ZERO);
        let mut seen = [Seen::NOTHING; QUERIES];
        // Keys that the first or the last query sees.
        let low = p.op.reach(first, p.queries, p.keys).start;
        let high = p.op.reach(first + count - 1, p.queries, p.keys).end;
        for block in low / KEYS..high.div_ceil(KEYS) {
            let k = &self.k[block * dim * KEYS..][..dim * KEYS];
            tile::product::<I, _>((&*q, dim), k, dim, (scores, KEYS), count, false);
            for (i, row) in scores.chunks_exact_mut(KEYS).take(count).enumerate() {
                p.finish::<I>((batch, head, first + i), block * KEYS, row);
                let factor = seen[i].take_in::<I>(row);
                if factor != T::Real::of(1.0) {
                    for x in &mut sums[i * columns..][..columns] {
                        *x = *x * factor;
                    }
                }
            }
            let v = &self.v[block * KEYS * columns..][..KEYS * columns];
            tile::product::<I, _>((&*scores, KEYS), v, KEYS, (sums, columns), count, true);
        }
        let rows = self.to.chunks_exact_mut(p.value_dim);
        for ((to, sum), seen) in rows.zip(sums.chunks_exact_mut(columns)).zip(&seen) {
            let scale = seen.scale();
            let sum = &mut sum[..p.value_dim];
            for x in sum.iter_mut() {
                *x = *x * scale;
            }
            T::narrow::<I>(sum, to);
        }
    }
}
