//! Matrix multiplication: `c = alpha * a·b + beta * c` for every dtype and any strides.
//!
//! Floats use the algorithm of Goto and van de Geijn: a micro-kernel ([`kernel`]) keeps a tile of `c` in
//! registers, [`pack`] repacks blocks of the factors into panels in the order in which the micro-kernel reads
//! them, and [`drive`] chooses block sizes by cache size and splits `c` into tasks for the threads. A transposed
//! or sliced factor costs nothing extra, since packing reads any strides. `f16` and `bf16` are widened to `f32`
//! during packing, summed in `f32` and rounded once. GEMV has its own kernels ([`vector`]), and so do integers
//! ([`integer`]), which wrap.
//!
//! # Bits
//!
//! The bits of a result depend only on the shapes, the strides and the SIMD level: every element is summed in
//! the order of `k`, in blocks whose length depends on `k` alone, whichever tile or thread computes it.

mod column;
mod drive;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod float;
mod integer;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod kernel_avx2;
#[cfg(target_arch = "x86_64")]
mod kernel_avx512;
#[cfg(target_arch = "aarch64")]
mod kernel_neon;
mod kernel_scalar;
mod pack;
mod packed;
mod problem;
mod scratch;
#[cfg(test)]
mod tests;
mod vector;

use half::{bf16, f16};

pub(crate) use float::FloatElement;
pub(crate) use packed::{GemmPanels, gemm_packed, vector_packed};
pub(crate) use vector::dot_at;

use crate::cpu::pool;
use crate::cpu::simd::{self, Family, Level};

/// A strided matrix: element (i, j) is `data[offset + i * row + j * col]`. Strides are in elements and
/// may be negative or zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, T> {
    /// A slice that contains the elements.
    pub(crate) data: &'a [T],
    /// Index of element (0, 0).
    pub(crate) offset: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Number of columns.
    pub(crate) cols: usize,
    /// Stride between rows.
    pub(crate) row: isize,
    /// Stride between columns.
    pub(crate) col: isize,
}

impl<'a, T> Matrix<'a, T> {
    /// A row-major matrix over all of `data`.
    pub(crate) fn contiguous(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self {
            data,
            offset: 0,
            rows,
            cols,
            row: cols as isize,
            col: 1,
        }
    }

    /// The transpose, a view of the same elements.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row: self.col,
            col: self.row,
            ..self
        }
    }

    /// # Panics
    /// If an element is outside the slice.
    fn check(&self) {
        if self.rows == 0 || self.cols == 0 {
            return;
        }
        let reach = |count: usize, stride: isize| (count as i128 - 1) * stride as i128;
        let (down, across) = (reach(self.rows, self.row), reach(self.cols, self.col));
        let first = self.offset as i128 + down.min(0) + across.min(0);
        let last = self.offset as i128 + down.max(0) + across.max(0);
        assert!(
            first >= 0 && last < self.data.len() as i128,
            "a matrix has elements {first} to {last} of a slice of {}",
            self.data.len()
        );
    }
}

/// Checks the shapes of a product with a right factor of `k` rows and `n` columns.
///
/// # Panics
/// If the inner dimensions differ or `c` is too short, which the ops check before.
fn check_shapes<T>(a: &Matrix<'_, T>, k: usize, n: usize, c: &[T], ldc: usize) {
    assert_eq!(a.cols, k, "the factors' inner dimensions differ");
    // Broadcast factors can be larger than memory; arithmetic on sizes must not overflow.
    assert!(
        k <= isize::MAX as usize >> 16,
        "inner dimension {k} is too large"
    );
    if a.rows > 0 && n > 0 {
        let strides = c.len().checked_sub(n).map(|spare| spare / ldc.max(1));
        assert!(
            ldc >= n && strides >= Some(a.rows - 1),
            "a {} by {n} result with leading dimension {ldc} does not fit {} elements",
            a.rows,
            c.len()
        );
    }
}

/// An element type of matrices that can be multiplied.
pub(crate) trait Gemm: Copy + Send + Sync + 'static {
    /// The type of `alpha`, `beta` and the accumulators: `f32` for half precision, else the type itself.
    type Acc: Copy + Send + Sync + PartialEq + 'static;

    /// [`gemm`] for this type.
    fn multiply(
        mix: Mix<Self::Acc>,
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        c: &mut [Self],
        ldc: usize,
    );
}

/// The scalars of a product, and the SIMD level to compute it at, which the processor must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix<F> {
    level: Level,
    alpha: F,
    beta: F,
}

macro_rules! implement {
    ($multiply:path: $($type:ty, $acc:ty;)*) => {$(
        impl Gemm for $type {
            type Acc = $acc;
            fn multiply(
                mix: Mix<$acc>,
                a: Matrix<'_, Self>,
                b: Matrix<'_, Self>,
                c: &mut [Self],
                ldc: usize,
            ) {
                $multiply(mix, a, b, c, ldc);
            }
        }
    )*};
}

implement! { problem::multiply: f32, f32; f64, f64; f16, f32; bf16, f32; }
implement! {
    integer::multiply: u8, u8; u16, u16; u32, u32; u64, u64; i8, i8; i16, i16; i32, i32; i64, i64;
}

/// `c = alpha * a·b + beta * c`, where `c` has rows of `b.cols` elements and the leading dimension `ldc`. If
/// `beta` is zero, `c` is not read; if the inner dimension is zero, `a·b` is zeros. NaN and infinity propagate:
/// `0 * inf` is NaN, also with an `alpha` of zero.
///
/// # Panics
/// If the shapes do not match, or a matrix has elements outside its slice.
pub(crate) fn gemm<T: Gemm>(
    alpha: T::Acc,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    beta: T::Acc,
    c: &mut [T],
    ldc: usize,
) {
    let level = simd::chosen(Family::Gemm).level();
    T::multiply(Mix { level, alpha, beta }, a, b, c, ldc);
}

/// Minimum number of multiplications in a task of a batch: about 10 µs for floats.
const MIN_TASK_MULTIPLIES: usize = 500_000;

/// Batched [`gemm`]: `c` is the contiguous results, each of `shape` rows and columns, and `factors(i)` are the
/// factors of product `i`. Small products are distributed over the threads whole; large ones run one after
/// another, each split into tasks.
///
/// # Panics
/// As [`gemm`], and if `c` is not a whole number of results.
pub(crate) fn gemm_batch<'a, T: Gemm>(
    alpha: T::Acc,
    factors: impl Fn(usize) -> (Matrix<'a, T>, Matrix<'a, T>) + Sync,
    beta: T::Acc,
    c: &mut [T],
    shape: (usize, usize),
) {
    let (rows, cols) = shape;
    let size = rows * cols;
    if c.is_empty() || size == 0 {
        return;
    }
    assert_eq!(c.len() % size, 0, "c is not a whole number of results");
    let level = simd::chosen(Family::Gemm).level();
    let mix = Mix { level, alpha, beta };
    let one = |i: usize, c: &mut [T]| {
        let (a, b) = factors(i);
        assert_eq!((a.rows, b.cols), shape, "the shape of a product differs");
        T::multiply(mix, a, b, c, cols);
    };
    let work = size.saturating_mul(factors(0).0.cols).max(1);
    if c.len() / size < pool::threads() || work > 8 * MIN_TASK_MULTIPLIES {
        for (i, c) in c.chunks_exact_mut(size).enumerate() {
            one(i, c);
        }
        return;
    }
    let group = MIN_TASK_MULTIPLIES.div_ceil(work);
    pool::for_each_chunk(c, group.saturating_mul(size), |piece, c| {
        for (i, c) in c.chunks_exact_mut(size).enumerate() {
            one(piece * group + i, c);
        }
    });
}
