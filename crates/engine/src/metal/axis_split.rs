//! An input of any layout, split at one of its axes into outer, axis and inner dimensions.

use super::input::{Input, Output, Span};
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::view::{self, ViewStrides, Walk};
use crate::{DType, Layout, Result};

msl_struct! {
    /// An input split at one of its axes: `outer` blocks of `len` rows of `width` elements.
    pub(super) struct AxisSplit {
        outer: Walk,
        outer_view: ViewStrides,
        inner: Walk,
        inner_view: ViewStrides,
        /// Stride from row to row.
        stride: i64,
        /// Length of the axis: rows of a block.
        pub(super) len: u32,
        /// Elements of a row.
        pub(super) width: u32,
    }
}

impl AxisSplit {
    /// Splits an input at an axis, and returns the range to bind; that of an input without elements is not read.
    pub(super) fn new(
        recorder: &mut Recorder<'_>,
        input: &Input<'_>,
        axis: usize,
        output: &Output,
    ) -> Result<(Self, Span)> {
        let span = match input.count() {
            0 => Span {
                slice: recorder.scratch(16)?,
                offset: 0,
            },
            _ => input.span(output),
        };
        let layout = input.layout;
        let rank = layout.shape().rank();
        let outer = (axis..rank).rev().fold(layout, |l, a| l.without(a));
        let inner = (0..=axis).rev().fold(layout, |l, a| l.without(a));
        let walk = |layout: Layout, offset: usize| {
            let input = Input { layout, ..*input };
            let (walk, views) = view::walk(layout.shape(), &[(&input, offset)]);
            (walk, views[0])
        };
        let (outer, outer_view) = walk(outer, span.offset);
        let (width, (inner, inner_view)) = (inner.count(), walk(inner, 0));
        let split = Self {
            outer,
            outer_view,
            inner,
            inner_view,
            stride: layout.strides()[axis] as i64,
            len: layout.shape()[axis] as u32,
            width: width as u32,
        };
        Ok((split, span))
    }

    /// Number of blocks.
    pub(super) fn outer(&self) -> usize {
        self.outer.dims.iter().map(|&d| d as usize).product()
    }

    /// Whether the elements of a row are contiguous.
    pub(super) fn is_dense(&self) -> bool {
        self.inner.rank == 1 && (self.width == 1 || self.inner_view.strides[0] == 1)
    }

    /// Whether all rows are aligned for vector loads of four elements.
    pub(super) fn is_aligned(&self) -> bool {
        let aligned = |x: i64| x % 4 == 0;
        self.is_dense()
            && aligned(self.stride)
            && aligned(self.outer_view.offset)
            && self.outer_view.strides.iter().all(|&s| aligned(s))
    }
}

/// Number of an integer type in `msl/index.h`, for kernels that read indices of any.
pub(super) fn index_kind(dtype: DType) -> u32 {
    match dtype {
        DType::U8 => 0,
        DType::U16 => 1,
        DType::U32 => 2,
        DType::U64 => 3,
        DType::I8 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        _ => 7,
    }
}
