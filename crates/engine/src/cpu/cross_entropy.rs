//! `cross_entropy` on the CPU.

use super::math::Math;
use super::pool;
use super::row::{self, Float, Real, RowLayout};
use super::simd::{self, Isa, Task};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::cross_entropy::CrossEntropy;
use crate::{Error, Layout, Result, Shape};

/// Elements whose exponentials are summed while they are in the L1 cache.
const EXP_BLOCK_LEN: usize = 1024;

/// Runs the op. Targets are checked before anything is written.
pub(crate) fn run(_op: &CrossEntropy, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let (x, targets) = (inputs[0], inputs[1]);
    let classes = x.layout.shape().last().copied().unwrap_or(0);
    let targets = with_type!(ints targets.dtype, I => {
        let all = targets.all::<I>();
        let targets = targets.layout.offsets().map(|at| class(i128::from(all[at]), classes));
        targets.collect::<Result<Vec<_>>>()?
    }, else unreachable!("the rule takes integers only"));
    with_type!(floats x.dtype, T => {
        let copy;
        let (data, rows) = match RowLayout::new(&x.layout) {
            Some(rows) => (x.all::<T>(), rows),
            None => {
                copy = Dense::new("cross_entropy", x)?;
                let shape = Shape::new("cross_entropy", &[targets.len(), classes])?;
                let rows = RowLayout::new(&Layout::contiguous(shape));
                (copy.all::<T>(), rows.expect("made without gaps"))
            }
        };
        let count = pool::grain(2 * classes * size_of::<T>());
        let out = output.all::<<T as Float>::Real>();
        pool::for_each_chunk(out, count, |i, to| {
            let targets = &targets[i * count..];
            let scratch = if T::IS_COMPUTE_TYPE { EXP_BLOCK_LEN } else { classes + EXP_BLOCK_LEN };
            <T as Float>::Real::with_scratch(scratch, |scratch| {
                simd::run(Losses { data, rows, first: i * count, targets, scratch, to });
            });
        });
        Ok(())
    }, else unreachable!("the rule takes floats only"))
}

/// Returns the class index of a target, which may count from the end.
fn class(target: i128, classes: usize) -> Result<usize> {
    let from_start = if target < 0 {
        target + classes as i128
    } else {
        target
    };
    let found = usize::try_from(from_start).ok().filter(|&c| c < classes);
    found.ok_or(Error::BadIndex {
        op: "cross_entropy",
        index: i64::try_from(target).unwrap_or(i64::MAX),
        len: classes,
    })
}

struct Losses<'a, T: Float> {
    data: &'a [T],
    rows: RowLayout,
    first: usize,
    targets: &'a [usize],
    scratch: &'a mut [T::Real],
    to: &'a mut [T::Real],
}

impl<T: Float> Task for Losses<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (block, scratch) = self.scratch.split_at_mut(EXP_BLOCK_LEN);
        for (i, (to, &target)) in self.to.iter_mut().zip(self.targets).enumerate() {
            let x = T::view::<I>(self.rows.get(self.data, self.first + i), scratch);
            let max = row::maximum(x);
            let mut total = 0.0;
            for x in x.chunks(EXP_BLOCK_LEN) {
                let block = &mut block[..x.len()];
                for (e, &x) in block.iter_mut().zip(x) {
                    *e = (x - max).exp_on::<I>();
                }
                total += row::sum(block);
            }
            *to = T::Real::of(total.ln()) - (x[target] - max);
        }
    }
}
