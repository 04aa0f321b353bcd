//! `argmin` and `argmax` on the CPU: find the block with the extreme value, then its index within that block.

use std::marker::PhantomData;

use super::axis_split::AxisSplit;
use super::pool;
use super::reduce::fold::{Folder, Max, Min, Simple, Widen};
use super::simd::{self, Isa, Task};
use super::sort_key::{KeyBits, SortKey};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::arg_reduce::ArgReduce;

/// Elements of a row that are folded before their extreme is located: they stay in the L1 cache.
const ARG_BLOCK_LEN: usize = 2048;

/// Columns that are compared per pass.
const ARG_BLOCK_COLUMNS: usize = 512;

/// Writes the indices.
pub(crate) fn run(op: &ArgReduce, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let split = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let data = Dense::new(op.name(), inputs[0])?;
    let out = output.all::<i64>();
    with_type!(inputs[0].dtype, T => if op.max {
        find::<T, Simple<Max<T>>, true>(data.all(), split, out);
    } else {
        find::<T, Simple<Min<T>>, false>(data.all(), split, out);
    });
    Ok(())
}

fn find<T, F, const MAX: bool>(data: &[T], split: AxisSplit, out: &mut [i64])
where
    T: SortKey + Widen,
    F: Folder<In = T, Total = T::Wide>,
{
    let AxisSplit { outer, len, inner } = split;
    let piece = pool::grain(size_of::<T>());
    if inner > 1 {
        let step = (piece / len).max(ARG_BLOCK_COLUMNS);
        pool::for_each_chunk(out, step, |i, out| {
            simd::run_narrow(ColumnExtremes::<T, MAX> {
                data,
                len,
                inner,
                first: i * step,
                out,
            });
        });
    } else if len >= 2 * piece && outer < 64 {
        let pieces = len.div_ceil(piece);
        let mut found = vec![0; outer * pieces];
        pool::for_each_chunk(&mut found, 1, |i, found| {
            let (row, from) = (i / pieces, i % pieces * piece);
            let data = &data[row * len..][from..len.min(from + piece)];
            simd::run_narrow(RowExtremes::<T, F> {
                data,
                len: data.len(),
                out: found,
                fold: PhantomData,
            });
            found[0] += from as i64;
        });
        for (r, (to, found)) in out.iter_mut().zip(found.chunks(pieces)).enumerate() {
            let key = |at: i64| comparison_key::<T, MAX>(data[r * len + at as usize]);
            *to = found
                .iter()
                .fold(found[0], |a, &b| if key(b) > key(a) { b } else { a });
        }
    } else {
        let step = (piece / len).max(1);
        pool::for_each_chunk(out, step, |i, out| {
            simd::run_narrow(RowExtremes::<T, F> {
                data: &data[i * step * len..][..out.len() * len],
                len,
                out,
                fold: PhantomData,
            });
        });
    }
}

/// Returns the key whose maximum is searched. NaN has the maximum either way.
#[inline(always)]
fn comparison_key<T: SortKey, const MAX: bool>(x: T) -> T::Bits {
    let key = x.key();
    if MAX || (x.is_nan()) { key } else { !key }
}

#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
#[inline(always)]
fn is_nan<T: PartialOrd + Copy>(x: T) -> bool {
    x != x
}

/// The index of the first extreme of each row.
struct RowExtremes<'a, T, F> {
    data: &'a [T],
    /// Length of the rows.
    len: usize,
    out: &'a mut [i64],
    fold: PhantomData<F>,
}

impl<T, F> Task for RowExtremes<'_, T, F>
where
    T: Widen,
    F: Folder<In = T, Total = T::Wide>,
{
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        for (to, row) in self.out.iter_mut().zip(self.data.chunks_exact(self.len)) {
            let (mut best, mut at) = (F::run::<I>(&row[..self.len.min(ARG_BLOCK_LEN)]), 0);
            for (i, block) in row.chunks(ARG_BLOCK_LEN).enumerate().skip(1) {
                let here = F::run::<I>(block);
                // The merge changes for a better value or for the first NaN.
                let merged = F::merge(best, here);
                if merged != best && !is_nan(best) {
                    (best, at) = (here, i * ARG_BLOCK_LEN);
                }
            }
            // Test 64 elements without branches, then locate the match within them.
            let is_best = |x: T| {
                let x = x.wide();
                x == best || (is_nan(x) && is_nan(best))
            };
            let rest = row[at..].chunks(64);
            for (i, elements) in rest.enumerate() {
                if elements.iter().fold(false, |any, &x| any | is_best(x)) {
                    let found = elements.iter().position(|&x| is_best(x));
                    *to = (at + i * 64 + found.unwrap_or(0)) as i64;
                    break;
                }
            }
        }
    }
}

/// The indices of the greatest keys of a range of columns.
struct ColumnExtremes<'a, T, const MAX: bool> {
    data: &'a [T],
    len: usize,
    inner: usize,
    first: usize,
    out: &'a mut [i64],
}

impl<T: SortKey, const MAX: bool> Task for ColumnExtremes<'_, T, MAX> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        let mut best = [<T::Bits as KeyBits>::MIN; ARG_BLOCK_COLUMNS];
        let mut done = 0;
        while done < self.out.len() {
            let (block, from) = (
                (self.first + done) / self.inner,
                (self.first + done) % self.inner,
            );
            let width = ARG_BLOCK_COLUMNS
                .min(self.inner - from)
                .min(self.out.len() - done);
            let out = &mut self.out[done..done + width];
            out.fill(0);
            let best = &mut best[..width];
            best.fill(<T::Bits as KeyBits>::MIN);
            for r in 0..self.len {
                let row = &self.data[(block * self.len + r) * self.inner + from..][..width];
                for ((best, at), &x) in best.iter_mut().zip(&mut *out).zip(row) {
                    let key = comparison_key::<T, MAX>(x);
                    let better = key > *best;
                    *best = if better { key } else { *best };
                    *at = if better { r as i64 } else { *at };
                }
            }
            done += width;
        }
    }
}
