//! `contiguous` on the CPU.

use super::fused::{MergedAxes, StridedView};
use super::pool;
use crate::Result;
use crate::dispatch::{Input, Output};
use crate::ops::copy::Copy;

/// Runs the op.
pub(crate) fn run(_op: &Copy, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    copy(&inputs[0], output);
    Ok(())
}

/// Writes the elements of any layout in row-major order.
pub(crate) fn copy(input: &Input<'_>, output: Output<'_>) {
    let Input {
        bytes,
        dtype,
        layout,
        ..
    } = *input;
    let size = dtype.size();
    let mut strides = [[0; crate::MAX_RANK]];
    strides[0][..layout.strides().len()].copy_from_slice(layout.strides());
    let axes = MergedAxes::collapse(layout.shape(), &mut strides);
    let view = StridedView {
        axes: &axes,
        offset: layout.offset(),
        strides: &strides[0],
    };
    let mut chunk = pool::grain(2 * size);
    if axes.transposed_axis(&strides[0]).is_some() {
        chunk = axes.chunk(chunk);
    }
    pool::for_each_chunk(output.bytes, chunk * size, |i, out| {
        view.gather(size, bytes, i * chunk, out);
    });
}
