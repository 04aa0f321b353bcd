//! Prepacked right factors, for matrices that are multiplied many times.

use std::marker::PhantomData;
use std::ops::Range;

use super::column;
use super::drive::{depth, pack_shared};
use super::float::{FloatElement, GemmFloat, WithKernel};
use super::kernel::MicroKernel;
use super::problem::{MatrixPtr, RightOperand, run, scale};
use super::{Matrix, Mix, check_shapes};
use crate::cpu::huge_pages::{ArenaSlice, REPACK_BAND_BYTES};
use crate::cpu::pool;
use crate::cpu::simd::{self, Family, Level};

/// A right factor packed in the layout of the micro-kernel, for products with many left factors. Half precision is
/// stored as is and widened panel by panel during multiplication.
pub(crate) struct GemmPanels<T: FloatElement> {
    /// The level whose kernel it is packed for.
    level: Level,
    rows: usize,
    cols: usize,
    panels: ArenaSlice,
    kind: PhantomData<T>,
}

impl<T: FloatElement> GemmPanels<T> {
    /// Packs a matrix; `None` if memory is exhausted.
    ///
    /// # Panics
    /// If the matrix has elements outside its slice.
    pub(crate) fn new(b: Matrix<'_, T>) -> Option<Self> {
        Self::new_at(simd::chosen(Family::Gemm).level(), b)
    }

    /// Packs a matrix a few megabytes at a time, and calls `packed` with each range of finished columns.
    pub(crate) fn in_bands(
        level: Level,
        b: Matrix<'_, T>,
        packed: &dyn Fn(Range<usize>),
    ) -> Option<Self> {
        Self::with(level, b, packed)
    }

    /// Packs a matrix for the kernel of a level that the processor has.
    pub(crate) fn new_at(level: Level, b: Matrix<'_, T>) -> Option<Self> {
        Self::with(level, b, &drop)
    }

    fn with(level: Level, b: Matrix<'_, T>, packed: &dyn Fn(Range<usize>)) -> Option<Self> {
        b.check();
        Some(Self {
            level,
            rows: b.rows,
            cols: b.cols,
            panels: T::Float::with_kernel(level, PackColumns(b, packed))?,
            kind: PhantomData,
        })
    }

    /// Number of rows of the matrix.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Size of the panels in bytes.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_at(self.level, self.rows, self.cols)
    }

    /// Size in bytes of the panels of a `rows` by `cols` matrix.
    pub(crate) fn bytes_at(level: Level, rows: usize, cols: usize) -> usize {
        let width = T::Float::with_kernel(level, PanelWidth);
        let cols = cols.div_ceil(width).saturating_mul(width);
        cols.saturating_mul(rows).saturating_mul(size_of::<T>())
    }

    /// Number of columns of a panel.
    pub(crate) fn width(&self) -> usize {
        T::Float::with_kernel(self.level, PanelWidth)
    }

    /// The level whose kernel it is packed for.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Rows of the matrix in a depth block; the last block may be shorter.
    pub(crate) fn depth(&self) -> usize {
        T::Float::with_kernel(self.level, PanelDepth(self.rows))
    }

    /// Panel `panel` of depth block `block`, step by step.
    pub(crate) fn panel(&self, block: usize, panel: usize) -> &[T] {
        let (width, first) = (self.width(), block * self.depth());
        let len = self.depth().min(self.rows - first) * width;
        let start = first * self.cols.next_multiple_of(width) + panel * len;
        &bytemuck::cast_slice(self.panels.bytes())[start..][..len]
    }

    /// Number of columns of the matrix.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }
}

struct PackColumns<'a, T>(Matrix<'a, T>, &'a dyn Fn(Range<usize>));

impl<T: FloatElement> WithKernel<T::Float> for PackColumns<'_, T> {
    type Output = Option<ArenaSlice>;
    fn call<K: MicroKernel<Float = T::Float>>(self) -> Option<ArenaSlice> {
        let Self(b, packed) = self;
        let all = b.cols.checked_next_multiple_of(K::COLS)?;
        let bytes = all.checked_mul(b.rows)?.checked_mul(size_of::<T>())?;
        let mut buffer = ArenaSlice::new(bytes)?;
        let panels = bytemuck::cast_slice_mut::<u8, T>(buffer.bytes_mut());
        if b.rows == 0 || b.cols == 0 {
            return Some(buffer);
        }
        if T::SAME {
            let panels = bytemuck::cast_slice_mut(panels);
            pack_shared::<T, K>(MatrixPtr::of(b), b.rows, b.cols, panels);
            packed(0..b.cols);
            return Some(buffer);
        }
        let depth = depth::<K>(b.rows);
        let panel = K::COLS * b.rows * size_of::<T>();
        let band = (REPACK_BAND_BYTES / panel).max(1) * K::COLS;
        for from in (0..b.cols).step_by(band) {
            let until = (from + band).min(b.cols);
            for (i, panels) in panels.chunks_mut(all * depth).enumerate() {
                let first = i * depth;
                let steps = depth.min(b.rows - first);
                let range = from * steps..until.next_multiple_of(K::COLS) * steps;
                pool::for_each_chunk(&mut panels[range], steps * K::COLS, |i, panel| {
                    let col = from + i * K::COLS;
                    let cols = K::COLS.min(b.cols - col);
                    for (step, to) in panel.chunks_exact_mut(K::COLS).enumerate() {
                        let row = b.offset as isize + (first + step) as isize * b.row;
                        let start = row + col as isize * b.col;
                        for (j, to) in to[..cols].iter_mut().enumerate() {
                            *to = b.data[(start + j as isize * b.col) as usize];
                        }
                        to[cols..].fill(T::default());
                    }
                });
            }
            packed(from..until);
        }
        Some(buffer)
    }
}

struct PanelWidth;

impl<F: GemmFloat> WithKernel<F> for PanelWidth {
    type Output = usize;
    fn call<K: MicroKernel<Float = F>>(self) -> usize {
        K::COLS
    }
}

struct PanelDepth(usize);

impl<F: GemmFloat> WithKernel<F> for PanelDepth {
    type Output = usize;
    fn call<K: MicroKernel<Float = F>>(self) -> usize {
        depth::<K>(self.0)
    }
}

/// [`gemm`](super::gemm) with a packed right factor, which may have a narrower type than the left one. Bit-identical to
/// the unpacked product, except for those with few rows or columns, which use GEMV kernels.
///
/// # Panics
/// As [`gemm`](super::gemm).
pub(crate) fn gemm_packed<T: FloatElement, B: FloatElement<Float = T::Float>>(
    alpha: T::Float,
    a: Matrix<'_, T>,
    b: &GemmPanels<B>,
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
    check_shapes(&a, b.rows, b.cols, c, ldc);
    if a.rows == 0 || b.cols == 0 || b.rows == 0 {
        return scale(mix, a.rows, b.cols, c, ldc);
    }
    let right: RightOperand<B> = if B::SAME {
        RightOperand::Panels(bytemuck::cast_slice(b.panels.bytes()).as_ptr())
    } else {
        RightOperand::Packed(bytemuck::cast_slice(b.panels.bytes()).as_ptr())
    };
    run(mix, a, right, b.cols, c, ldc);
}

/// Multiplies one row with a range of panels of a packed factor (GEMV). Bit-identical to [`gemm_packed`].
///
/// # Panics
/// If the lengths do not match.
pub(crate) fn vector_packed<B: FloatElement<Float = f32>>(
    x: &[f32],
    b: &GemmPanels<B>,
    panels: Range<usize>,
    to: &mut [f32],
) {
    assert_eq!(
        x.len(),
        b.rows,
        "the length of the row is not the number of rows of the matrix"
    );
    let width = b.width();
    assert!(
        panels.end <= b.cols.div_ceil(width)
            && to.len() == (panels.end * width).min(b.cols) - panels.start * width,
        "the output does not match the range of panels"
    );
    f32::with_kernel(b.level, Gemv { x, b, panels, to });
}

struct Gemv<'a, B: FloatElement> {
    x: &'a [f32],
    b: &'a GemmPanels<B>,
    panels: Range<usize>,
    to: &'a mut [f32],
}

impl<B: FloatElement<Float = f32>> WithKernel<f32> for Gemv<'_, B> {
    type Output = ();
    fn call<K: MicroKernel<Float = f32>>(self) {
        let Self { x, b, panels, to } = self;
        let all = b.cols.next_multiple_of(K::COLS);
        let max_depth = depth::<K>(b.rows);
        let data = &bytemuck::cast_slice::<u8, B>(b.panels.bytes())[..all * b.rows];
        to.fill(0.0);
        // The panels of a depth block are contiguous.
        for (i, x) in x.chunks(max_depth).enumerate() {
            let block = &data[i * max_depth * all..][..x.len() * all];
            let panel = x.len() * K::COLS;
            column::add::<B, K>(&block[panels.start * panel..panels.end * panel], x, to);
        }
    }
}
