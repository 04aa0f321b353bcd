//! `take` on the CPU.

use std::sync::OnceLock;

use bytemuck::Pod;

use super::axis_split::AxisSplit;
use super::index::{AxisIndices, INDEX_BLOCK_LEN};
use super::pool;
use crate::dispatch::{Dense, Input, Output};
use crate::ops::Rule;
use crate::ops::take::Take;
use crate::{Error, Result};

/// Copies the indexed rows.
pub(crate) fn run(op: &Take, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let split = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let take = TakeRows {
        data: Dense::new(op.name(), inputs[0])?,
        split,
        indices: AxisIndices::new(op.name(), inputs[1], split.len)?,
        count: inputs[1].layout.count(),
        error: OnceLock::new(),
    };
    match inputs[0].dtype.size() {
        1 => take.run::<u8>(output.all()),
        2 => take.run::<u16>(output.all()),
        4 => take.run::<u32>(output.all()),
        _ => take.run::<u64>(output.all()),
    }
    take.error.into_inner().map_or(Ok(()), Err)
}

struct TakeRows<'a> {
    data: Dense<'a>,
    split: AxisSplit,
    indices: AxisIndices<'a>,
    /// Number of indices.
    count: usize,
    /// The first error of any thread; the result is then discarded.
    error: OnceLock<Error>,
}

impl TakeRows<'_> {
    /// Copies rows of elements of any type of the right size.
    fn run<T: Pod + Send + Sync>(&self, out: &mut [T]) {
        let data = self.data.all::<T>();
        let AxisSplit {
            len, inner: width, ..
        } = self.split;
        let step = pool::grain(2 * width * size_of::<T>());
        pool::for_each_chunk(out, step * width, |i, out| {
            let mut scratch = [0; INDEX_BLOCK_LEN];
            let (first, end) = (i * step, i * step + out.len() / width);
            let mut at = first;
            while at < end {
                // As many rows as belong to one outer block of the data.
                let (block, from) = (at / self.count, at % self.count);
                let rows = INDEX_BLOCK_LEN.min(self.count - from).min(end - at);
                let positions = &mut scratch[..rows];
                if let Err(error) = self.indices.resolve(from, positions) {
                    let _ = self.error.set(error);
                    return;
                }
                let data = &data[block * len * width..][..len * width];
                let out = &mut out[(at - first) * width..][..rows * width];
                if width == 1 {
                    for (to, &position) in out.iter_mut().zip(&*positions) {
                        *to = data[position];
                    }
                } else {
                    for (to, &position) in out.chunks_exact_mut(width).zip(&*positions) {
                        to.copy_from_slice(&data[position * width..][..width]);
                    }
                }
                at += rows;
            }
        });
    }
}
