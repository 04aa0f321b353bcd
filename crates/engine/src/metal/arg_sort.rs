//! `arg_sort` on Metal.

use super::input::{Input, Output};
use super::record::Recorder;
use crate::Result;
use crate::ops::arg_sort::ArgSort;

pub(crate) fn record(
    _op: &ArgSort,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    _output: &Output,
) -> Result<()> {
    recorder.missing = true;
    Ok(())
}
