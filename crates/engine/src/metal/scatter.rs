//! `scatter` and `scatter_add` on Metal.
//!
//! Elements of different columns (all axes but the indexed one) are independent, and those of one column are taken in
//! order, so that the last one wins and sums are always the same. If there are many columns, each has a thread. If
//! there are few, each element of the result has one, which scans all indices of its column, or, if that would take
//! long, finds its own by binary search after a sort.

use super::axis_split::{AxisSplit, index_kind};
use super::copy;
use super::elementwise::same_size_uint;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::rows::AxisRows;
use super::sort::{self, SortRequest};
use crate::cpu;
use crate::ops::scatter::Scatter;
use crate::{DType, Layout, Result};

msl_struct! {
    /// A row-major result, split at the scattered axis.
    pub(super) struct ScatterTarget {
        /// Length of the axis.
        len: u32,
        /// Elements of a row.
        width: u32,
    }
}

/// Minimum columns for which a thread each fills a GPU.
const MIN_PARALLEL_COLUMNS: usize = 4096;

/// Maximum indices of a column for which a thread for each column is quicker than one for each element of the result
/// that scans all indices of its column.
const MAX_SERIAL_INDICES: usize = 16;

/// Maximum indices that such scans read; with more, indices are sorted first, which costs some launches.
const MAX_SCANNED_INDICES: usize = 1 << 22;

pub(crate) fn record(
    op: &Scatter,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    if output.aliases_input != Some(0) {
        copy::record_copy(recorder, &inputs[0], output)?;
    }
    if inputs[1].count() == 0 {
        return Ok(());
    }
    let into = cpu::axis_split::AxisSplit::new(&output.shape, op.axis);
    let count = inputs[1].layout.shape()[op.axis];
    let columns = into.outer * into.inner;
    let by_column = columns >= MIN_PARALLEL_COLUMNS || count <= MAX_SERIAL_INDICES;
    if !by_column && (columns * into.len).saturating_mul(count) > MAX_SCANNED_INDICES {
        return record_sorted(op, recorder, inputs, output);
    }
    let (by, indices) = AxisSplit::new(recorder, &inputs[1], op.axis, output)?;
    let (from, source) = AxisSplit::new(recorder, &inputs[2], op.axis, output)?;
    let fault = recorder.fault(into.len)?;
    let (entry, rows) = if by_column {
        ("scatter_columns", into.outer)
    } else {
        ("scatter_elements", into.len)
    };
    let launch = recorder
        .launch(&kernel(op, entry, inputs, output))?
        .read(indices)
        .read(source)
        .update(&output.slice)
        .update(fault)
        .value(&by)
        .value(&from)
        .value(&ScatterTarget {
            len: into.len as u32,
            width: into.inner as u32,
        });
    if by_column {
        launch.threads(recorder, (into.inner, rows))
    } else {
        launch.threads(recorder, (into.inner, rows, into.outer))
    }
    Ok(())
}

fn kernel(op: &Scatter, entry: &'static str, inputs: &[Input<'_>], output: &Output) -> Kernel {
    let dtype = match output.dtype {
        dtype if op.add && (dtype.is_float() || dtype == DType::Bool) => dtype,
        dtype => same_size_uint(dtype),
    };
    Kernel::new("scatter", entry)
        .with_type("T", dtype)
        .constant("INDEX", index_kind(inputs[1].dtype))
        .flag("ADD", op.add)
}

/// Sorts the indices of each column, so that elements of the result find theirs.
fn record_sorted(
    op: &Scatter,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (by, indices) = AxisSplit::new(recorder, &inputs[1], op.axis, output)?;
    let (from, source) = AxisSplit::new(recorder, &inputs[2], op.axis, output)?;
    let into = cpu::axis_split::AxisSplit::new(&output.shape, op.axis);
    let to = ScatterTarget {
        len: into.len as u32,
        width: into.inner as u32,
    };
    let count = by.len as usize;
    let fault = recorder.fault(into.len)?;
    let shape = *inputs[1].layout.shape();
    let rows = recorder.scratch_output(DType::U32, shape)?;
    let order = recorder.scratch_output(DType::I64, shape)?;
    recorder
        .launch(&kernel(op, "scatter_rows", inputs, output))?
        .read(indices)
        .write(&rows.slice)
        .update(fault)
        .value(&by)
        .value(&to)
        .threads(recorder, (into.inner, count, into.outer));
    let named = Input::new(None, DType::U32, Layout::contiguous(shape), None);
    let (named, span) = AxisRows::new(&named, op.axis, &rows);
    let request = SortRequest {
        axis: op.axis,
        count,
        indices: true,
        descending: false,
    };
    sort::order_rows(recorder, named, span, DType::U32, &order, request)?;
    recorder
        .launch(&kernel(op, "scatter_ordered", inputs, output))?
        .read(rows.slice)
        .read(order.slice)
        .read(source)
        .update(&output.slice)
        .value(&from)
        .value(&to)
        .threads(recorder, (into.inner, into.len, into.outer));
    Ok(())
}
