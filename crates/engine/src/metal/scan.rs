//! `cumsum`, `cumprod` and `cummax` on Metal.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::reduce::Method;
use super::rows::Rows;
use crate::Result;
use crate::ops::reduce::Fold;
use crate::ops::scan::{Running, Scan};

/// Elements that a thread scans in a step, as in `scan.metal`, and threads of a threadgroup.
const ITEMS: usize = 4;
const THREADS: usize = 256;

/// Minimum elements of a split of a long row, maximum splits of one, and rows that fill a GPU.
const PART: usize = 16 * ITEMS * THREADS;
const PARTS: usize = 1024;
const BUSY: usize = 128;

msl_struct! {
    /// Arguments of the scan kernels.
    pub(super) struct ScanArgs {
        rows: Rows,
        /// Splits of a row.
        parts: u32,
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
    let (rows, span) = Rows::new(input, op.axis, output);
    let (len, count) = (rows.len as usize, rows.count as usize);
    let parts = match count {
        0..BUSY => (len / PART).min(PARTS.min(8 * BUSY / count)).max(1),
        _ => 1,
    };
    let scanning = ScanArgs {
        rows,
        parts: parts as u32,
        chunk: len.div_ceil(parts) as u32,
    };
    let packed = parts == 1 && len <= 32 * ITEMS;
    let kernel = |entry| {
        method
            .of(Kernel::new("scan", entry), input.dtype, output.dtype)
            .flag("PACKED", packed)
            .flag("SPLIT", parts > 1)
    };
    // Rows are interleaved, and there are enough of them.
    if rows.inner > 1 && (count >= BUSY || len <= ITEMS) {
        recorder
            .launch(&kernel("scan_column"))?
            .read(span)
            .write(&output.slice)
            .value(&scanning)
            .threads(recorder, count);
        return Ok(());
    }
    let totals = match parts {
        1 => None,
        _ => {
            let totals = recorder.scratch(count * parts * method.state)?;
            recorder
                .launch(&kernel("scan_totals"))?
                .read(span.clone())
                .write(&totals)
                .value(&scanning)
                .groups(recorder, count * parts, THREADS);
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
        let pack = count.min(8);
        launch.groups(recorder, count.div_ceil(pack), 32 * pack);
    } else {
        launch.groups(recorder, count * parts, THREADS);
    }
    Ok(())
}
