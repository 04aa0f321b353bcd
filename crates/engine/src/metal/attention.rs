//! `attention` on Metal.

use super::input::{Input, Output};
use super::record::Recorder;
use crate::Result;
use crate::ops::attention::Attention;

pub(crate) fn record(
    _op: &Attention,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}
