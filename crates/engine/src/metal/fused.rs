//! Elementwise ops on Metal, one or several in one pass: the kernel is written for them.

use super::input::{Input, Output};
use super::record::Recorder;
use crate::Result;
use crate::ops::Op;
use crate::ops::fused::Step;

/// Records a single elementwise op.
pub(crate) fn record_one(
    _op: &Op,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}

/// Records several in one pass.
pub(crate) fn record(
    _steps: &[Step],
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}
