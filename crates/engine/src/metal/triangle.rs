//! `tril` and `triu` on Metal.

use super::elementwise::{Each, moved};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use crate::Result;
use crate::ops::triangle::Triangle;

/// Copies one side of the diagonal of each matrix and clears the other.
pub(crate) fn record(
    op: &Triangle,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let span = inputs[0].span(output);
    let each = Each::along_all(&inputs[0].layout, span.offset);
    let kernel = Kernel::new("triangle", "triangle")
        .of("T", moved(output.dtype))
        .flag("VECTOR_INPUT", each.is_vector(&each.steps[0]))
        .flag("VECTOR_OUTPUT", each.is_vector_store())
        .flag("UPPER", op.upper);
    let launch = recorder
        .launch(&kernel)?
        .read(span)
        .write(&output.slice)
        .value(&each.extent)
        .value(&each.steps[0])
        .value(&(op.diagonal as i64));
    each.launch(launch, recorder);
    Ok(())
}
