//! `contiguous` on Metal.

use super::elementwise::same_size_uint;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::view;
use crate::Result;
use crate::ops::copy::Copy;

msl_struct! {
    /// Arguments of the contiguous copy kernel, in elements.
    pub(super) struct CopyArgs {
        offset: u64,
        count: u64,
    }
}

/// Records the op.
pub(super) fn record(
    _op: &Copy,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    record_copy(recorder, &inputs[0], output)
}

/// Writes the elements of any layout in row-major order.
pub(crate) fn record_copy(
    recorder: &mut Recorder<'_>,
    input: &Input<'_>,
    output: &Output,
) -> Result<()> {
    let span = input.span(output);
    // Elements are moved as bits.
    let dtype = same_size_uint(input.dtype);
    if input.is_dense() {
        // Four elements a thread, with one load if they are aligned.
        let count = output.count();
        let kernel = Kernel::new("copy", "copy_dense").with_type("T", dtype);
        recorder
            .launch(&kernel.flag("ALIGNED", span.offset.is_multiple_of(4)))?
            .read(span.clone())
            .write(&output.slice)
            .value(&CopyArgs {
                offset: span.offset as u64,
                count: count as u64,
            })
            .threads(recorder, count.div_ceil(4));
        return Ok(());
    }
    let (walk, views) = view::walk(input.layout.shape(), &[(input, span.offset)]);
    recorder
        .launch(&Kernel::new("copy", "copy_strided").with_type("T", dtype))?
        .read(span)
        .write(&output.slice)
        .value(&walk)
        .value(&views[0])
        .threads(recorder, view::grid(&walk));
    Ok(())
}
