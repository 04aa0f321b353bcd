//! `arg_reduce` on Metal.

use super::input::{Input, Output};
use super::record::Recorder;
use crate::Result;
use crate::ops::arg_reduce::ArgReduce;

pub(crate) fn record(
    _op: &ArgReduce,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}
