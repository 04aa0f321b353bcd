//! `softmax` and `log_softmax` on Metal.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use super::rows::Rows;
use crate::Result;
use crate::ops::softmax::Softmax;

/// Elements of a row that a thread keeps in registers; as `softmax.metal` has it.
const HELD: usize = 4;

pub(crate) fn record(
    op: &Softmax,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (rows, span) = Rows::new(&inputs[0], op.axis, output);
    let threads = (rows.len as usize).div_ceil(HELD).next_multiple_of(32);
    let (entry, threads) = match threads {
        0..=1024 => ("softmax_row", threads),
        _ => ("softmax_loop", 1024),
    };
    let kernel = Kernel::new("softmax", entry).of("T", output.dtype);
    let launch = recorder.launch(&kernel.flag(0, op.log))?;
    let threads = threads.min(launch.max_threads());
    launch.read(span).write(&output.slice).value(&rows).groups(
        recorder,
        rows.count as usize,
        threads,
    );
    Ok(())
}
