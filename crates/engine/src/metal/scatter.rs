//! `scatter` and `scatter_add` on Metal.
//!
//! Elements of different columns (all axes but the one of the indices) never meet, and those of one column
//! are taken in order, so that the last one wins and sums are always the same.

use super::around::{Around, bits, index_kind};
use super::copy;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use crate::cpu::around;
use crate::ops::scatter::Scatter;
use crate::{DType, Result};

/// With this many columns a thread for each keeps a GPU busy.
const COLUMNS: usize = 4096;

/// A thread for each column is quicker than one for each element of the result that looks at all indices of
/// its column, if these are few.
const FEW: usize = 16;

pub(crate) fn record(
    op: &Scatter,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    if output.holds != Some(0) {
        copy::record(recorder, &inputs[0], output)?;
    }
    if inputs[1].count() == 0 {
        return Ok(());
    }
    let (by, indices) = Around::new(recorder, &inputs[1], op.axis, output)?;
    let (from, source) = Around::new(recorder, &inputs[2], op.axis, output)?;
    let into = around::Around::new(&output.shape, op.axis);
    let fault = recorder.fault(into.len)?;
    let dtype = match output.dtype {
        dtype if op.add && (dtype.is_float() || dtype == DType::Bool) => dtype,
        dtype => bits(dtype),
    };
    let by_column = into.outer * into.inner >= COLUMNS || by.len as usize <= FEW;
    let (entry, rows) = match by_column {
        true => ("scatter_columns", into.outer),
        false => ("scatter_elements", into.len),
    };
    let kernel = Kernel::new("scatter", entry)
        .of("T", dtype)
        .constant(0, index_kind(inputs[1].dtype))
        .flag(1, op.add);
    let launch = recorder
        .launch(&kernel)?
        .read(indices)
        .read(source)
        .update(&output.slice)
        .update(fault)
        .value(&by)
        .value(&from)
        .value(&[into.len as u32, into.inner as u32]);
    match by_column {
        true => launch.threads(recorder, (into.inner, rows)),
        false => launch.threads(recorder, (into.inner, rows, into.outer)),
    }
    Ok(())
}
