//! GEMV, and GEMM with a few vectors: limited by memory bandwidth, so every element is read once, sequentially, and
//! nothing is packed.

use super::float::{FloatElement, GemmFloat, WithKernel, finish, widen};
use super::kernel::{MicroKernel, dot};
use super::scratch;
use super::{Matrix, Mix};
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Level, MulAdd, Task};

/// Columns added to the sums in one pass, which share the loads and stores of the sums.
const COLS_PER_PASS: usize = 4;

/// Maximum vectors that a large matrix is multiplied with in one pass.
const MAX_VECTORS: usize = 8;

/// Elements that fit an L1 cache; a matrix with more is large.
const L1_ELEMENTS: usize = 8 << 10;

/// Elements that are widened, or added to sums in the L1 cache, at a time.
const CHUNK_LEN: usize = 256;

/// Computes the product if one factor is a vector and the other is contiguous in one direction, or if one has few
/// lines and the other is large and contiguous across them. Otherwise does nothing and returns false.
pub(super) fn multiply<T: FloatElement>(
    mix: Mix<T::Float>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
    ldc: usize,
) -> bool {
    let is_row_major = |m: &Matrix<'_, T>| m.col == 1 || m.cols == 1;
    let is_large = |m: &Matrix<'_, T>| m.rows.saturating_mul(m.cols) > L1_ELEMENTS;
    let (m, n) = (a.rows, b.cols);
    if n == 1 && is_row_major(&a) {
        dots(mix, a, b, c, ldc);
    } else if m == 1 && is_row_major(&b.t()) {
        dots(mix, b.t(), a.t(), c, 1);
    } else if b.col == 1 && (m == 1 || m <= MAX_VECTORS && is_large(&b)) {
        columns(mix, b.t(), a.t(), |i, r, sums| {
            finish(mix, sums, &mut c[r * ldc + i..][..sums.len()]);
        });
    } else if a.row == 1 && (n == 1 || n <= MAX_VECTORS && is_large(&a)) {
        columns(mix, a, b, |i, r, sums| {
            let c = c[i * ldc + r..].chunks_mut(ldc);
            for (sum, c) in sums.chunks_mut(1).zip(c) {
                finish(mix, sum, &mut c[..1]);
            }
        });
    } else {
        return false;
    }
    true
}

/// The dot product of two slices of the same length.
pub(crate) fn dot_at(level: Level, x: &[f32], y: &[f32]) -> f32 {
    f32::with_kernel(level, Dot { x, y })
}

struct Dot<'a> {
    x: &'a [f32],
    y: &'a [f32],
}

impl WithKernel<f32> for Dot<'_> {
    type Output = f32;
    fn call<K: MicroKernel<Float = f32>>(self) -> f32 {
        dot::<K>(self.x, self.y)
    }
}

/// Gathers the columns of `x`, widened, into contiguous memory.
fn gather<T: FloatElement>(level: Level, x: &Matrix<'_, T>, out: &mut [T::Float]) {
    for (col, out) in out.chunks_exact_mut(x.rows).enumerate() {
        let start = x.offset as isize + col as isize * x.col;
        if x.row == 1 || x.rows == 1 {
            widen(level, &x.data[start as usize..][..x.rows], out);
        } else {
            for (i, to) in out.iter_mut().enumerate() {
                *to = x.data[(start + i as isize * x.row) as usize].widen();
            }
        }
    }
}

/// `y = alpha * matrix·x + beta * y` for a row-major matrix and one column `x`; the elements of `y` have stride
/// `stride`.
fn dots<T: FloatElement>(
    mix: Mix<T::Float>,
    matrix: Matrix<'_, T>,
    x: Matrix<'_, T>,
    y: &mut [T],
    stride: usize,
) {
    let (lines, depth) = (matrix.rows, matrix.cols);
    scratch::shared(|buffer| {
        let (vector, sums) = buffer.get::<T::Float>(depth + lines).split_at_mut(depth);
        gather(mix.level, &x, vector);
        let vector = &*vector;
        let piece = pool::grain(depth * size_of::<T>());
        pool::for_each_chunk(sums, piece, |i, sums| {
            let start = matrix.offset as isize + (i * piece) as isize * matrix.row;
            let matrix = Matrix {
                offset: start as usize,
                ..matrix
            };
            let dots = Dots {
                matrix,
                vector,
                sums,
            };
            T::Float::with_kernel(mix.level, dots);
        });
        if stride == 1 {
            finish(mix, sums, &mut y[..lines]);
        } else {
            for (sum, y) in sums.chunks_mut(1).zip(y.chunks_mut(stride)) {
                finish(mix, sum, &mut y[..1]);
            }
        }
    });
}

/// As [`dots`] for a column-major matrix and a few columns `x`: calls `write(i, r, sums)` with the sums of the lines
/// from `i` on and column `r` of `x`.
fn columns<T: FloatElement>(
    mix: Mix<T::Float>,
    matrix: Matrix<'_, T>,
    x: Matrix<'_, T>,
    mut write: impl FnMut(usize, usize, &mut [T::Float]),
) {
    let (lines, depth, count) = (matrix.rows, matrix.cols, x.cols);
    // As long as possible, to read sequentially, but with a piece for each thread and sums that stay in the L1
    // cache.
    let max_piece = (16 << 10) / (count * size_of::<T::Float>());
    let piece = lines
        .div_ceil(pool::threads())
        .clamp(CHUNK_LEN, max_piece.max(CHUNK_LEN));
    scratch::shared(|buffer| {
        let (vectors, sums) = buffer
            .get::<T::Float>((depth + lines) * count)
            .split_at_mut(depth * count);
        gather(mix.level, &x, vectors);
        let vectors = &*vectors;
        pool::for_each_chunk(sums, piece * count, |i, sums| {
            let matrix = Matrix {
                offset: matrix.offset + i * piece,
                ..matrix
            };
            let columns = Columns {
                matrix,
                vectors,
                lines: sums.len() / count,
                sums,
            };
            simd::run_at(mix.level, columns);
        });
        for (i, sums) in sums.chunks_mut(piece * count).enumerate() {
            for (r, sums) in sums.chunks_exact_mut(sums.len() / count).enumerate() {
                write(i * piece, r, sums);
            }
        }
    });
}

/// The row-major kernel: each sum is a dot product.
struct Dots<'a, T: FloatElement> {
    matrix: Matrix<'a, T>,
    vector: &'a [T::Float],
    sums: &'a mut [T::Float],
}

impl<T: FloatElement> WithKernel<T::Float> for Dots<'_, T> {
    type Output = ();
    fn call<K: MicroKernel<Float = T::Float>>(self) {
        let Self { matrix, vector, .. } = self;
        let mut wide = [T::Float::ZERO; CHUNK_LEN];
        for (i, sum) in self.sums.iter_mut().enumerate() {
            let start = (matrix.offset as isize + i as isize * matrix.row) as usize;
            let line = &matrix.data[start..start + vector.len()];
            if T::SAME {
                *sum = dot::<K>(bytemuck::cast_slice(line), vector);
                continue;
            }
            *sum = T::Float::ZERO;
            for (line, x) in line.chunks(CHUNK_LEN).zip(vector.chunks(CHUNK_LEN)) {
                let wide = &mut wide[..line.len()];
                widen(K::LEVEL, line, wide);
                *sum += dot::<K>(wide, x);
            }
        }
    }
}

/// The column-major kernel: adds multiples of the columns to all sums.
struct Columns<'a, T: FloatElement> {
    matrix: Matrix<'a, T>,
    /// The contiguous vectors, each as long as the matrix has columns.
    vectors: &'a [T::Float],
    lines: usize,
    /// One sum per line, for each vector.
    sums: &'a mut [T::Float],
}

impl<T: FloatElement> Task for Columns<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { matrix, lines, .. } = self;
        let depth = matrix.cols;
        let column = |step: usize| {
            let start = (matrix.offset as isize + step as isize * matrix.col) as usize;
            &matrix.data[start..start + lines]
        };
        self.sums.fill(T::Float::ZERO);
        let whole = depth / COLS_PER_PASS * COLS_PER_PASS;
        let mut wide = [[T::Float::ZERO; CHUNK_LEN]; COLS_PER_PASS];
        for step in (0..whole).step_by(COLS_PER_PASS) {
            let columns: [&[T]; COLS_PER_PASS] = std::array::from_fn(|i| column(step + i));
            for at in (0..lines).step_by(CHUNK_LEN) {
                let len = CHUNK_LEN.min(lines - at);
                let columns = if T::SAME {
                    columns.map(|c| bytemuck::cast_slice(&c[at..at + len]))
                } else {
                    for (wide, column) in wide.iter_mut().zip(columns) {
                        T::widen_slice::<I>(&column[at..at + len], &mut wide[..len]);
                    }
                    wide.each_ref().map(|w| &w[..len])
                };
                let vectors = self.vectors.chunks_exact(depth);
                for (sums, vector) in self.sums.chunks_exact_mut(lines).zip(vectors) {
                    let x = std::array::from_fn(|i| vector[step + i]);
                    add_columns::<I, T::Float>(&mut sums[at..at + len], columns, x);
                }
            }
        }
        let vectors = self.vectors.chunks_exact(depth);
        for (sums, vector) in self.sums.chunks_exact_mut(lines).zip(vectors) {
            for (step, &x) in vector.iter().enumerate().skip(whole) {
                for (sum, a) in sums.iter_mut().zip(column(step)) {
                    *sum = a.widen().mul_add_on::<I>(x, *sum);
                }
            }
        }
    }
}

#[inline(always)]
fn add_columns<I: Isa, F: GemmFloat>(
    sums: &mut [F],
    columns: [&[F]; COLS_PER_PASS],
    x: [F; COLS_PER_PASS],
) {
    let [a, b, c, d] = columns;
    for ((((sum, &a), &b), &c), &d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        let mut s = a.mul_add_on::<I>(x[0], *sum);
        s = b.mul_add_on::<I>(x[1], s);
        s = c.mul_add_on::<I>(x[2], s);
        *sum = d.mul_add_on::<I>(x[3], s);
    }
}
