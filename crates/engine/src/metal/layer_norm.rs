//! `layer_norm` on Metal.

use super::input::{Input, Output};
use super::record::Recorder;
use crate::Result;
use crate::ops::layer_norm::LayerNorm;

pub(crate) fn record(
    _op: &LayerNorm,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}
