//! `pad` on the CPU.

use bytemuck::Pod;

use super::{pool, region};
use crate::dispatch::{Input, Output};
use crate::ops::Rule;
use crate::ops::pad::Pad;
use crate::{Layout, Result};

/// Fills the output with the padding value, then copies the input inside.
pub(crate) fn run(op: &Pad, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let value = op.value.to_bytes(output.dtype);
    match output.dtype.size() {
        1 => fill(output.bytes, value[0]),
        2 => fill(output.bytes, u16::from_ne_bytes([value[0], value[1]])),
        4 => fill(
            output.bytes,
            u32::from_ne_bytes([value[0], value[1], value[2], value[3]]),
        ),
        _ => fill(output.bytes, u64::from_ne_bytes(value)),
    }
    let mut target = Layout::contiguous(output.shape);
    for (axis, &len) in inputs[0].layout.shape().iter().enumerate() {
        target = target.sliced(axis, op.before[axis], len, 1);
    }
    region::write(op.name(), inputs[0], &target, output.bytes)
}

fn fill<T: Pod + Send + Sync>(bytes: &mut [u8], value: T) {
    pool::for_each_chunk(
        bytemuck::cast_slice_mut(bytes),
        pool::grain(size_of::<T>()),
        |_, out| {
            out.fill(value);
        },
    );
}
