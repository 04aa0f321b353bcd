//! `argmin` and `argmax` on Metal: reductions that keep the index, by the kernels of `reduce.metal`.

use super::input::{Input, Output};
use super::record::Recorder;
use super::reduce::{self, Method};
use crate::Result;
use crate::ops::arg_reduce::ArgReduce;
use crate::shape::Axes;

pub(crate) fn record(
    op: &ArgReduce,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut axes = Axes::default();
    axes.insert(op.axis);
    let method = Method::arg(op.max, inputs[0].dtype);
    reduce::launch(recorder, &inputs[0], axes, output, &method)
}
