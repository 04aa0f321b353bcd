//! Integer GEMM, which wraps.

use super::{Matrix, Mix, check_shapes};
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Task};

/// An integer.
pub(super) trait Int: Copy + Send + Sync + PartialEq + 'static {
    const ZERO: Self;
    fn mul(self, other: Self) -> Self;
    fn add(self, other: Self) -> Self;
}

macro_rules! int {
    ($($type:ty)*) => {$(
        impl Int for $type {
            const ZERO: Self = 0;
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}
int!(u8 u16 u32 u64 i8 i16 i32 i64);

/// [`gemm`](super::gemm) for integers.
pub(super) fn multiply<T: Int>(
    mix: Mix<T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
    ldc: usize,
) {
    a.check();
    b.check();
    check_shapes(&a, b.rows, b.cols, c, ldc);
    let (m, n, k) = (a.rows, b.cols, a.cols);
    if m == 0 || n == 0 {
        return;
    }
    let copy: Vec<T>;
    let b = if b.col == 1 || k == 0 {
        b
    } else {
        copy = (0..k)
            .flat_map(|i| (0..n).map(move |j| b.data[at(&b, i, j)]))
            .collect();
        Matrix::contiguous(&copy, k, n)
    };
    let rows = pool::grain(n * k.max(1) * size_of::<T>());
    let used = (m - 1) * ldc + n;
    pool::for_each_chunk(&mut c[..used], rows.saturating_mul(ldc), |piece, c| {
        for (i, c) in c.chunks_mut(ldc).enumerate() {
            simd::run_at(
                mix.level,
                IntegerGemmRow {
                    mix,
                    a: &a,
                    row: piece * rows + i,
                    b: &b,
                    c: &mut c[..n],
                },
            );
        }
    });
}

/// The index of element (i, j).
#[inline(always)]
fn at<T>(m: &Matrix<'_, T>, i: usize, j: usize) -> usize {
    (m.offset as isize + i as isize * m.row + j as isize * m.col) as usize
}

/// One row of `c`; each row of `b` is contiguous.
struct IntegerGemmRow<'a, T> {
    mix: Mix<T>,
    a: &'a Matrix<'a, T>,
    row: usize,
    b: &'a Matrix<'a, T>,
    c: &'a mut [T],
}

impl<T: Int> Task for IntegerGemmRow<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { a, b, c, .. } = self;
        for c in c.iter_mut() {
            *c = if self.mix.beta == T::ZERO {
                T::ZERO
            } else {
                self.mix.beta.mul(*c)
            };
        }
        for step in 0..a.cols {
            let x = self.mix.alpha.mul(a.data[at(a, self.row, step)]);
            let start = at(b, step, 0);
            for (c, &y) in c.iter_mut().zip(&b.data[start..start + b.cols]) {
                *c = c.add(x.mul(y));
            }
        }
    }
}
