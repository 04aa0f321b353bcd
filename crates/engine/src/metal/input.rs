//! Inputs and outputs of kernels.

use std::ops::Range;

use bessemer_hal::BufferSlice;

use super::Block;
use crate::{DType, Layout, Scalar, Shape};

/// Alignment of bound ranges in bytes, so that the widest vector load is aligned if the element is.
const RANGE_ALIGNMENT_BYTES: usize = 32;

/// An input of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// Its memory; `None` for an input whose memory is the output's ([`Output::aliases_input`]) and for a scalar.
    pub(super) block: Option<&'a Block>,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// The value of a scalar, for ops that take scalars directly.
    pub(crate) constant: Option<Scalar>,
}

/// A range of a buffer to be bound, and the offset of the first element in it.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) slice: BufferSlice,
    /// Offset of the layout's origin from the beginning of the range, in elements.
    pub(crate) offset: usize,
}

/// Output of the kernels of an op: row-major and contiguous from the beginning of a buffer.
pub(crate) struct Output {
    pub(crate) slice: BufferSlice,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The input whose memory this is, computed in place.
    pub(crate) aliases_input: Option<usize>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(
        block: Option<&'a Block>,
        dtype: DType,
        layout: Layout,
        constant: Option<Scalar>,
    ) -> Self {
        Self {
            block,
            dtype,
            layout,
            constant,
        }
    }

    /// The range from the first to the last element, and the offset of the first in it.
    pub(crate) fn span(&self, output: &Output) -> Span {
        let Some(block) = self.block else {
            return Span {
                slice: output.slice.clone(),
                offset: self.layout.offset(),
            };
        };
        let size = self.dtype.size();
        let Range { start, end } = self.layout.span();
        let start = start * size / RANGE_ALIGNMENT_BYTES * RANGE_ALIGNMENT_BYTES;
        Span {
            slice: block.slice(start..(end * size).max(start)),
            offset: self.layout.offset() - start / size,
        }
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.layout.count()
    }

    /// Whether the elements are contiguous in row-major order.
    pub(crate) fn is_dense(&self) -> bool {
        self.layout.is_contiguous()
    }
}

impl Output {
    pub(crate) fn new(
        block: &Block,
        dtype: DType,
        shape: Shape,
        aliases_input: Option<usize>,
    ) -> Self {
        Self {
            slice: block.slice(0..shape.count() * dtype.size()),
            dtype,
            shape,
            aliases_input,
        }
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.shape.count()
    }

    /// The range from the first to the last element of a region of the result, and the offset of the region in it.
    pub(crate) fn region_slice(&self, region: &Layout) -> (BufferSlice, usize) {
        let size = self.dtype.size();
        let Range { start, end } = region.span();
        let start = start * size / RANGE_ALIGNMENT_BYTES * RANGE_ALIGNMENT_BYTES;
        let first = self.slice.offset() + start;
        let slice = self
            .slice
            .buffer()
            .slice(first..(self.slice.offset() + end * size).max(first))
            .expect("a region of the result");
        (slice, region.offset() - start / size)
    }
}
