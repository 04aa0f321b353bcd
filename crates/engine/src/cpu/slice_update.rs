//! `slice_update` on the CPU.

use super::region;
use super::scatter::copy_first;
use crate::dispatch::{Input, Output};
use crate::ops::Rule;
use crate::ops::slice_update::SliceUpdate;
use crate::{Layout, Result};

/// Copies the source over a region of the first input.
pub(crate) fn run(op: &SliceUpdate, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    copy_first(inputs[0], &mut output);
    let mut target = Layout::contiguous(output.shape);
    for (axis, &len) in inputs[1].layout.shape().iter().enumerate() {
        target = target.sliced(axis, op.start[axis], len, 1);
    }
    region::write(op.name(), inputs[1], &target, output.bytes)
}
