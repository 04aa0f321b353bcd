//! `tril` and `triu` on Metal.

use super::elementwise::{Elementwise, same_size_uint};
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
    let elementwise = Elementwise::along_all(&inputs[0].layout, span.offset);
    let kernel = Kernel::new("triangle", "triangle")
        .with_type("T", same_size_uint(output.dtype))
        .flag("VECTOR_INPUT", elementwise.is_vector(&elementwise.views[0]))
        .flag("VECTOR_OUTPUT", elementwise.is_vector_store())
        .flag("UPPER", op.upper);
    let launch = recorder
        .launch(&kernel)?
        .read(span)
        .write(&output.slice)
        .value(&elementwise.extent)
        .value(&elementwise.views[0])
        .value(&(op.diagonal as i64));
    elementwise.launch(launch, recorder);
    Ok(())
}
