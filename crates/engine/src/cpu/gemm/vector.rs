//! Products of a matrix and a vector: limited by memory, so every element is read once, in order, and
//! nothing is packed.

use super::float::{Float, Wide, finish, widen};
use super::scratch;
use super::{Matrix, Mix};
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Task};

/// Sums kept side by side along a line: two or four vectors, to hide the latency of additions.
const LANES: usize = 32;

/// Lines that are summed together: they share the loads of the vector.
const TOGETHER: usize = 4;

/// Elements that are widened, or added to sums in a first-level cache, at a time.
const STRETCH: usize = 256;

/// `y = alpha * matrix·x + beta * y` where the matrix is contiguous in one direction; `false`, and
/// nothing done, where it is not. `x` has one column; `y` has elements `stride` apart.
pub(super) fn multiply<T: Wide>(
    mix: Mix<T::Float>,
    matrix: Matrix<'_, T>,
    x: Matrix<'_, T>,
    y: &mut [T],
    stride: usize,
) -> bool {
    let across = matrix.col == 1 || matrix.cols == 1;
    if !across && matrix.row != 1 {
        return false;
    }
    let (lines, depth) = (matrix.rows, matrix.cols);
    scratch::shared(|buffer| {
        let (vector, sums) = buffer
            .get::<T::Float>(depth.next_multiple_of(16) + lines)
            .split_at_mut(depth.next_multiple_of(16));
        let vector = &mut vector[..depth];
        if x.row == 1 || depth == 1 {
            widen(mix.level, &x.data[x.offset..x.offset + depth], vector);
        } else {
            for (i, to) in vector.iter_mut().enumerate() {
                *to = x.data[(x.offset as isize + i as isize * x.row) as usize].widen();
            }
        }
        let vector = &*vector;
        // A task has some lines, a multiple of those that are summed together.
        let bytes = depth * size_of::<T>();
        let piece = if across {
            pool::grain(bytes).next_multiple_of(TOGETHER)
        } else {
            // Long enough to read along, short enough to have several.
            (lines / 8).clamp(STRETCH, 4 * STRETCH)
        };
        pool::pieces(sums, piece, |i, sums| {
            let first = i * piece;
            let offset = (matrix.offset as isize + first as isize * matrix.row) as usize;
            let matrix = Matrix { offset, ..matrix };
            if across {
                simd::run_at(
                    mix.level,
                    Dots {
                        matrix,
                        vector,
                        sums,
                    },
                );
            } else {
                simd::run_at(
                    mix.level,
                    Columns {
                        matrix,
                        vector,
                        sums,
                    },
                );
            }
        });
        if stride == 1 {
            finish(mix, sums, &mut y[..lines]);
        } else {
            for (sum, y) in sums.chunks_mut(1).zip(y.chunks_mut(stride)) {
                finish(mix, sum, &mut y[..1]);
            }
        }
    });
    true
}

/// Lines contiguous: each sum is a dot product.
struct Dots<'a, T: Wide> {
    matrix: Matrix<'a, T>,
    vector: &'a [T::Float],
    sums: &'a mut [T::Float],
}

impl<'a, T: Wide> Dots<'a, T> {
    #[inline(always)]
    fn line(&self, i: usize) -> &'a [T] {
        let start = (self.matrix.offset as isize + i as isize * self.matrix.row) as usize;
        &self.matrix.data[start..start + self.vector.len()]
    }

    /// The dot products of `N` lines from the `first` on.
    #[inline(always)]
    fn dots<I: Isa, const N: usize>(&self, first: usize) -> [T::Float; N] {
        let mut acc = [[T::Float::ZERO; LANES]; N];
        let lines: [&[T]; N] = std::array::from_fn(|i| self.line(first + i));
        let whole = self.vector.len() / LANES * LANES;
        let mut wide = [T::Float::ZERO; LANES];
        for step in (0..whole).step_by(LANES) {
            let x = &self.vector[step..step + LANES];
            for (acc, line) in acc.iter_mut().zip(lines) {
                T::widen_run::<I>(&line[step..step + LANES], &mut wide);
                for ((acc, &a), &x) in acc.iter_mut().zip(&wide).zip(x) {
                    *acc = simd::MulAdd::mul_add_on::<I>(a, x, *acc);
                }
            }
        }
        for (acc, line) in acc.iter_mut().zip(lines) {
            let rest = line[whole..].iter().zip(&self.vector[whole..]);
            for (acc, (a, &x)) in acc.iter_mut().zip(rest) {
                *acc = simd::MulAdd::mul_add_on::<I>(a.widen(), x, *acc);
            }
        }
        acc.map(|mut acc| {
            let mut half = LANES / 2;
            while half > 0 {
                for i in 0..half {
                    acc[i] += acc[i + half];
                }
                half /= 2;
            }
            acc[0]
        })
    }
}

impl<T: Wide> Task for Dots<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let lines = self.sums.len();
        let sums = std::mem::take(&mut self.sums);
        let mut i = 0;
        while i + TOGETHER <= lines {
            sums[i..i + TOGETHER].copy_from_slice(&self.dots::<I, TOGETHER>(i));
            i += TOGETHER;
        }
        for (i, sum) in sums.iter_mut().enumerate().skip(i) {
            [*sum] = self.dots::<I, 1>(i);
        }
    }
}

/// Steps contiguous: multiples of the matrix's columns are added to all sums at once.
struct Columns<'a, T: Wide> {
    matrix: Matrix<'a, T>,
    vector: &'a [T::Float],
    sums: &'a mut [T::Float],
}

impl<T: Wide> Task for Columns<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        const STEPS: usize = 4;
        let Self {
            matrix,
            vector,
            sums,
        } = self;
        let len = sums.len();
        let line = |step: usize| {
            let start = (matrix.offset as isize + step as isize * matrix.col) as usize;
            &matrix.data[start..start + len]
        };
        sums.fill(T::Float::ZERO);
        let whole = vector.len() / STEPS * STEPS;
        let mut wide = [[T::Float::ZERO; STRETCH]; STEPS];
        for step in (0..whole).step_by(STEPS) {
            let lines: [&[T]; STEPS] = std::array::from_fn(|i| line(step + i));
            let x: [T::Float; STEPS] = std::array::from_fn(|i| vector[step + i]);
            for (i, sums) in sums.chunks_mut(STRETCH).enumerate() {
                let n = sums.len();
                let at = i * STRETCH;
                if T::SAME {
                    let [a, b, c, d] = lines.map(|l| bytemuck::cast_slice(&l[at..at + n]));
                    add_columns::<I, T::Float>(sums, [a, b, c, d], x);
                } else {
                    for (wide, line) in wide.iter_mut().zip(lines) {
                        T::widen_run::<I>(&line[at..at + n], &mut wide[..n]);
                    }
                    add_columns::<I, T::Float>(sums, wide.each_ref().map(|w| &w[..n]), x);
                }
            }
        }
        for (step, &x) in vector.iter().enumerate().skip(whole) {
            for (sum, a) in sums.iter_mut().zip(line(step)) {
                *sum = simd::MulAdd::mul_add_on::<I>(a.widen(), x, *sum);
            }
        }
    }
}

#[inline(always)]
fn add_columns<I: Isa, F: Float>(sums: &mut [F], columns: [&[F]; 4], x: [F; 4]) {
    let [a, b, c, d] = columns;
    for ((((sum, &a), &b), &c), &d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        let mut s = a.mul_add_on::<I>(x[0], *sum);
        s = b.mul_add_on::<I>(x[1], s);
        s = c.mul_add_on::<I>(x[2], s);
        *sum = d.mul_add_on::<I>(x[3], s);
    }
}
