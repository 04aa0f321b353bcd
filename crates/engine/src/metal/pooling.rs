//! `max_pool` and `avg_pool` on Metal.

use bytemuck::{Pod, Zeroable};

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::record::Recorder;
use super::view::{self, Steps, Walk};
use crate::Result;
use crate::ops::pooling::{Pool, Pooling};

/// Windows as `msl/pooling.metal` has them.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Windows {
    planes: Walk,
    steps: Steps,
    strides: [i64; 2],
    size: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
}

pub(crate) fn record(
    op: &Pooling,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let input = &inputs[0];
    let span = match input.count() {
        // Windows of nothing but padding.
        0 => Span {
            slice: recorder.scratch(16)?,
            offset: 0,
        },
        _ => input.span(output),
    };
    let layout = input.layout;
    let planes = Input {
        layout: layout.without(2).without(1),
        ..*input
    };
    let (walk, steps) = view::walk(planes.layout.shape(), &[(&planes, span.offset)]);
    let two = |of: [usize; 2]| of.map(|x| u32::try_from(x).unwrap_or(u32::MAX));
    let windows = Windows {
        planes: walk,
        steps: steps[0],
        strides: [layout.strides()[1] as i64, layout.strides()[2] as i64],
        size: two([layout.shape()[1], layout.shape()[2]]),
        kernel: two(op.kernel),
        stride: two(op.stride),
        padding: two(op.padding),
    };
    let pool = match op.pool {
        Pool::Max => 0,
        Pool::Mean => 1,
        Pool::MeanInside => 2,
    };
    let kernel = Kernel::new("pooling", "pool")
        .of("T", output.dtype)
        .constant(0, pool);
    let [planes, height, width] = output.shape[..] else {
        unreachable!("the rule gives three axes");
    };
    recorder
        .launch(&kernel)?
        .read(span)
        .write(&output.slice)
        .value(&windows)
        .threads(recorder, (width, height, planes));
    Ok(())
}
