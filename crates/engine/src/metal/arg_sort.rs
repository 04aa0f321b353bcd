//! `argsort` on Metal, by the kernels of `sort.metal`.

use super::input::{Input, Output};
use super::record::Recorder;
use super::sort::{self, SortRequest};
use crate::Result;
use crate::ops::arg_sort::ArgSort;

pub(crate) fn record(
    op: &ArgSort,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let request = SortRequest {
        axis: op.axis,
        count: output.shape[op.axis],
        indices: true,
        descending: false,
    };
    sort::order(recorder, &inputs[0], output, request)
}
