//! `concat` on Metal.

use super::elementwise::{Elementwise, same_size_uint};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::region::{self, Region};
use super::view;
use crate::ops::concat::Concat;
use crate::shape::MAX_RANK;
use crate::{Layout, Result};

/// Maximum inputs of one launch, as in `concat.metal`.
const MAX_INTERLEAVED_INPUTS: usize = 4;

/// Copies each input to its region: in one launch if there are few and their regions interleave in memory, otherwise in
/// one each.
pub(crate) fn record(
    op: &Concat,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut start = 0;
    let mut parts = Vec::with_capacity(inputs.len());
    for input in inputs {
        if input.count() > 0 {
            parts.push((input, start));
        }
        start += input.layout.shape()[op.axis];
    }
    let disjoint = output.shape[..op.axis].iter().all(|&len| len == 1);
    if !disjoint && (2..=MAX_INTERLEAVED_INPUTS).contains(&parts.len()) {
        return interleave(op.axis, recorder, &parts, output);
    }
    let whole = Layout::contiguous(output.shape);
    for (input, start) in parts {
        let len = input.layout.shape()[op.axis];
        let region = whole.sliced(op.axis, start, len, 1);
        region::write("concat", "concat", recorder, input, &region, output)?;
    }
    Ok(())
}

/// Writes each element of the result once.
fn interleave(
    axis: usize,
    recorder: &mut Recorder<'_>,
    parts: &[(&Input<'_>, usize)],
    output: &Output,
) -> Result<()> {
    let elementwise = Elementwise::along_all(&Layout::contiguous(output.shape), 0);
    let kernel = Kernel::new("concat", "concat_interleaved")
        .with_type("T", same_size_uint(output.dtype))
        .flag("VECTOR_OUTPUT", elementwise.is_vector_store())
        .flag("THIRD", parts.len() > 2)
        .flag("FOURTH", parts.len() > 3);
    let mut spans = Vec::with_capacity(MAX_INTERLEAVED_INPUTS);
    let (mut views, mut regions) = (
        Vec::with_capacity(MAX_INTERLEAVED_INPUTS),
        Vec::with_capacity(MAX_INTERLEAVED_INPUTS),
    );
    for &(input, start) in parts {
        let span = input.span(output);
        views.push(view::axes(&input.layout, span.offset).1);
        let mut starts = [0; MAX_RANK];
        starts[axis] = start;
        regions.push(Region::new(&starts, input.layout.shape()));
        spans.push(span);
    }
    let mut launch = recorder
        .launch(&kernel)?
        .write(&output.slice)
        .value(&elementwise.extent)
        .values(&views)
        .values(&regions);
    for span in spans {
        launch = launch.read(span);
    }
    elementwise.launch(launch, recorder);
    Ok(())
}
