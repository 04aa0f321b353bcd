//! `cumsum`, `cumprod` and `cummax` on Metal.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::reduce::Method;
use super::rows::AxisRows;
use crate::Result;
use crate::ops::reduce::Fold;
use crate::ops::scan::{Running, Scan};

/// Elements that a thread scans in a step, as in `scan.metal`, and threads of a threadgroup.
const ITEMS_PER_THREAD: usize = 4;
const THREADS: usize = 256;

/// Minimum elements of a split of a long row, maximum splits of one, and rows that fill a GPU.
const MIN_SPLIT_ELEMENTS: usize = 16 * ITEMS_PER_THREAD * THREADS;
const MAX_SPLITS: usize = 1024;
const MIN_GPU_ROWS: usize = 128;

msl_struct! {
    /// Arguments of the scan kernels.
    pub(super) struct ScanArgs {
        rows: AxisRows,
        /// Splits of a row.
        splits: u32,
        /// Elements of a split.
        chunk: u32,
    }
}

pub(crate) fn record(
    op: &Scan,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let input = &inputs[0];
    let fold = match op.running {
        Running::Sum => Fold::Sum,
        Running::Prod => Fold::Prod,
        Running::Max => Fold::Max,
    };
    let method = Method::new(fold, input.dtype);
    let (rows, span) = AxisRows::new(input, op.axis, output);
    let (len, count) = (rows.len as usize, rows.count as usize);
    let splits = match count {
        0..MIN_GPU_ROWS => (len / MIN_SPLIT_ELEMENTS)
            .min(MAX_SPLITS.min(8 * MIN_GPU_ROWS / count))
            .max(1),
        _ => 1,
    };
    let scanning = ScanArgs {
        rows,
        splits: splits as u32,
        chunk: len.div_ceil(splits) as u32,
    };
    let packed = splits == 1 && len <= 32 * ITEMS_PER_THREAD;
    let kernel = |entry| {
        method
            .kernel(Kernel::new("scan", entry), input.dtype, output.dtype)
            .flag("ROW_PER_SIMD_GROUP", packed)
            .flag("SPLIT", splits > 1)
    };
    // Rows are interleaved, and there are enough of them.
    if rows.inner > 1 && (count >= MIN_GPU_ROWS || len <= ITEMS_PER_THREAD) {
        recorder
            .launch(&kernel("scan_column"))?
            .read(span)
            .write(&output.slice)
            .value(&scanning)
            .threads(recorder, count);
        return Ok(());
    }
    let totals = match splits {
        1 => None,
        _ => {
            let totals = recorder.scratch(count * splits * method.state)?;
            recorder
                .launch(&kernel("scan_totals"))?
                .read(span.clone())
                .write(&totals)
                .value(&scanning)
                .groups(recorder, count * splits, THREADS);
            Some(totals)
        }
    };
    let launch = recorder.launch(&kernel("scan_row"))?.read(span);
    let launch = match totals {
        Some(totals) => launch.read(totals),
        // Not read.
        None => launch.value(&[0_u64; 2]),
    };
    let launch = launch.write(&output.slice).value(&scanning);
    if packed {
        let rows_per_group = count.min(8);
        launch.groups(
            recorder,
            count.div_ceil(rows_per_group),
            32 * rows_per_group,
        );
    } else {
        launch.groups(recorder, count * splits, THREADS);
    }
    Ok(())
}
