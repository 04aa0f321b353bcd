//! `take` on Metal.

use super::axis_split::{AxisSplit, index_kind};
use super::elementwise::same_size_uint;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::view;
use crate::Result;
use crate::ops::take::Take;

pub(crate) fn record(
    op: &Take,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (data, indices) = (&inputs[0], &inputs[1]);
    let (split, span) = AxisSplit::new(recorder, data, op.axis, output)?;
    let places = indices.span(output);
    let (walk, views) = view::walk(indices.layout.shape(), &[(indices, places.offset)]);
    let fault = recorder.fault(split.len as usize)?;
    // The rows of the result are as wide as those of the data.
    let vector = split.is_aligned() && split.width.is_multiple_of(4);
    let width = split.width as usize / if vector { 4 } else { 1 };
    // At most as many rows are read as are written.
    let read = output.slice.length().min(span.slice.length());
    let kernel = Kernel::new("take", "take")
        .with_type("T", same_size_uint(data.dtype))
        .constant("INDEX", index_kind(indices.dtype))
        .flag("VECTOR", vector);
    recorder
        .launch(&kernel)?
        .read_part(span, read)
        .read(places)
        .write(&output.slice)
        .update(fault)
        .value(&split)
        .value(&walk)
        .value(&views[0])
        .cost((read + output.slice.length()) as u64)
        .threads(recorder, (width, indices.count(), split.outer()));
    Ok(())
}
