//! `concat` on Metal.

use super::elementwise::{Each, moved};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::region::{self, Region};
use super::view;
use crate::ops::concat::Concat;
use crate::shape::MAX_RANK;
use crate::{Layout, Result};

/// Maximum inputs of one launch, as in `concat.metal`.
const WOVEN: usize = 4;

/// Copies each input to its region: in one launch if there are few and their regions interleave in memory, otherwise in
/// one each.
pub(crate) fn record(
    op: &Concat,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut start = 0;
    let mut places = Vec::with_capacity(inputs.len());
    for input in inputs {
        if input.count() > 0 {
            places.push((input, start));
        }
        start += input.layout.shape()[op.axis];
    }
    let apart = output.shape[..op.axis].iter().all(|&len| len == 1);
    if !apart && (2..=WOVEN).contains(&places.len()) {
        return weave(op.axis, recorder, &places, output);
    }
    let whole = Layout::contiguous(output.shape);
    for (input, start) in places {
        let len = input.layout.shape()[op.axis];
        let place = whole.sliced(op.axis, start, len, 1);
        region::write("concat", "concat", recorder, input, &place, output)?;
    }
    Ok(())
}

/// Writes each element of the result once.
fn weave(
    axis: usize,
    recorder: &mut Recorder<'_>,
    places: &[(&Input<'_>, usize)],
    output: &Output,
) -> Result<()> {
    let each = Each::along_all(&Layout::contiguous(output.shape), 0);
    let kernel = Kernel::new("concat", "concat_woven")
        .of("T", moved(output.dtype))
        .flag("VECTOR_OUTPUT", each.is_vector_store())
        .flag("THIRD", places.len() > 2)
        .flag("FOURTH", places.len() > 3);
    let mut spans = Vec::with_capacity(WOVEN);
    let (mut steps, mut blocks) = (Vec::with_capacity(WOVEN), Vec::with_capacity(WOVEN));
    for &(input, start) in places {
        let span = input.span(output);
        steps.push(view::axes(&input.layout, span.offset).1);
        let mut starts = [0; MAX_RANK];
        starts[axis] = start;
        blocks.push(Region::new(&starts, input.layout.shape()));
        spans.push(span);
    }
    let mut launch = recorder
        .launch(&kernel)?
        .write(&output.slice)
        .value(&each.extent)
        .values(&steps)
        .values(&blocks);
    for span in spans {
        launch = launch.read(span);
    }
    each.launch(launch, recorder);
    Ok(())
}
