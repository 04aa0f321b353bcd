//! `gather` on Metal.

use super::axis_split::{AxisSplit, index_kind};
use super::elementwise::same_size_uint;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use crate::Result;
use crate::ops::gather::Gather;

pub(crate) fn record(
    op: &Gather,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (data, indices) = (&inputs[0], &inputs[1]);
    let (split, span) = AxisSplit::new(recorder, data, op.axis, output)?;
    let (by, places) = AxisSplit::new(recorder, indices, op.axis, output)?;
    let fault = recorder.fault(split.len as usize)?;
    let kernel = Kernel::new("gather", "gather")
        .with_type("T", same_size_uint(data.dtype))
        .constant("INDEX", index_kind(indices.dtype));
    recorder
        .launch(&kernel)?
        .read(span)
        .read(places)
        .write(&output.slice)
        .update(fault)
        .value(&split)
        .value(&by)
        .threads(
            recorder,
            (by.width as usize, by.len as usize, split.outer()),
        );
    Ok(())
}
