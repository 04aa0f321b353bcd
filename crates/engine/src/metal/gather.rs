//! `gather` on Metal.

use super::around::{Around, bits, index_kind};
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
    let (around, span) = Around::new(recorder, data, op.axis, output)?;
    let (by, places) = Around::new(recorder, indices, op.axis, output)?;
    let fault = recorder.fault(around.len as usize)?;
    let kernel = Kernel::new("gather", "gather")
        .of("T", bits(data.dtype))
        .constant(0, index_kind(indices.dtype));
    recorder
        .launch(&kernel)?
        .read(span)
        .read(places)
        .write(&output.slice)
        .update(fault)
        .value(&around)
        .value(&by)
        .threads(
            recorder,
            (by.width as usize, by.len as usize, around.outer()),
        );
    Ok(())
}
