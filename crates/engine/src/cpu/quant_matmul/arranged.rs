//! Weights as products on this machine like them best.

use std::ops::Range;

use half::{bf16, f16};

use super::panel::Panels;
use crate::cpu::gemm::{self, Matrix, Packed};
use crate::quant::Weights;

/// A second copy of a matrix.
pub(crate) enum Arranged {
    /// Blocks in panels of eight rows.
    Blocks(Panels),
    /// Halves in the panels of matrix products: nothing is left to pack or to transpose.
    F16(Packed<f16>),
    BF16(Packed<bf16>),
}

impl Arranged {
    /// Arranges `rows` of `cols` weights; `None` where nothing is gained.
    pub(crate) fn new(weights: Weights, bytes: &[u8], rows: usize, cols: usize) -> Option<Self> {
        if rows == 0 || cols == 0 {
            return None;
        }
        match weights {
            Weights::Block(format) => Panels::new(format, bytes, rows, cols).map(Self::Blocks),
            Weights::F16 => {
                let data = bytemuck::try_cast_slice(bytes).ok()?;
                let right = Matrix::contiguous(data, rows, cols).t();
                Some(Self::F16(Packed::new(right)))
            }
            Weights::BF16 => {
                let data = bytemuck::try_cast_slice(bytes).ok()?;
                let right = Matrix::contiguous(data, rows, cols).t();
                Some(Self::BF16(Packed::new(right)))
            }
            Weights::F32 => None,
        }
    }

    /// Bytes of all of it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blocks(panels) => panels.len(),
            Self::F16(packed) => packed.bytes(),
            Self::BF16(packed) => packed.bytes(),
        }
    }

    /// Rows that belong together.
    pub(super) fn height(&self) -> usize {
        // Four panels are multiplied at once.
        match self {
            Self::Blocks(panels) => panels.height(),
            Self::F16(packed) => 4 * packed.width(),
            Self::BF16(packed) => 4 * packed.width(),
        }
    }

    /// The product of a vector with a range of rows of halves, which begins where rows that belong together do.
    pub(super) fn vector(&self, x: &[f32], rows: Range<usize>, to: &mut [f32]) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as integers"),
            Self::F16(packed) => gemm::vector_packed(x, packed, panels(packed.width(), rows), to),
            Self::BF16(packed) => gemm::vector_packed(x, packed, panels(packed.width(), rows), to),
        }
    }

    /// The products of several vectors with halves.
    pub(super) fn multiply(&self, x: &[f32], to: &mut [f32]) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as integers"),
            Self::F16(packed) => {
                let left = Matrix::contiguous(x, x.len() / packed.rows(), packed.rows());
                gemm::gemm_packed(1.0, left, packed, 0.0, to, packed.cols());
            }
            Self::BF16(packed) => {
                let left = Matrix::contiguous(x, x.len() / packed.rows(), packed.rows());
                gemm::gemm_packed(1.0, left, packed, 0.0, to, packed.cols());
            }
        }
    }
}

fn panels(width: usize, rows: Range<usize>) -> Range<usize> {
    rows.start / width..rows.end.div_ceil(width)
}
