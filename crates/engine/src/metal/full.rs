//! `full` on Metal.

use super::elementwise::moved;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::Recorder;
use crate::Result;
use crate::ops::full::Full;

pub(crate) fn record(
    op: &Full,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let bytes = op.value.to_bytes(op.dtype);
    recorder
        .launch(&Kernel::new("full", "full").of("T", moved(op.dtype)))?
        .write(&output.slice)
        .values(&bytes[..op.dtype.size()])
        .threads(recorder, output.count());
    Ok(())
}
