//! `argmin` and `argmax` on the CPU: the extreme of each block, then where it is in the best one.

use std::marker::PhantomData;

use super::axis_split::AxisSplit;
use super::pool;
use super::reduce::fold::{Folder, Max, Min, Simple, Widen};
use super::simd::{self, Isa, Task};
use super::sort_key::{Bits, Key};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::arg_reduce::ArgReduce;

/// Elements whose greatest is found before it is looked for: they stay in the first cache.
const BLOCK: usize = 2048;

/// Columns that are compared at once.
const COLUMNS: usize = 512;

/// Writes the indices.
pub(crate) fn run(op: &ArgReduce, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let around = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let data = Dense::new(op.name(), inputs[0])?;
    let out = output.all::<i64>();
    with_type!(inputs[0].dtype, T => if op.max {
        find::<T, Simple<Max<T>>, true>(data.all(), around, out);
    } else {
        find::<T, Simple<Min<T>>, false>(data.all(), around, out);
    });
    Ok(())
}

fn find<T, F, const MAX: bool>(data: &[T], around: AxisSplit, out: &mut [i64])
where
    T: Key + Widen,
    F: Folder<In = T, Total = T::Wide>,
{
    let AxisSplit { outer, len, inner } = around;
    let piece = pool::grain(size_of::<T>());
    if inner > 1 {
        let step = (piece / len).max(COLUMNS);
        pool::for_each_chunk(out, step, |i, out| {
            simd::run_narrow(Columns::<T, MAX> {
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
            let part = &data[row * len..][from..len.min(from + piece)];
            simd::run_narrow(Rows::<T, F> {
                data: part,
                len: part.len(),
                out: found,
                fold: PhantomData,
            });
            found[0] += from as i64;
        });
        for (r, (to, found)) in out.iter_mut().zip(found.chunks(pieces)).enumerate() {
            let key = |at: i64| order::<T, MAX>(data[r * len + at as usize]);
            *to = found
                .iter()
                .fold(found[0], |a, &b| if key(b) > key(a) { b } else { a });
        }
    } else {
        let step = (piece / len).max(1);
        pool::for_each_chunk(out, step, |i, out| {
            simd::run_narrow(Rows::<T, F> {
                data: &data[i * step * len..][..out.len() * len],
                len,
                out,
                fold: PhantomData,
            });
        });
    }
}

/// The key whose greatest is looked for. NaN has the greatest either way.
#[inline(always)]
fn order<T: Key, const MAX: bool>(x: T) -> T::Bits {
    let key = x.key();
    if MAX || (x.is_nan()) { key } else { !key }
}

#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
#[inline(always)]
fn is_nan<T: PartialOrd + Copy>(x: T) -> bool {
    x != x
}

/// Where the extreme of each row is first.
struct Rows<'a, T, F> {
    data: &'a [T],
    /// Length of the rows.
    len: usize,
    out: &'a mut [i64],
    fold: PhantomData<F>,
}

impl<T, F> Task for Rows<'_, T, F>
where
    T: Widen,
    F: Folder<In = T, Total = T::Wide>,
{
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        for (to, row) in self.out.iter_mut().zip(self.data.chunks_exact(self.len)) {
            let (mut best, mut at) = (F::run::<I>(&row[..self.len.min(BLOCK)]), 0);
            for (i, block) in row.chunks(BLOCK).enumerate().skip(1) {
                let here = F::run::<I>(block);
                // Both is what changes: a better one, or the first NaN.
                let both = F::merge(best, here);
                if both != best && !is_nan(best) {
                    (best, at) = (here, i * BLOCK);
                }
            }
            // A look at many at once, then at one by one where one of them is it.
            let is_best = |x: T| {
                let x = x.wide();
                x == best || (is_nan(x) && is_nan(best))
            };
            let rest = row[at..].chunks(64);
            for (i, some) in rest.enumerate() {
                if some.iter().fold(false, |any, &x| any | is_best(x)) {
                    let found = some.iter().position(|&x| is_best(x));
                    *to = (at + i * 64 + found.unwrap_or(0)) as i64;
                    break;
                }
            }
        }
    }
}

/// The indices of the greatest keys of some columns.
struct Columns<'a, T, const MAX: bool> {
    data: &'a [T],
    len: usize,
    inner: usize,
    first: usize,
    out: &'a mut [i64],
}

impl<T: Key, const MAX: bool> Task for Columns<'_, T, MAX> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        let mut best = [<T::Bits as Bits>::MIN; COLUMNS];
        let mut done = 0;
        while done < self.out.len() {
            let (block, from) = (
                (self.first + done) / self.inner,
                (self.first + done) % self.inner,
            );
            let width = COLUMNS.min(self.inner - from).min(self.out.len() - done);
            let out = &mut self.out[done..done + width];
            out.fill(0);
            let best = &mut best[..width];
            best.fill(<T::Bits as Bits>::MIN);
            for r in 0..self.len {
                let row = &self.data[(block * self.len + r) * self.inner + from..][..width];
                for ((best, at), &x) in best.iter_mut().zip(&mut *out).zip(row) {
                    let key = order::<T, MAX>(x);
                    let better = key > *best;
                    *best = if better { key } else { *best };
                    *at = if better { r as i64 } else { *at };
                }
            }
            done += width;
        }
    }
}
