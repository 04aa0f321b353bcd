//! Right factors that are packed once and used often.

use std::marker::PhantomData;
use std::ops::Range;

use super::column;
use super::drive::{depth, pack_shared};
use super::float::{Float, Wide, WithKernel};
use super::kernel::Kernel;
use super::problem::{Right, View, run, scale};
use super::{Matrix, Mix, check_shapes};
use crate::cpu::huge_pages::{ArenaSlice, REPACK_BAND_BYTES};
use crate::cpu::pool;
use crate::cpu::simd::{self, Family, Level};

/// A right factor in the micro-kernel's own layout, for products with many left factors. Halves stay
/// halves and are widened panel by panel, when they are used.
pub(crate) struct Packed<T: Wide> {
    /// Whose kernel it is packed for.
    level: Level,
    rows: usize,
    cols: usize,
    panels: ArenaSlice,
    kind: PhantomData<T>,
}

impl<T: Wide> Packed<T> {
    /// Packs a matrix.
    ///
    /// # Panics
    /// Where the matrix has elements outside its slice.
    pub(crate) fn new(b: Matrix<'_, T>) -> Self {
        Self::new_at(simd::chosen(Family::Gemm).level(), b)
    }

    /// Packs a matrix a few megabytes at a time; `packed` gets the columns that were.
    pub(crate) fn in_bands(level: Level, b: Matrix<'_, T>, packed: &dyn Fn(Range<usize>)) -> Self {
        Self::with(level, b, packed)
    }

    /// Packs a matrix for the kernel of a level that the processor has.
    pub(crate) fn new_at(level: Level, b: Matrix<'_, T>) -> Self {
        Self::with(level, b, &drop)
    }

    fn with(level: Level, b: Matrix<'_, T>, packed: &dyn Fn(Range<usize>)) -> Self {
        b.check();
        Self {
            level,
            rows: b.rows,
            cols: b.cols,
            panels: T::Float::with_kernel(level, Pack(b, packed)),
            kind: PhantomData,
        }
    }

    /// Rows of the matrix.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the panels.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_at(self.level, self.rows, self.cols)
    }

    /// Bytes of the panels of a matrix of these sizes.
    pub(crate) fn bytes_at(level: Level, rows: usize, cols: usize) -> usize {
        cols.next_multiple_of(T::Float::with_kernel(level, Width)) * rows * size_of::<T>()
    }

    /// Columns of a panel.
    pub(crate) fn width(&self) -> usize {
        T::Float::with_kernel(self.level, Width)
    }

    /// Whose kernel it is packed for.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Steps of a panel, but for the last ones: rows of the matrix.
    pub(crate) fn depth(&self) -> usize {
        T::Float::with_kernel(self.level, Depth(self.rows))
    }

    /// The panel of columns `panel * width` on, in the steps `run * depth` on: step after step.
    pub(crate) fn panel(&self, run: usize, panel: usize) -> &[T] {
        let (width, first) = (self.width(), run * self.depth());
        let len = self.depth().min(self.rows - first) * width;
        let start = first * self.cols.next_multiple_of(width) + panel * len;
        &bytemuck::cast_slice(self.panels.bytes())[start..][..len]
    }

    /// Columns of the matrix.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }
}

struct Pack<'a, T>(Matrix<'a, T>, &'a dyn Fn(Range<usize>));

impl<T: Wide> WithKernel<T::Float> for Pack<'_, T> {
    type Output = ArenaSlice;
    fn call<K: Kernel<Float = T::Float>>(self) -> ArenaSlice {
        let Self(b, packed) = self;
        let all = b.cols.next_multiple_of(K::COLS);
        let mut buffer = ArenaSlice::new(all * b.rows * size_of::<T>());
        let panels = bytemuck::cast_slice_mut::<u8, T>(buffer.bytes_mut());
        if b.rows == 0 || b.cols == 0 {
            return buffer;
        }
        if T::SAME {
            let panels = bytemuck::cast_slice_mut(panels);
            pack_shared::<T, K>(View::of(b), b.rows, b.cols, panels);
            packed(0..b.cols);
            return buffer;
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
        buffer
    }
}

struct Width;

impl<F: Float> WithKernel<F> for Width {
    type Output = usize;
    fn call<K: Kernel<Float = F>>(self) -> usize {
        K::COLS
    }
}

struct Depth(usize);

impl<F: Float> WithKernel<F> for Depth {
    type Output = usize;
    fn call<K: Kernel<Float = F>>(self) -> usize {
        depth::<K>(self.0)
    }
}

/// [`gemm`](super::gemm) with a packed right factor, which may be of a narrower type than the left one. The bits are those of the unpacked product, unless
/// that is one with few rows or columns.
///
/// # Panics
/// As [`gemm`](super::gemm).
pub(crate) fn gemm_packed<T: Wide, B: Wide<Float = T::Float>>(
    alpha: T::Float,
    a: Matrix<'_, T>,
    b: &Packed<B>,
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
    let right: Right<B> = if B::SAME {
        Right::Panels(bytemuck::cast_slice(b.panels.bytes()).as_ptr())
    } else {
        Right::Packed(bytemuck::cast_slice(b.panels.bytes()).as_ptr())
    };
    run(mix, a, (right, b.cols), c, ldc);
}

/// Columns `panels` of a product of one row with a packed factor, counted in panels, one after the other. The bits are
/// those of [`gemm_packed`].
///
/// # Panics
/// Where lengths do not go together.
pub(crate) fn vector_packed<B: Wide<Float = f32>>(
    x: &[f32],
    b: &Packed<B>,
    panels: Range<usize>,
    to: &mut [f32],
) {
    assert_eq!(x.len(), b.rows, "a factor as long as the matrix has rows");
    let width = b.width();
    assert!(
        panels.end <= b.cols.div_ceil(width)
            && to.len() == (panels.end * width).min(b.cols) - panels.start * width,
        "columns of the matrix"
    );
    f32::with_kernel(b.level, Vector { x, b, panels, to });
}

struct Vector<'a, B: Wide> {
    x: &'a [f32],
    b: &'a Packed<B>,
    panels: Range<usize>,
    to: &'a mut [f32],
}

impl<B: Wide<Float = f32>> WithKernel<f32> for Vector<'_, B> {
    type Output = ();
    fn call<K: Kernel<Float = f32>>(self) {
        let Self { x, b, panels, to } = self;
        let all = b.cols.next_multiple_of(K::COLS);
        let most = depth::<K>(b.rows);
        let data = &bytemuck::cast_slice::<u8, B>(b.panels.bytes())[..all * b.rows];
        to.fill(0.0);
        // The panels of a block of steps lie one after the other.
        for (i, x) in x.chunks(most).enumerate() {
            let block = &data[i * most * all..][..x.len() * all];
            let panel = x.len() * K::COLS;
            column::add::<B, K>(&block[panels.start * panel..panels.end * panel], x, to);
        }
    }
}
