//! `topk` on the CPU: a single pass that keeps the best candidates; most elements are rejected by one comparison.

use super::arg_sort::expect_u32_len;
use super::axis_split::AxisSplit;
use super::sort::for_each_row;
use super::sort_key::SortKey;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::top_k::TopK;
use crate::{Result, try_vec};

/// Writes the indices of the largest or smallest elements.
pub(crate) fn run(op: &TopK, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let split = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    expect_u32_len(op.name(), split.len)?;
    let data = Dense::new(op.name(), inputs[0])?;
    with_type!(inputs[0].dtype, T => {
        let select = |row: &[T], out: &mut [i64]| match (op.largest, size_of::<T>()) {
            (true, 8) => select(row, out, |i, key| u128::from(!key) << 32 | i as u128),
            (false, 8) => select(row, out, |i, key| u128::from(key) << 32 | i as u128),
            (true, _) => select(row, out, |i, key| (!key) << 32 | i as u64),
            (false, _) => select(row, out, |i, key| key << 32 | i as u64),
        };
        for_each_row::<T, i64>(op.name(), data.all(), split, op.k, output.all(), select)
    })
}

/// A key above an index: the smallest keys come first, and of equal ones the first in the row.
trait Candidate: Copy + Ord {
    const MAX: Self;
    fn index(self) -> i64;
}

impl Candidate for u64 {
    const MAX: Self = Self::MAX;
    fn index(self) -> i64 {
        i64::from(self as u32)
    }
}

impl Candidate for u128 {
    const MAX: Self = Self::MAX;
    fn index(self) -> i64 {
        i64::from(self as u32)
    }
}

fn select<T: SortKey, C: Candidate>(
    row: &[T],
    out: &mut [i64],
    candidate: impl Fn(usize, u64) -> C,
) -> Result<()> {
    let k = out.len();
    let capacity = (2 * k).max(k.saturating_add(256)).min(row.len().max(1));
    let mut best: Vec<C> = try_vec::empty("topk", capacity)?;
    // Candidates at or above the threshold are not among the best.
    let mut threshold = C::MAX;
    for (i, x) in row.iter().enumerate() {
        let c = candidate(i, x.key().into());
        if c < threshold {
            if best.len() == capacity {
                best.select_nth_unstable(k - 1);
                best.truncate(k);
                threshold = best[k - 1];
                if c >= threshold {
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
