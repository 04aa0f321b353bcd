//! `full` on the CPU.

use crate::Result;
use crate::dispatch::{Input, Output};
use crate::ops::full::Full;

/// Writes the constant.
pub(crate) fn run(op: &Full, _inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let size = op.dtype.size();
    output
        .bytes
        .copy_from_slice(&op.value.to_bytes(op.dtype)[..size]);
    Ok(())
}
