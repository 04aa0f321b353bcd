//! Right factors that are packed once and used often.

use std::marker::PhantomData;

use super::drive::{depth, pack_shared};
use super::float::{Float, Wide, WithKernel};
use super::kernel::Kernel;
use super::product::{Right, View, run, scale};
use super::scratch::Buffer;
use super::{Matrix, Mix, check_shapes};
use crate::cpu::pool;
use crate::cpu::simd::{self, Level};

/// A right factor in the micro-kernel's own layout, for products with many left factors. Halves stay
/// halves and are widened panel by panel, when they are used.
pub(crate) struct Packed<T: Wide> {
    /// Whose kernel it is packed for.
    level: Level,
    rows: usize,
    cols: usize,
    panels: Buffer,
    kind: PhantomData<T>,
}

impl<T: Wide> Packed<T> {
    /// Packs a matrix.
    ///
    /// # Panics
    /// Where the matrix has elements outside its slice.
    pub(crate) fn new(b: Matrix<'_, T>) -> Self {
        Self::new_at(simd::level(), b)
    }

    /// Packs a matrix for the kernel of a level that the processor has.
    pub(super) fn new_at(level: Level, b: Matrix<'_, T>) -> Self {
        b.check();
        Self {
            level,
            rows: b.rows,
            cols: b.cols,
            panels: T::Float::with_kernel(level, Pack(b)),
            kind: PhantomData,
        }
    }

    /// Rows of the matrix.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }
}

struct Pack<'a, T>(Matrix<'a, T>);

impl<T: Wide> WithKernel<T::Float> for Pack<'_, T> {
    type Output = Buffer;
    fn call<K: Kernel<Float = T::Float>>(self) -> Buffer {
        let b = self.0;
        let mut buffer = Buffer::default();
        let all = b.cols.next_multiple_of(K::COLS);
        let panels = buffer.get::<T>(all * b.rows);
        if b.rows == 0 || b.cols == 0 {
            return buffer;
        }
        if T::SAME {
            let panels = bytemuck::cast_slice_mut(panels);
            pack_shared::<T, K>(View::of(b), b.rows, b.cols, panels);
            return buffer;
        }
        let depth = depth::<K>(b.rows);
        for (i, panels) in panels.chunks_mut(all * depth).enumerate() {
            let first = i * depth;
            let panel = depth.min(b.rows - first) * K::COLS;
            pool::pieces(panels, panel, |i, panel| {
                let cols = K::COLS.min(b.cols - i * K::COLS);
                for (step, to) in panel.chunks_exact_mut(K::COLS).enumerate() {
                    let row = b.offset as isize + (first + step) as isize * b.row;
                    let start = row + (i * K::COLS) as isize * b.col;
                    for (j, to) in to[..cols].iter_mut().enumerate() {
                        *to = b.data[(start + j as isize * b.col) as usize];
                    }
                    to[cols..].fill(T::default());
                }
            });
        }
        buffer
    }
}

/// [`gemm`](super::gemm) with a packed right factor. The bits are those of the unpacked product, unless
/// that is one with few rows or columns.
///
/// # Panics
/// As [`gemm`](super::gemm).
pub(crate) fn gemm_packed<T: Wide>(
    alpha: T::Float,
    a: Matrix<'_, T>,
    b: &Packed<T>,
    beta: T::Float,
    c: &mut [T],
    ldc: usize,
) {
    let mix = Mix {
        level: b.level,
        alpha,
        beta,
    };
    a.check();
    check_shapes(&a, (b.rows, b.cols), c, ldc);
    if a.rows == 0 || b.cols == 0 || b.rows == 0 {
        return scale(mix, (a.rows, b.cols), c, ldc);
    }
    let right = if T::SAME {
        Right::Panels(b.panels.start())
    } else {
        Right::Packed(b.panels.start())
    };
    run(mix, a, (right, b.cols), c, ldc);
}
