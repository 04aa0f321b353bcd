//! `tril` and `triu` on the CPU.

use super::pool;
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::ops::Rule;
use crate::ops::triangle::Triangle;

/// Copies one side of each row and zeros the other.
pub(crate) fn run(op: &Triangle, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let data = Dense::new(op.name(), inputs[0])?;
    let data = data.bytes();
    let shape = output.shape;
    let (rows, columns) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
    let size = output.dtype.size();
    let width = columns * size;
    let step = pool::grain(2 * width);
    pool::for_each_chunk(output.bytes, step * width, |i, out| {
        for (j, out) in out.chunks_exact_mut(width).enumerate() {
            let row = i * step + j;
            let data = &data[row * width..][..width];
            // The first column past the diagonal, or on it for the upper side.
            let on = (row % rows) as isize;
            let edge = on.saturating_add(op.diagonal);
            let edge = edge.saturating_add(isize::from(!op.upper));
            let edge = edge.clamp(0, columns as isize) as usize * size;
            let (keep, clear) = if op.upper {
                (edge..width, 0..edge)
            } else {
                (0..edge, edge..width)
            };
            out[keep.clone()].copy_from_slice(&data[keep]);
            out[clear].fill(0);
        }
    });
    Ok(())
}
