//! `slice_update` on Metal.

use super::elementwise::{Elementwise, same_size_uint};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::region::{self, Region};
use super::{copy, view};
use crate::ops::slice_update::SliceUpdate;
use crate::{Layout, Result};

/// Copies the source over a region of the first input: in place, or while copying it to a new result.
pub(crate) fn record(
    op: &SliceUpdate,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (input, source) = (&inputs[0], &inputs[1]);
    let in_place = output.aliases_input == Some(0);
    if source.count() == 0 {
        return if in_place {
            Ok(())
        } else {
            copy::record_copy(recorder, input, output)
        };
    }
    if in_place {
        let mut region = Layout::contiguous(output.shape);
        for (axis, &len) in source.layout.shape().iter().enumerate() {
            region = region.sliced(axis, op.start[axis], len, 1);
        }
        return region::write(
            "slice_update",
            "slice_write",
            recorder,
            source,
            &region,
            output,
        );
    }
    let (span, source_span) = (input.span(output), source.span(output));
    let mut elementwise = Elementwise::along_all(&input.layout, span.offset);
    let (_, view) = view::axes(&source.layout, source_span.offset);
    elementwise.views.push(view);
    let kernel = Kernel::new("slice_update", "slice_update")
        .with_type("T", same_size_uint(output.dtype))
        .flag("VECTOR_INPUT", elementwise.is_vector(&elementwise.views[0]))
        .flag("VECTOR_OUTPUT", elementwise.is_vector_store());
    let launch = recorder
        .launch(&kernel)?
        .read(span)
        .read(source_span)
        .write(&output.slice)
        .value(&elementwise.extent)
        .values(&elementwise.views)
        .value(&Region::new(&op.start, source.layout.shape()));
    elementwise.launch(launch, recorder);
    Ok(())
}
