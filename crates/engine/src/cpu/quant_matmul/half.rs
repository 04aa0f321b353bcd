//! Half-precision weights prepacked for GEMM and GEMV: nothing is packed or transposed per call.

use std::ops::Range;

use super::fixed_point::{self, FixedPointActivations, KBlocking};
use super::shared_output::SharedOutput;
use crate::cpu::gemm::{self, FloatElement, GemmPanels, Matrix};
use crate::cpu::simd::{self, Family, Level};

/// A half-precision matrix, whose rows are the columns of the right factor of a GEMM.
pub(crate) struct HalfWeights<T: FloatElement> {
    packed: GemmPanels<T>,
    is_fixed_point: bool,
}

/// The level of the kernels.
pub(super) fn level() -> Level {
    simd::chosen(Family::HalfWeights).level()
}

impl<T: FloatElement<Float = f32>> HalfWeights<T> {
    /// Packs `rows` of `cols` weights; `None` if they are not aligned.
    pub(super) fn new(
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        let data: &[T] = bytemuck::try_cast_slice(bytes).ok()?;
        let row = cols * size_of::<T>();
        let matrix = Matrix::contiguous(data, rows, cols).t();
        let packed = GemmPanels::in_bands(level(), matrix, &|rows| {
            copied(rows.start * row..rows.end * row);
        })?;
        let is_fixed_point = fixed_point::suits(&packed);
        Some(Self {
            packed,
            is_fixed_point,
        })
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> usize {
        self.packed.bytes()
    }

    /// Number of rows of a panel.
    pub(super) fn height(&self) -> usize {
        self.packed.width()
    }

    /// The blocking of activations for the fixed-point kernel, if the weights are suitable for it.
    pub(super) fn blocking(&self) -> Option<KBlocking> {
        self.is_fixed_point.then(|| KBlocking::of(&self.packed))
    }

    /// Multiplies one vector with a range of rows, which starts at a panel (GEMV).
    pub(super) fn vector(&self, x: &[f32], rows: Range<usize>, to: &mut [f32]) {
        let width = self.packed.width();
        let panels = rows.start / width..rows.end.div_ceil(width);
        gemm::vector_packed(x, &self.packed, panels, to);
    }

    /// Multiplies several vectors (GEMM).
    pub(super) fn multiply(&self, x: &[f32], to: &mut [f32]) {
        let (cols, rows) = (self.packed.rows(), self.packed.cols());
        let left = Matrix::contiguous(x, x.len() / cols, cols);
        gemm::gemm_packed(1.0, left, &self.packed, 0.0, to, rows);
    }

    /// Multiplies fixed-point activations with a range of rows, which starts at a panel.
    pub(super) fn multiply_fixed_point(
        &self,
        x: &FixedPointActivations,
        rows: Range<usize>,
        to: &SharedOutput<'_>,
    ) {
        fixed_point::multiply(self.packed.level(), &self.packed, x, rows, to);
    }
}
