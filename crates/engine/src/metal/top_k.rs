//! `topk` on Metal, by the kernels of `sort.metal`.

use super::input::{Input, Output};
use super::record::Recorder;
use super::sort::{self, SortRequest};
use crate::Result;
use crate::ops::top_k::TopK;

pub(crate) fn record(
    op: &TopK,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let request = SortRequest {
        axis: op.axis,
        count: op.k,
        indices: true,
        descending: op.largest,
    };
    sort::order(recorder, &inputs[0], output, request)
}
