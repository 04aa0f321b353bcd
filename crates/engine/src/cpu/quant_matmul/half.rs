//! Weights of half precision in the panels of matrix products: nothing is left to pack or to transpose.

use std::ops::Range;

use super::fixed_point::{self, Cut, Shorts};
use super::shared_output::SharedOutput;
use crate::cpu::gemm::{self, Matrix, Packed, Wide};
use crate::cpu::simd::{self, Family, Level};

/// Rows of halves, which are columns of the product's right factor.
pub(crate) struct HalfWeights<T: Wide> {
    packed: Packed<T>,
    is_short: bool,
}

/// Whose kernel multiplies them.
pub(super) fn level() -> Level {
    simd::chosen(Family::HalfWeights).level()
}

impl<T: Wide<Float = f32>> HalfWeights<T> {
    /// Arranges `rows` of `cols` weights; `None` where they do not begin where such numbers do.
    pub(super) fn new(
        bytes: &[u8],
        rows: usize,
        cols: usize,
        copied: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        let data: &[T] = bytemuck::try_cast_slice(bytes).ok()?;
        let row = cols * size_of::<T>();
        let matrix = Matrix::contiguous(data, rows, cols).t();
        let packed = Packed::in_bands(level(), matrix, &|rows| {
            copied(rows.start * row..rows.end * row);
        });
        let is_short = fixed_point::suits(&packed);
        Some(Self { packed, is_short })
    }

    /// Bytes of all of it.
    pub(super) fn len(&self) -> usize {
        self.packed.bytes()
    }

    /// Rows that belong together: those of a panel.
    pub(super) fn height(&self) -> usize {
        self.packed.width()
    }

    /// How activations are cut that many rows are multiplied with as integers, where they may be.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.is_short.then(|| Cut::of(&self.packed))
    }

    /// The product of a vector with a range of rows, which begins where rows that belong together do.
    pub(super) fn vector(&self, x: &[f32], rows: Range<usize>, to: &mut [f32]) {
        let width = self.packed.width();
        let panels = rows.start / width..rows.end.div_ceil(width);
        gemm::vector_packed(x, &self.packed, panels, to);
    }

    /// The products of several vectors.
    pub(super) fn multiply(&self, x: &[f32], to: &mut [f32]) {
        let (cols, rows) = (self.packed.rows(), self.packed.cols());
        let left = Matrix::contiguous(x, x.len() / cols, cols);
        gemm::gemm_packed(1.0, left, &self.packed, 0.0, to, rows);
    }

    /// The products of rounded activations with a range of rows, which begins where a panel does.
    pub(super) fn multiply_shorts(&self, x: &Shorts, rows: Range<usize>, to: &SharedOutput<'_>) {
        fixed_point::multiply(self.packed.level(), &self.packed, x, rows, to);
    }
}
