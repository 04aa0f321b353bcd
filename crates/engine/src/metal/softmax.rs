//! `softmax` and `log_softmax` on Metal.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::rows::{self, AxisRows};
use crate::Result;
use crate::ops::softmax::Softmax;

/// Elements of a row that a thread keeps in registers, as in `softmax.metal`.
const VALUES_PER_THREAD: usize = 4;

pub(crate) fn record(
    op: &Softmax,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (rows, span) = AxisRows::new(&inputs[0], op.axis, output);
    let threads = (rows.len as usize)
        .div_ceil(VALUES_PER_THREAD)
        .next_multiple_of(32);
    let kernels = ["softmax_row", "softmax_loop"].map(|entry| {
        let kernel = Kernel::new("softmax", entry).with_type("T", output.dtype);
        kernel.flag("LOG", op.log)
    });
    let (launch, threads) = rows::launch(recorder, kernels, threads)?;
    launch.read(span).write(&output.slice).value(&rows).groups(
        recorder,
        rows.count as usize,
        threads,
    );
    Ok(())
}
