//! `slice_update` on Metal.

use super::input::{Input, Output};
use super::record::Recorder;
use crate::Result;
use crate::ops::slice_update::SliceUpdate;

pub(crate) fn record(
    _op: &SliceUpdate,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}
