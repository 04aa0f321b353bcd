//! `concat` on Metal.

use super::input::{Input, Output};
use super::record::Recorder;
use super::region;
use crate::ops::concat::Concat;
use crate::{Layout, Result};

/// Copies each input to its place.
pub(crate) fn record(
    op: &Concat,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let whole = Layout::contiguous(output.shape);
    let mut start = 0;
    for input in inputs {
        let len = input.layout.shape()[op.axis];
        let place = whole.sliced(op.axis, start, len, 1);
        if input.count() > 0 {
            region::write("concat", "concat", recorder, input, &place, output)?;
        }
        start += len;
    }
    Ok(())
}
