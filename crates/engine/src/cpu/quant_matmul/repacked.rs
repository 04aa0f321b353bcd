//! Weights repacked for the kernels of this machine.

use std::ops::Range;

use half::{bf16, f16};

use super::fixed_point::{FixedPointActivations, KBlocking};
use super::half::HalfWeights;
use super::panel::{self, Panels};
use super::shared_output::SharedOutput;
use crate::cpu::gemm::GemmPanels;
use crate::quant::Weights;

/// A repacked copy of a matrix.
pub(crate) enum Repacked {
    /// Quantised blocks in panels of eight rows.
    Blocks(Panels),
    /// Half precision in GEMM panels.
    F16(HalfWeights<f16>),
    /// Likewise.
    BF16(HalfWeights<bf16>),
}

impl Repacked {
    /// Repacks `rows` of `cols` weights; `None` if that gains nothing, or memory is exhausted. Calls `copied` with each range of bytes that
    /// is no longer needed.
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

    /// Size in bytes of a repacked matrix; `None` if repacking gains nothing.
    pub(crate) fn bytes(weights: Weights, rows: usize, cols: usize) -> Option<usize> {
        let level = super::half::level();
        match weights {
            Weights::Block(format) => panel::is_useful().then(|| panel::bytes(format, rows, cols)),
            Weights::F16 => Some(GemmPanels::<f16>::bytes_at(level, cols, rows)),
            Weights::BF16 => Some(GemmPanels::<bf16>::bytes_at(level, cols, rows)),
            Weights::F32 => None,
        }
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blocks(panels) => panels.len(),
            Self::F16(half) => half.len(),
            Self::BF16(half) => half.len(),
        }
    }

    /// Rows of a tile; tasks are split at multiples of it.
    pub(super) fn height(&self) -> usize {
        match self {
            Self::Blocks(_) => panel::TILE_PANELS * panel::PANEL_ROWS,
            Self::F16(half) => half.height(),
            Self::BF16(half) => half.height(),
        }
    }

    /// The blocking of activations for the fixed-point kernel, if the weights are suitable for it.
    pub(super) fn blocking(&self) -> Option<KBlocking> {
        match self {
            Self::Blocks(_) => None,
            Self::F16(half) => half.blocking(),
            Self::BF16(half) => half.blocking(),
        }
    }

    /// Multiplies one vector with a range of half-precision rows, which starts at a panel (GEMV).
    pub(super) fn vector(&self, x: &[f32], rows: Range<usize>, to: &mut [f32]) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as integers"),
            Self::F16(half) => half.vector(x, rows, to),
            Self::BF16(half) => half.vector(x, rows, to),
        }
    }

    /// Multiplies several vectors with half-precision weights (GEMM).
    pub(super) fn multiply(&self, x: &[f32], to: &mut [f32]) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as integers"),
            Self::F16(half) => half.multiply(x, to),
            Self::BF16(half) => half.multiply(x, to),
        }
    }

    /// Multiplies fixed-point activations with a range of half-precision rows, which starts at a panel.
    pub(super) fn multiply_fixed_point(
        &self,
        x: &FixedPointActivations,
        rows: Range<usize>,
        to: &SharedOutput<'_>,
    ) {
        match self {
            Self::Blocks(_) => unreachable!("blocks are multiplied as 8-bit integers"),
            Self::F16(half) => half.multiply_fixed_point(x, rows, to),
            Self::BF16(half) => half.multiply_fixed_point(x, rows, to),
        }
    }
}
