//! Attention of few queries: keys and values are read once, in place, for all queries that share them.
//!
//! Long sequences are split as in flash decoding: each split of fixed length has its own online softmax, and the
//! partial results are merged at the end.

use super::tile::{self, OnlineSoftmax, TILE_KEYS};
use super::{AttentionProblem, RowIndex};
use crate::Result;
use crate::cpu::math::Math;
use crate::cpu::pool;
use crate::cpu::row::{Float, Real};
use crate::cpu::simd::{self, Family, Isa, MulAdd, Task};
use crate::storage::Storage;

/// Keys of a split: about the bytes of one task at 128 dims.
const SPLIT_KEYS: usize = 512;

pub(super) fn run<T: Float>(problem: &AttentionProblem<'_, T>, to: &mut [T]) -> Result<()> {
    let shape = *problem.k.layout.shape();
    let (batch, kv_heads) = (shape[0], shape[1]);
    let rows = problem.group * problem.queries;
    let splits = problem.keys.div_ceil(SPLIT_KEYS).max(1);
    // Of each row: the weighted sum, the maximum and the sum of weights.
    let width = problem.value_dim + 2;
    let size = rows * width;
    let bytes = batch * kv_heads * splits * size * size_of::<T::Real>();
    let mut partial = Storage::new("attention", bytes)?;
    let partial =
        bytemuck::cast_slice_mut::<u8, T::Real>(partial.bytes_mut().expect("newly allocated"));
    pool::for_each_chunk(partial, size, |i, to| {
        let (head, split) = (i / splits, i % splits);
        let scratch_len =
            rows * (problem.dim + TILE_KEYS) + TILE_KEYS * (problem.dim + problem.value_dim);
        T::Real::with_scratch(scratch_len, |scratch| {
            simd::run_as(
                Family::Attention,
                KeySplit {
                    problem,
                    batch: head / kv_heads,
                    kv_head: head % kv_heads,
                    first: split * SPLIT_KEYS,
                    scratch,
                    to,
                },
            );
        });
    });
    let partial = &*partial;
    let all = to.chunks_exact_mut(problem.value_dim).enumerate();
    for (i, to) in all {
        let (head, row) = (i / rows, i % rows);
        let splits =
            (0..splits).map(|s| &partial[((head * splits + s) * rows + row) * width..][..width]);
        T::Real::with_scratch(problem.value_dim, |scratch| {
            simd::run_as(
                Family::Attention,
                MergeSplits {
                    splits,
                    scratch,
                    to,
                },
            );
        });
    }
    Ok(())
}

/// A split of the keys, for all queries that share a KV head.
struct KeySplit<'a, T: Float> {
    problem: &'a AttentionProblem<'a, T>,
    batch: usize,
    kv_head: usize,
    first: usize,
    scratch: &'a mut [T::Real],
    to: &'a mut [T::Real],
}

impl<T: Float> Task for KeySplit<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let p = self.problem;
        let (dim, value_dim) = (p.dim, p.value_dim);
        let rows = p.group * p.queries;
        let query = |row: usize| RowIndex {
            batch: self.batch,
            head: self.kv_head * p.group + row / p.queries,
            token: row % p.queries,
        };
        let key = |token: usize| RowIndex {
            batch: self.batch,
            head: self.kv_head,
            token,
        };
        let (q, scratch) = self.scratch.split_at_mut(rows * dim);
        let (scores, scratch) = scratch.split_at_mut(rows * TILE_KEYS);
        let (k_scratch, v_scratch) = scratch.split_at_mut(TILE_KEYS * dim);
        let scale = T::Real::of(p.op.scale());
        for (r, row) in q.chunks_exact_mut(dim.max(1)).enumerate() {
            T::widen::<I>(p.q.row(query(r)), row);
            for x in row {
                *x = *x * scale;
            }
        }
        let partial = self.to;
        for row in partial.chunks_exact_mut(value_dim + 2) {
            row.fill(T::Real::ZERO);
            row[value_dim] = T::Real::LOWEST;
        }
        let low = p.op.reach(0, p.queries, p.keys).start.max(self.first);
        let end = (self.first + SPLIT_KEYS).min(p.keys);
        let high = p.op.reach(p.queries - 1, p.queries, p.keys).end.min(end);
        let mut start = low;
        while start < high {
            let count = TILE_KEYS.min(high - start);
            for j in 0..count {
                let k = T::view::<I>(p.k.row(key(start + j)), k_scratch);
                score::<I, _>(q, dim, k, &mut scores[j..], rows);
            }
            for (r, row) in scores.chunks_exact_mut(TILE_KEYS).enumerate() {
                p.cap_and_mask::<I>(query(r), start, &mut row[..count]);
                // Only after the soft cap: keys past the end have no weight.
                row[count..].fill(T::Real::LOWEST);
                let out = &mut partial[r * (value_dim + 2)..][..value_dim + 2];
                let (sum, stats) = out.split_at_mut(value_dim);
                let mut softmax = OnlineSoftmax {
                    max: stats[0],
                    sum: stats[1],
                };
                let factor = softmax.update::<I>(row);
                (stats[0], stats[1]) = (softmax.max, softmax.sum);
                if factor != T::Real::of(1.0) {
                    for x in sum {
                        *x = *x * factor;
                    }
                }
            }
            for j in 0..count {
                let v = T::view::<I>(p.v.row(key(start + j)), v_scratch);
                for (row, out) in scores
                    .chunks_exact(TILE_KEYS)
                    .zip(partial.chunks_exact_mut(value_dim + 2))
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

/// Computes the scores of all queries with one key; they are [`TILE_KEYS`] apart.
#[inline(always)]
fn score<I: Isa, R: Real>(q: &[R], dim: usize, k: &[R], scores: &mut [R], rows: usize) {
    let mut row = 0;
    let at = |i: usize| &q[i * dim..][..dim];
    while rows - row >= 4 {
        let four = tile::dots::<I, R>([at(row), at(row + 1), at(row + 2), at(row + 3)], k);
        for (m, s) in four.into_iter().enumerate() {
            scores[(row + m) * TILE_KEYS] = s;
        }
        row += 4;
    }
    while row < rows {
        scores[row * TILE_KEYS] = tile::dot::<I, R>(at(row), k);
        row += 1;
    }
}

/// Merges the partial results of all splits for one row.
struct MergeSplits<'a, T: Float, S> {
    splits: S,
    scratch: &'a mut [T::Real],
    to: &'a mut [T],
}

impl<'s, T: Float, S: Iterator<Item = &'s [T::Real]> + Clone> Task for MergeSplits<'_, T, S>
where
    T::Real: 's,
{
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let dim = self.to.len();
        let max = self
            .splits
            .clone()
            .fold(T::Real::LOWEST, |max, split| max.max_number(split[dim]));
        let shift = if max == T::Real::LOWEST {
            T::Real::ZERO
        } else {
            max
        };
        self.scratch.fill(T::Real::ZERO);
        let mut softmax = OnlineSoftmax {
            max,
            sum: T::Real::ZERO,
        };
        for split in self.splits {
            let factor = (split[dim] - shift).exp_on::<I>();
            softmax.sum = split[dim + 1].mul_add_on::<I>(factor, softmax.sum);
            for (x, &v) in self.scratch.iter_mut().zip(split) {
                *x = v.mul_add_on::<I>(factor, *x);
            }
        }
        let scale = softmax.scale();
        for x in self.scratch.iter_mut() {
            *x = *x * scale;
        }
        T::narrow::<I>(self.scratch, self.to);
    }
}
