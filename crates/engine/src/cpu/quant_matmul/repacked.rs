//! Weights as products on this machine like them best.

use std::ops::Range;

use half::{bf16, f16};

use super::fixed_point::{Cut, Shorts};
use super::half::HalfWeights;
use super::panel::{self, Panels};
use super::shared_output::SharedOutput;
use crate::cpu::gemm::Packed;
use crate::quant::Weights;

/// A second copy of a matrix.
pub(crate) enum Repacked {
    /// Blocks in panels of eight rows.
    Blocks(Panels),
    /// HalfWeights in the panels of matrix products.
    F16(HalfWeights<f16>),
    BF16(HalfWeights<bf16>),
}

impl Repacked {
    /// Arranges `rows` of `cols` weights; `None` where nothing is gained.
    /// `copied` is told which bytes are not needed any more.
    pub(crate) fn new(
        weights: Weights,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        if rows == 0 || cols == 0 {
            return None;
        }
        match weights {
            Weights::Block(format) => {
                Panels::new(format, bytes, rows, cols, copied).map(Self::Blocks)
            }
            Weights::F16 => HalfWeights::new(bytes, rows, cols, copied).map(Self::F16),
            Weights::BF16 => HalfWeights::new(bytes, rows, cols, copied).map(Self::BF16),
            Weights::F32 => None,
        }
    }

    /// Bytes that a matrix has when it is repacked; `None` where nothing is gained.
    pub(crate) fn bytes(weights: Weights, rows: usize, cols: usize) -> Option<usize> {
        let level = super::half::level();
        match weights {
            Weights::Block(format) => panel::is_useful().then(|| panel::bytes(format, rows, cols)),
            Weights::F16 => Some(Packed::<f16>::bytes_at(level, cols, rows)),
            Weights::BF16 => Some(Packed::<bf16>::bytes_at(level, cols, rows)),
            Weights::F32 => None,
        }
    }

    /// Bytes of all of it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blocks(panels) => panels.len(),
            Self::F16(halves) => halves.len(),
            Self::BF16(halves) => halves.len(),
        }
    }

    /// Rows that belong together.
    pub(super) fn height(&self) -> usize {
        match self {
            Self::Blocks(_) => panel::TOGETHER * panel::HEIGHT,
            Self::F16(halves) => halves.height(),
            Self::BF16(halves) => halves.height(),
        }
    }

    /// How activations are cut that many halves are multiplied with as integers, where they may be.
    pub(super) fn cut(&self) -> Option<Cut> {
        match self {
            Self::Blocks(_) => None,
            Self::F16(halves) => halves.cut(),
            Self::BF16(halves) => halves.cut(),
        }
    }

    /// The product of a vector with a range of rows of halves, which begins where rows that belong together do.
    pub(super) fn vector(&self, x: &[f32], rows: Range<usize>, to: &mut [f32]) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as integers"),
            Self::F16(halves) => halves.vector(x, rows, to),
            Self::BF16(halves) => halves.vector(x, rows, to),
        }
    }

    /// The products of several vectors with halves.
    pub(super) fn multiply(&self, x: &[f32], to: &mut [f32]) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as integers"),
            Self::F16(halves) => halves.multiply(x, to),
            Self::BF16(halves) => halves.multiply(x, to),
        }
    }

    /// The products of rounded activations with a range of rows of halves, which begins where a panel does.
    pub(super) fn multiply_shorts(&self, x: &Shorts, rows: Range<usize>, to: &SharedOutput<'_>) {
        match self {
            Self::Blocks(_) => unreachable!("blocks have integers of their own"),
            Self::F16(halves) => halves.multiply_shorts(x, rows, to),
            Self::BF16(halves) => halves.multiply_shorts(x, rows, to),
        }
    }
}
