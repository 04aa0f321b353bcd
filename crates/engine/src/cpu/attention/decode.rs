//! Attention of few queries: keys and values are read once, as they lie, for all queries that share them.
//!
//! Long sequences are cut into parts of a fixed length, each with its own running softmax; what the parts
//! have seen is put together at the end.

use super::Problem;
use super::tile::{self, KEYS, Seen};
use crate::Result;
use crate::cpu::math::Math;
use crate::cpu::pool;
use crate::cpu::row::{Float, Real};
use crate::cpu::simd::{self, Family, Isa, MulAdd, Task};
use crate::storage::Storage;

/// Keys of a part: about the bytes that make a task, at 128 dims.
const PART: usize = 512;

pub(super) fn run<T: Float>(problem: &Problem<'_, T>, to: &mut [T]) -> Result<()> {
    let shape = *problem.k.layout.shape();
    let (batch, key_heads) = (shape[0], shape[1]);
    let rows = problem.group * problem.queries;
    let parts = problem.keys.div_ceil(PART).max(1);
    // Of each row: the weighted sum, the maximum and the sum of weights.
    let width = problem.value_dim + 2;
    let size = rows * width;
    let bytes = batch * key_heads * parts * size * size_of::<T::Real>();
    let mut partial = Storage::new("attention", bytes)?;
    let partial = bytemuck::cast_slice_mut::<u8, T::Real>(partial.bytes_mut().expect("just made"));
    pool::for_each_chunk(partial, size, |i, to| {
        let (head, part) = (i / parts, i % parts);
        let space = rows * (problem.dim + KEYS) + KEYS * (problem.dim + problem.value_dim);
        T::Real::with_scratch(space, |space| {
            simd::run_as(
                Family::Attention,
                Part {
                    problem,
                    place: (head / key_heads, head % key_heads),
                    first: part * PART,
                    space,
                    to,
                },
            );
        });
    });
    let partial = &*partial;
    let all = to.chunks_exact_mut(problem.value_dim).enumerate();
    for (i, to) in all {
        let (head, row) = (i / rows, i % rows);
        let parts =
            (0..parts).map(|p| &partial[((head * parts + p) * rows + row) * width..][..width]);
        T::Real::with_scratch(problem.value_dim, |space| {
            simd::run_as(Family::Attention, Join { parts, space, to });
        });
    }
    Ok(())
}

/// A part of the keys, for all queries that share a head of keys.
struct Part<'a, T: Float> {
    problem: &'a Problem<'a, T>,
    place: (usize, usize),
    first: usize,
    space: &'a mut [T::Real],
    to: &'a mut [T::Real],
}

impl<T: Float> Task for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let p = self.problem;
        let (batch, key_head) = self.place;
        let (dim, value_dim) = (p.dim, p.value_dim);
        let rows = p.group * p.queries;
        let place = |row: usize| (batch, key_head * p.group + row / p.queries, row % p.queries);
        let (q, space) = self.space.split_at_mut(rows * dim);
        let (scores, space) = space.split_at_mut(rows * KEYS);
        let (k_space, v_space) = space.split_at_mut(KEYS * dim);
        let scale = T::Real::of(p.op.scale());
        for (r, row) in q.chunks_exact_mut(dim.max(1)).enumerate() {
            let (batch, head, query) = place(r);
            T::widen::<I>(p.q.row(batch, head, query), row);
            for x in row {
                *x = *x * scale;
            }
        }
        let seen = self.to;
        for row in seen.chunks_exact_mut(value_dim + 2) {
            row.fill(T::Real::ZERO);
            row[value_dim] = T::Real::LOWEST;
        }
        let low = p.op.reach(0, p.queries, p.keys).start.max(self.first);
        let end = (self.first + PART).min(p.keys);
        let high = p.op.reach(p.queries - 1, p.queries, p.keys).end.min(end);
        let mut start = low;
        while start < high {
            let count = KEYS.min(high - start);
            for j in 0..count {
                let k = T::view::<I>(p.k.row(batch, key_head, start + j), k_space);
                score::<I, _>(q, dim, k, &mut scores[j..], rows);
            }
            for (r, row) in scores.chunks_exact_mut(KEYS).enumerate() {
                p.finish::<I>(place(r), start, &mut row[..count]);
                // After the scores were bent: what is not there has no weight.
                row[count..].fill(T::Real::LOWEST);
                let out = &mut seen[r * (value_dim + 2)..][..value_dim + 2];
                let (sum, stats) = out.split_at_mut(value_dim);
                let mut so_far = Seen {
                    top: stats[0],
                    sum: stats[1],
                };
                let factor = so_far.take_in::<I>(row);
                (stats[0], stats[1]) = (so_far.top, so_far.sum);
                if factor != T::Real::of(1.0) {
                    for x in sum {
                        *x = *x * factor;
                    }
                }
            }
            for j in 0..count {
                let v = T::view::<I>(p.v.row(batch, key_head, start + j), v_space);
                for (row, out) in scores
                    .chunks_exact(KEYS)
                    .zip(seen.chunks_exact_mut(value_dim + 2))
                {
                    let weight = row[j];
                    for (x, &v) in out.iter_mut().zip(v) {
                        *x = v.mul_add_on::<I>(weight, *x);
                    }
                }
            }
            start += count;
        }
    }
}

/// The scores of all queries with one key, [`KEYS`] apart.
#[inline(always)]
fn score<I: Isa, R: Real>(q: &[R], dim: usize, k: &[R], scores: &mut [R], rows: usize) {
    let mut row = 0;
    let at = |i: usize| &q[i * dim..][..dim];
    while rows - row >= 4 {
        let four = tile::dots::<I, R>([at(row), at(row + 1), at(row + 2), at(row + 3)], k);
        for (m, s) in four.into_iter().enumerate() {
            scores[(row + m) * KEYS] = s;
        }
        row += 4;
    }
    while row < rows {
        scores[row * KEYS] = tile::dot::<I, R>(at(row), k);
        row += 1;
    }
}

/// Puts together what the parts have seen of a row.
struct Join<'a, T: Float, P> {
    parts: P,
    space: &'a mut [T::Real],
    to: &'a mut [T],
}

impl<'p, T: Float, P: Iterator<Item = &'p [T::Real]> + Clone> Task for Join<'_, T, P>
where
    T::Real: 'p,
{
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let dim = self.to.len();
        let top = self
            .parts
            .clone()
            .fold(T::Real::LOWEST, |top, part| top.above(part[dim]));
        let shift = if top == T::Real::LOWEST {
            T::Real::ZERO
        } else {
            top
        };
        self.space.fill(T::Real::ZERO);
        let mut all = Seen {
            top,
            sum: T::Real::ZERO,
        };
        for part in self.parts {
            let factor = (part[dim] - shift).exp_on::<I>();
            all.sum = part[dim + 1].mul_add_on::<I>(factor, all.sum);
            for (x, &v) in self.space.iter_mut().zip(part) {
                *x = v.mul_add_on::<I>(factor, *x);
            }
        }
        let scale = all.scale();
        for x in self.space.iter_mut() {
            *x = *x * scale;
        }
        T::narrow::<I>(self.space, self.to);
    }
}
