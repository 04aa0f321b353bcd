//! `max_pool` and `avg_pool` on Metal.

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::view::{self, ViewStrides, Walk};
use crate::Result;
use crate::ops::pooling::{PoolFunction, Pooling};

msl_struct! {
    /// Arguments of the pooling kernel.
    pub(super) struct PoolArgs {
        /// The planes, and the input's strides along them, its rows and its columns.
        planes: Walk,
        view: ViewStrides,
        row: i64,
        column: i64,
        height: u32,
        width: u32,
        kernel_height: u32,
        kernel_width: u32,
        stride_height: u32,
        stride_width: u32,
        padding_height: u32,
        padding_width: u32,
    }
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
    let (walk, views) = view::walk(planes.layout.shape(), &[(&planes, span.offset)]);
    let saturate = |x: usize| u32::try_from(x).unwrap_or(u32::MAX);
    let windows = PoolArgs {
        planes: walk,
        view: views[0],
        row: layout.strides()[1] as i64,
        column: layout.strides()[2] as i64,
        height: saturate(layout.shape()[1]),
        width: saturate(layout.shape()[2]),
        kernel_height: saturate(op.kernel[0]),
        kernel_width: saturate(op.kernel[1]),
        stride_height: saturate(op.stride[0]),
        stride_width: saturate(op.stride[1]),
        padding_height: saturate(op.padding[0]),
        padding_width: saturate(op.padding[1]),
    };
    let pool = match op.pool {
        PoolFunction::Max => 0,
        PoolFunction::Mean => 1,
        PoolFunction::MeanInside => 2,
    };
    let kernel = Kernel::new("pooling", "pool")
        .with_type("T", output.dtype)
        .constant("POOL", pool);
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
