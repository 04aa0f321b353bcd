//! `rope` on Metal. Positions come from a buffer if the caller has them in one, so that every decoding step records the
//! same launch.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::view::{self, ViewStrides, Walk};
use crate::ops::rope::{Rope, RopeStyle, RopeTable};
use crate::{DType, Result, Tensor};

msl_struct! {
    /// Arguments of the RoPE kernel; strides and offsets are in elements.
    pub(super) struct RopeArgs {
        /// The axes before the last two, and the input's strides along them.
        walk: Walk,
        view: ViewStrides,
        row_stride: i64,
        stride: i64,
        /// Offset and strides of the table of rotations.
        table_offset: i64,
        table_whole: i64,
        table_stride: i64,
        /// Offset and strides of the positions.
        position_offset: i64,
        position_batch: i64,
        position_stride: i64,
        /// Position of the first row if none are given.
        first: u64,
        factor: f32,
        pairs: u32,
        /// Elements of a row.
        dim: u32,
        /// Rows of a sequence.
        seq: u32,
        /// Sequences.
        outer: u32,
        /// Sequences that share their positions.
        sharing: u32,
    }
}

/// The frequencies and positions as the kernel reads them: turns in `u64`, and `i64` or `f32`, since Metal has no
/// `f64`.
pub(crate) fn inputs(table: &RopeTable, positions: Option<Tensor>) -> (&Tensor, Option<Tensor>) {
    let positions = positions.map(|p| {
        let is_float = p.dtype().is_float();
        p.cast(if is_float { DType::F32 } else { DType::I64 })
    });
    (table.revolutions(), positions)
}

pub(crate) fn record(
    op: &Rope,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (x, frequencies, positions) = (&inputs[0], &inputs[1], inputs.get(2));
    let shape = output.shape;
    let rank = shape.rank();
    let (seq, dim) = (shape[rank - 2], shape[rank - 1]);
    let others = Input {
        layout: x.layout.without(rank - 1).without(rank - 2),
        ..*x
    };
    let span = x.span(output);
    let (walk, views) = view::walk(others.layout.shape(), &[(&others, span.offset)]);
    let outer = others.layout.count();
    let frequencies_span = frequencies.span(output);
    let pairs = frequencies.layout.shape()[1];
    let position_span = positions.map(|p| (p.span(output), p.layout));
    let per_batch = position_span
        .as_ref()
        .is_some_and(|(_, l)| l.shape().rank() == 2);
    // Sequences that share their positions.
    let sharing = if per_batch { outer / shape[0] } else { outer };
    let heads = [4, 2, 1].into_iter().find(|&n| sharing.is_multiple_of(n));
    let heads = if sharing < outer {
        heads.unwrap_or(1)
    } else {
        4
    };
    // A decoding step has few rows: one angle each.
    let heads = if seq == 1 { 1 } else { heads };
    let strides = x.layout.strides();
    let frequency_strides = frequencies.layout.strides();
    let rotation = RopeArgs {
        walk,
        view: views[0],
        row_stride: strides[rank - 2] as i64,
        stride: strides[rank - 1] as i64,
        table_offset: frequencies_span.offset as i64,
        table_whole: frequency_strides[0] as i64,
        table_stride: frequency_strides[1] as i64,
        position_offset: position_span
            .as_ref()
            .map_or(0, |(span, _)| span.offset as i64),
        position_batch: position_span.as_ref().map_or(0, |(_, l)| {
            if per_batch { l.strides()[0] as i64 } else { 0 }
        }),
        position_stride: position_span
            .as_ref()
            .and_then(|(_, l)| l.strides().last().copied())
            .unwrap_or(0) as i64,
        first: op.offset as u64,
        factor: op.factor() as f32,
        pairs: pairs as u32,
        dim: dim as u32,
        seq: seq as u32,
        outer: outer as u32,
        sharing: sharing as u32,
    };
    let kernel = Kernel::new("rope", "rope")
        .with_type("T", output.dtype)
        .with_type("P", positions.map_or(DType::I64, |p| p.dtype))
        .flag("INTERLEAVED", op.style == RopeStyle::Interleaved)
        .flag("POSITIONS", positions.is_some())
        .constant("HEADS", heads as u32);
    let launch = recorder.launch(&kernel)?.read(span).read(frequencies_span);
    let launch = match position_span {
        Some((span, _)) => launch.read(span),
        // Not read.
        None => launch.value(&0_u64),
    };
    let launch = launch.write(&output.slice).value(&rotation);
    launch.threads(recorder, (dim - pairs, seq, outer.div_ceil(heads)));
    Ok(())
}
