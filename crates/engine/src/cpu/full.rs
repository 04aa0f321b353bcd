//! `full` on the CPU.

use crate::dispatch::Output;
use crate::ops::full::Full;

/// Writes the number.
pub(crate) fn run(op: &Full, output: Output<'_>) {
    let size = op.dtype.size();
    output
        .bytes
        .copy_from_slice(&op.value.to_bytes(op.dtype)[..size]);
}
