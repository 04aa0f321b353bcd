//! `gather` on the CPU.

use std::sync::OnceLock;

use bytemuck::Pod;

use super::axis_split::AxisSplit;
use super::index::{AxisIndices, INDEX_BLOCK_LEN};
use super::pool;
use crate::dispatch::{Dense, Input, Output};
use crate::ops::Rule;
use crate::ops::gather::Gather;
use crate::{Error, Result};

/// Copies the indexed elements.
pub(crate) fn run(op: &Gather, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let data = Dense::new(op.name(), inputs[0])?;
    let from = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let to = AxisSplit::new(inputs[1].layout.shape(), op.axis);
    let indices = AxisIndices::new(op.name(), inputs[1], from.len)?;
    let error = OnceLock::new();
    let resolve = |start, positions: &mut [usize]| {
        let result = indices.resolve(start, positions);
        result.map_err(|e| error.set(e)).is_ok()
    };
    match inputs[0].dtype.size() {
        1 => gather::<u8>(data.all(), [from, to], output.all(), &resolve),
        2 => gather::<u16>(data.all(), [from, to], output.all(), &resolve),
        4 => gather::<u32>(data.all(), [from, to], output.all(), &resolve),
        _ => gather::<u64>(data.all(), [from, to], output.all(), &resolve),
    }
    error.into_inner().map_or(Ok(()), |e: Error| Err(e))
}

fn gather<T: Pod + Send + Sync>(
    data: &[T],
    [from, to]: [AxisSplit; 2],
    out: &mut [T],
    resolve: &(dyn Fn(usize, &mut [usize]) -> bool + Sync),
) {
    let inner = from.inner;
    let step = pool::grain(2 * size_of::<T>() + 8).next_multiple_of(INDEX_BLOCK_LEN);
    pool::for_each_chunk(out, step, |i, out| {
        let mut scratch = [0; INDEX_BLOCK_LEN];
        for (j, out) in out.chunks_mut(INDEX_BLOCK_LEN).enumerate() {
            let first = i * step + j * INDEX_BLOCK_LEN;
            let scratch = &mut scratch[..out.len()];
            if !resolve(first, scratch) {
                return;
            }
            // Column and base offset of the first element, advanced from there without divisions.
            let mut column = first % inner;
            let mut left = to.len * inner - first % (to.len * inner);
            let mut base = first / (to.len * inner) * from.len * inner;
            for (to_element, &position) in out.iter_mut().zip(&*scratch) {
                *to_element = data[base + position * inner + column];
                column += 1;
                if column == inner {
                    column = 0;
                }
                left -= 1;
                if left == 0 {
                    left = to.len * inner;
                    base += from.len * inner;
                }
            }
        }
    });
}
