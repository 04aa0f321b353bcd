//! `topk` on the CPU: one look at each element, most of which are no candidates.

use super::arg_sort::expect_short;
use super::axis_split::AxisSplit;
use super::sort::rows;
use super::sort_key::Key;
use super::try_vec;
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::top_k::TopK;

/// Writes the indices of the greatest or least elements.
pub(crate) fn run(op: &TopK, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let around = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    expect_short(op.name(), around.len)?;
    let data = Dense::new(op.name(), inputs[0])?;
    with_type!(inputs[0].dtype, T => {
        let select = |row: &[T], out: &mut [i64]| match (op.largest, size_of::<T>()) {
            (true, 8) => select(row, out, |i, key| u128::from(!key) << 32 | i as u128),
            (false, 8) => select(row, out, |i, key| u128::from(key) << 32 | i as u128),
            (true, _) => select(row, out, |i, key| (!key) << 32 | i as u64),
            (false, _) => select(row, out, |i, key| key << 32 | i as u64),
        };
        rows::<T, i64>(op.name(), data.all(), around, op.k, output.all(), select)
    })
}

/// An index below its key: the least come first, and of equal ones the first.
trait Candidate: Copy + Ord {
    const LAST: Self;
    fn index(self) -> i64;
}

impl Candidate for u64 {
    const LAST: Self = Self::MAX;
    fn index(self) -> i64 {
        i64::from(self as u32)
    }
}

impl Candidate for u128 {
    const LAST: Self = Self::MAX;
    fn index(self) -> i64 {
        i64::from(self as u32)
    }
}

fn select<T: Key, C: Candidate>(
    row: &[T],
    out: &mut [i64],
    candidate: impl Fn(usize, u64) -> C,
) -> Result<()> {
    let k = out.len();
    let most = (2 * k).max(k.saturating_add(256)).min(row.len().max(1));
    let mut best: Vec<C> = try_vec::empty("topk", most)?;
    // Nothing from here on can be among the best.
    let mut bar = C::LAST;
    for (i, x) in row.iter().enumerate() {
        let c = candidate(i, x.key().into());
        if c < bar {
            if best.len() == most {
                best.select_nth_unstable(k - 1);
                best.truncate(k);
                bar = best[k - 1];
                if c >= bar {
                    continue;
                }
            }
            best.push(c);
        }
    }
    if best.len() > k {
        best.select_nth_unstable(k - 1);
        best.truncate(k);
    }
    best.sort_unstable();
    for (to, c) in out.iter_mut().zip(best) {
        *to = c.index();
    }
    Ok(())
}
