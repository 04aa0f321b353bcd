//! `argmin` and `argmax` on the CPU: the greatest [`Key`] of each block, then where it is in the best one.

use super::around::Around;
use super::key::{Bits, Key};
use super::pool;
use super::simd::{self, Isa, Task};
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
    let around = Around::new(inputs[0].layout.shape(), op.axis);
    let data = Dense::new(op.name(), inputs[0])?;
    let out = output.all::<i64>();
    with_type!(inputs[0].dtype, T => match op.max {
        true => find::<T, true>(data.all(), around, out),
        false => find::<T, false>(data.all(), around, out),
    });
    Ok(())
}

fn find<T: Key, const MAX: bool>(data: &[T], around: Around, out: &mut [i64]) {
    let Around { outer, len, inner } = around;
    let piece = pool::grain(size_of::<T>());
    if inner > 1 {
        let step = (piece / len).max(COLUMNS);
        pool::pieces(out, step, |i, out| {
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
        let mut found = vec![(<T::Bits as Bits>::MIN, 0); outer * pieces];
        pool::pieces(&mut found, 1, |i, found| {
            let (row, from) = (i / pieces, i % pieces * piece);
            let part = &data[row * len..][from..len.min(from + piece)];
            let (key, at) = simd::run_narrow(Row::<T, MAX>(part));
            found[0] = (key, from + at);
        });
        for (to, found) in out.iter_mut().zip(found.chunks(pieces)) {
            let best = found
                .iter()
                .fold(found[0], |a, &b| if b.0 > a.0 { b } else { a });
            *to = best.1 as i64;
        }
    } else {
        let step = (piece / len).max(1);
        pool::pieces(out, step, |i, out| {
            for (j, to) in out.iter_mut().enumerate() {
                let row = &data[(i * step + j) * len..][..len];
                *to = simd::run_narrow(Row::<T, MAX>(row)).1 as i64;
            }
        });
    }
}

/// The key whose greatest is looked for. NaN has the greatest either way.
#[inline(always)]
fn order<T: Key, const MAX: bool>(x: T) -> T::Bits {
    let key = x.key();
    if MAX || (x.is_nan()) { key } else { !key }
}

/// The greatest key of a row and where it is first.
struct Row<'a, T, const MAX: bool>(&'a [T]);

impl<T: Key, const MAX: bool> Task for Row<'_, T, MAX> {
    type Output = (T::Bits, usize);
    #[inline(always)]
    fn run<I: Isa>(self) -> Self::Output {
        let (mut best, mut at) = (<T::Bits as Bits>::MIN, 0);
        for (i, block) in self.0.chunks(BLOCK).enumerate() {
            let mut lanes = [<T::Bits as Bits>::MIN; 128];
            for row in block.chunks(128) {
                for (lane, &x) in lanes.iter_mut().zip(row) {
                    *lane = (*lane).max(order::<T, MAX>(x));
                }
            }
            let greatest = lanes.into_iter().fold(<T::Bits as Bits>::MIN, Ord::max);
            if greatest > best {
                (best, at) = (greatest, i);
            }
        }
        let block = &self.0[at * BLOCK..];
        let found = block.iter().position(|&x| order::<T, MAX>(x) == best);
        (best, at * BLOCK + found.unwrap_or(0))
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
