//! What kernels read and write.

use std::ops::Range;

use bessemer_hal::BufferSlice;

use super::Block;
use crate::{DType, Layout, Scalar, Shape};

/// Bound ranges begin at a multiple of this many bytes, so that the widest vector load is aligned where the
/// element is.
const ALIGN: usize = 32;

/// An input of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// Where its elements are; `None` for one whose memory is the output's ([`Output::holds`]) and for a
    /// number.
    pub(super) block: Option<&'a Block>,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// The number it is, for ops that take numbers as they are.
    pub(crate) constant: Option<Scalar>,
}

/// A range of a buffer that holds elements, to be bound, and where in it the first one is.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) slice: BufferSlice,
    /// The element of the layout's origin, counted from the beginning of the range.
    pub(crate) offset: usize,
}

/// What kernels of an op write: row-major, without gaps, from the beginning of a buffer on.
pub(crate) struct Output {
    pub(crate) slice: BufferSlice,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The input whose memory this is.
    pub(crate) holds: Option<usize>,
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

    /// The bytes between the first and the last element, and where the first element is.
    pub(crate) fn span(&self, output: &Output) -> Span {
        let Some(block) = self.block else {
            return Span {
                slice: output.slice.clone(),
                offset: self.layout.offset(),
            };
        };
        let size = self.dtype.size();
        let Range { start, end } = self.layout.span();
        let start = start * size / ALIGN * ALIGN;
        Span {
            slice: block.slice(start..(end * size).max(start)),
            offset: self.layout.offset() - start / size,
        }
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.layout.count()
    }

    /// Whether the elements lie one after the other in row-major order.
    pub(crate) fn is_dense(&self) -> bool {
        self.layout.is_contiguous()
    }
}

impl Output {
    pub(crate) fn new(block: &Block, dtype: DType, shape: Shape, holds: Option<usize>) -> Self {
        Self {
            slice: block.slice(0..shape.count() * dtype.size()),
            dtype,
            shape,
            holds,
        }
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.shape.count()
    }

    /// The range between the first and the last element of a block of the result, and where in it the
    /// block begins.
    pub(crate) fn part(&self, place: &Layout) -> (BufferSlice, usize) {
        let size = self.dtype.size();
        let Range { start, end } = place.span();
        let start = start * size / ALIGN * ALIGN;
        let first = self.slice.offset() + start;
        let slice = self
            .slice
            .buffer()
            .slice(first..(self.slice.offset() + end * size).max(first))
            .expect("a block of the result");
        (slice, place.offset() - start / size)
    }
}
