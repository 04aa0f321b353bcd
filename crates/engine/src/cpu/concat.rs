//! `concat` on the CPU.

use super::region;
use crate::dispatch::{Input, Output};
use crate::ops::Rule;
use crate::ops::concat::Concat;
use crate::{Layout, Result};

/// Copies each input to its region of the output.
pub(crate) fn run(op: &Concat, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let whole = Layout::contiguous(output.shape);
    let mut start = 0;
    for input in inputs {
        let len = input.layout.shape()[op.axis];
        let target = whole.sliced(op.axis, start, len, 1);
        region::write(op.name(), *input, &target, output.bytes)?;
        start += len;
    }
    Ok(())
}
