//! Matrix products: `c = alpha * a·b + beta * c` for every dtype and any strides.
//!
//! Floats go the way of Goto and van de Geijn: a micro-kernel ([`kernel`]) keeps a tile of `c` in
//! registers; [`pack`] lays blocks of the factors out in the order in which it reads them; [`drive`]
//! chooses block sizes by cache and cuts `c` into tasks for the threads. A transposed or sliced factor
//! costs nothing extra, since packing reads any strides. `f16` and `bf16` are widened to `f32` while they
//! are packed, summed in `f32` and rounded once. Products with a vector have loops of their own
//! ([`vector`]), and so have integers ([`integer`]), which wrap.
//!
//! # Bits
//!
//! The bits of a product depend on its shape, its strides and the SIMD level, and on nothing else: every
//! element is summed in the order of `k`, in blocks whose length depends on `k` alone, whichever tile or
//! thread computes it.

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

pub(crate) use float::Wide;
use half::{bf16, f16};
pub(crate) use packed::{Packed, gemm_packed, vector_packed};
pub(crate) use vector::dot_at;

use crate::cpu::pool;
use crate::cpu::simd::{self, Family, Level};

/// A strided matrix: element (i, j) is `data[offset + i * row + j * col]`. Strides are in elements and
/// may be negative or zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, T> {
    /// The elements, among others.
    pub(crate) data: &'a [T],
    /// Where element (0, 0) is.
    pub(crate) offset: usize,
    /// Rows.
    pub(crate) rows: usize,
    /// Columns.
    pub(crate) cols: usize,
    /// From one row to the next.
    pub(crate) row: isize,
    /// From one column to the next.
    pub(crate) col: isize,
}

impl<'a, T> Matrix<'a, T> {
    /// All of `data`, row after row.
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

    /// The transpose, of the same elements.
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
    /// Where an element lies outside the slice.
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

/// # Panics
/// Where the shapes do not go together or `c` is too short: the ops check that before.
fn check_shapes<T>(a: &Matrix<'_, T>, (k, n): (usize, usize), c: &[T], ldc: usize) {
    assert_eq!(a.cols, k, "the factors' inner dimensions differ");
    // Broadcast factors can be larger than memory; the arithmetic on sizes is not to overflow.
    assert!(k <= isize::MAX as usize >> 16, "no machine sums {k} terms");
    if a.rows > 0 && n > 0 {
        let room = c.len().checked_sub(n).map(|spare| spare / ldc.max(1));
        assert!(
            ldc >= n && room >= Some(a.rows - 1),
            "a product of {} by {n} in rows {ldc} apart does not fit {} elements",
            a.rows,
            c.len()
        );
    }
}

/// An element type that matrices are multiplied in.
pub(crate) trait Gemm: Copy + Send + Sync + 'static {
    /// What `alpha` and `beta` are given in, and sums are kept in: `f32` for halves, else the type
    /// itself.
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

/// How a product goes into `c`, and the level it is computed at, which the processor must have.
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

/// `c = alpha * a·b + beta * c`, `c` being rows of `b.cols` elements that start `ldc` apart. Where `beta`
/// is zero `c` is not read; where the inner dimension is zero the product is zeros. NaN and infinity
/// count for what they are: `0 * inf` is NaN, also with an `alpha` of zero.
///
/// # Panics
/// Where the shapes do not go together, or a matrix has elements outside its slice.
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

/// Multiplications in a task of a batch, at least: some 10 µs for floats.
const TASK: usize = 500_000;

/// [`gemm`] for each of a batch: `c` is `shape` rows and columns for each product, one after the other,
/// and `factors(i)` are those of product `i`. Small products are shared out among the threads whole,
/// large ones are cut up one after the other.
///
/// # Panics
/// As [`gemm`], and where `c` is not a whole number of products.
pub(crate) fn gemm_batch<'a, T: Gemm>(
    alpha: T::Acc,
    factors: impl Fn(usize) -> (Matrix<'a, T>, Matrix<'a, T>) + Sync,
    beta: T::Acc,
    c: &mut [T],
    shape: (usize, usize),
) {
    let (rows, cols) = shape;
    let each = rows * cols;
    if c.is_empty() || each == 0 {
        return;
    }
    assert_eq!(c.len() % each, 0, "c is not a whole number of products");
    let level = simd::chosen(Family::Gemm).level();
    let mix = Mix { level, alpha, beta };
    let one = |i: usize, c: &mut [T]| {
        let (a, b) = factors(i);
        assert_eq!((a.rows, b.cols), shape, "a product has another shape");
        T::multiply(mix, a, b, c, cols);
    };
    let work = each.saturating_mul(factors(0).0.cols).max(1);
    if c.len() / each < pool::threads() || work > 8 * TASK {
        for (i, c) in c.chunks_exact_mut(each).enumerate() {
            one(i, c);
        }
        return;
    }
    let group = TASK.div_ceil(work);
    pool::for_each_chunk(c, group.saturating_mul(each), |piece, c| {
        for (i, c) in c.chunks_exact_mut(each).enumerate() {
            one(piece * group + i, c);
        }
    });
}
