//! `pad` on Metal.

use super::elementwise::{Elementwise, same_size_uint};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::region::Region;
use super::view;
use crate::ops::pad::Pad;
use crate::{Layout, Result};

/// Writes each element once: the input's inside the border, the pad value elsewhere.
pub(crate) fn record(
    op: &Pad,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let input = &inputs[0];
    let elementwise = Elementwise::along_all(&Layout::contiguous(output.shape), 0);
    let reads = input.count() > 0;
    let kernel = Kernel::new("pad", "pad")
        .with_type("T", same_size_uint(output.dtype))
        .flag("VECTOR_OUTPUT", elementwise.is_vector_store())
        .flag("READS", reads);
    let span = reads.then(|| input.span(output));
    let offset = span.as_ref().map_or(0, |span| span.offset);
    let (_, view) = view::axes(&input.layout, offset);
    let value = op.value.to_bytes(output.dtype);
    let mut launch = recorder
        .launch(&kernel)?
        .write(&output.slice)
        .value(&elementwise.extent)
        .value(&view)
        .value(&Region::new(&op.before, input.layout.shape()))
        .values(&value[..output.dtype.size()]);
    if let Some(span) = span {
        launch = launch.read(span);
    }
    elementwise.launch(launch, recorder);
    Ok(())
}
