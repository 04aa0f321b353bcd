//! `full` on Metal.

use super::elementwise::same_size_uint;
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
        .launch(&Kernel::new("full", "full").with_type("T", same_size_uint(op.dtype)))?
        .write(&output.slice)
        .values(&bytes[..op.dtype.size()])
        .threads(recorder, output.count());
    Ok(())
}
