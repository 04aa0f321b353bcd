//! Folds with two passes over each block: variance, `logsumexp`, and the Euclidean norm of `f64`. The block is in the L1
//! cache for the second pass, so they run at memory bandwidth.

use std::marker::PhantomData;

use super::fold::{
    FOLD_BLOCK_COLUMNS, FOLD_LANES, Folder, LaneFold, Max, RowBlock, Simple, Sum, SumSquare,
    combine_lanes,
};
use crate::cpu::math::Math;
use crate::cpu::simd::Isa;

/// The compute type of the second pass: `f32` or `f64`.
pub(super) trait TwoPassReal:
    Math
    + bytemuck::Pod
    + Send
    + Sync
    + PartialOrd
    + Into<f64>
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
{
    const ZERO: Self;
    fn of(x: f64) -> Self;
}

macro_rules! real {
    ($($type:ty),*) => {$(
        impl TwoPassReal for $type {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn of(x: f64) -> Self {
                x as Self
            }
        }
    )*};
}
real!(f32, f64);

/// The sum of `f(x)` over a block, in lanes.
#[inline(always)]
fn sum<R: TwoPassReal>(block: &[R], f: impl Fn(R) -> R) -> f64 {
    let mut lanes = [R::ZERO; FOLD_LANES];
    let (rows, rest) = block.as_chunks::<FOLD_LANES>();
    for row in rows.iter().map(|r| &r[..]).chain([rest]) {
        for (lane, &x) in lanes.iter_mut().zip(row) {
            *lane = *lane + f(x);
        }
    }
    combine_lanes(&mut lanes, block.len(), |a, b| a + b).into()
}

/// Scratch memory of [`Variance`] by columns.
#[derive(Clone, Copy)]
pub(super) struct VarianceColumns<R> {
    sums: [f64; FOLD_BLOCK_COLUMNS],
    /// Approximate means.
    near: [R; FOLD_BLOCK_COLUMNS],
    /// Sums of differences from `near`.
    distance: [R; FOLD_BLOCK_COLUMNS],
    /// Sums of squared differences from `near`.
    square: [R; FOLD_BLOCK_COLUMNS],
}

/// Mean and variance.
pub(super) struct Variance<T>(PhantomData<T>);

/// Count, mean and variance of a set of elements, merged as by Chan et al.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    count: f64,
    mean: f64,
    /// The sum of squared differences from the mean.
    square: f64,
}

impl Moments {
    /// Computes the moments from the sum of differences, and the sum of squared differences, from a number near the
    /// mean.
    #[inline(always)]
    fn new(count: f64, near: f64, distance: f64, square: f64) -> Self {
        let off = distance / count;
        Self {
            count,
            mean: near + off,
            square: (square - distance * off).max(0.0) + 0.0 * square,
        }
    }

    /// The variance.
    pub(super) fn variance(self, count: usize, ddof: usize) -> f64 {
        self.square / count.saturating_sub(ddof) as f64
    }
}

impl<T> Folder for Variance<T>
where
    T: TwoPassReal,
    Sum<T>: LaneFold<In = T, Lane = T, Total = f64>,
{
    type In = T;
    type Total = Moments;
    const EMPTY: Moments = Moments {
        count: 0.0,
        mean: 0.0,
        square: 0.0,
    };
    const VECTOR: bool = true;
    type Scratch = VarianceColumns<T>;
    const SCRATCH: Self::Scratch = VarianceColumns {
        sums: [0.0; FOLD_BLOCK_COLUMNS],
        near: [T::ZERO; FOLD_BLOCK_COLUMNS],
        distance: [T::ZERO; FOLD_BLOCK_COLUMNS],
        square: [T::ZERO; FOLD_BLOCK_COLUMNS],
    };

    #[inline(always)]
    fn run<I: Isa>(block: &[T]) -> Moments {
        let count = block.len() as f64;
        let near = T::of(Simple::<Sum<T>>::run::<I>(block) / count);
        let distance = sum(block, |x| x - near);
        let square = sum(block, |x| (x - near) * (x - near));
        Moments::new(count, near.into(), distance, square)
    }

    #[inline(always)]
    fn columns<I: Isa>(
        block: RowBlock<'_, T>,
        totals: &mut [Moments],
        scratch: &mut Self::Scratch,
    ) {
        let count = block.rows.len() as f64;
        let width = block.width;
        let sums = &mut scratch.sums[..width];
        sums.fill(0.0);
        Simple::<Sum<T>>::columns::<I>(block, sums, &mut scratch.distance);
        let near = &mut scratch.near[..width];
        for (near, sum) in near.iter_mut().zip(&*sums) {
            *near = T::of(sum / count);
        }
        let distance = &mut scratch.distance[..width];
        let square = &mut scratch.square[..width];
        distance.fill(T::ZERO);
        square.fill(T::ZERO);
        for r in 0..block.rows.len() {
            let sums = distance.iter_mut().zip(square.iter_mut());
            for (((d, s), &near), &x) in sums.zip(&*near).zip(block.row(r)) {
                let off = x - near;
                *d = *d + off;
                *s = *s + off * off;
            }
        }
        for (j, total) in totals.iter_mut().enumerate() {
            let (d, s) = (distance[j].into(), square[j].into());
            let column = Moments::new(count, near[j].into(), d, s);
            *total = Self::merge(*total, column);
        }
    }

    #[inline(always)]
    fn merge(a: Moments, b: Moments) -> Moments {
        let count = a.count + b.count;
        if a.count == 0.0 {
            return b;
        }
        if b.count == 0.0 {
            return a;
        }
        let apart = b.mean - a.mean;
        Moments {
            count,
            mean: a.mean + apart * (b.count / count),
            square: a.square + b.square + apart * apart * (a.count * b.count / count),
        }
    }
}

/// The logarithm of the sum of exponentials.
pub(super) struct LogSumExp<T>(PhantomData<T>);

/// A running maximum and the sum of `exp(x - max)`, which is meaningless if the maximum is not finite.
#[derive(Clone, Copy)]
pub(super) struct Exponentials {
    max: f64,
    sum: f64,
}

impl Exponentials {
    pub(super) fn log(self) -> f64 {
        if self.max.is_finite() {
            self.max + self.sum.ln()
        } else {
            self.max
        }
    }
}

impl<T> Folder for LogSumExp<T>
where
    T: TwoPassReal,
    Max<T>: LaneFold<In = T, Lane = T, Total = T>,
{
    type In = T;
    type Total = Exponentials;
    const EMPTY: Exponentials = Exponentials {
        max: f64::NEG_INFINITY,
        sum: 0.0,
    };
    const VECTOR: bool = true;
    type Scratch = [[T; FOLD_BLOCK_COLUMNS]; 2];
    const SCRATCH: Self::Scratch = [[T::ZERO; FOLD_BLOCK_COLUMNS]; 2];

    #[inline(always)]
    fn run<I: Isa>(block: &[T]) -> Exponentials {
        let block_max = Simple::<Max<T>>::run::<I>(block);
        let max: f64 = block_max.into();
        let sum = if max.is_finite() {
            sum(block, |x| (x - block_max).exp_on::<I>())
        } else {
            0.0
        };
        Exponentials { max, sum }
    }

    #[inline(always)]
    fn columns<I: Isa>(
        block: RowBlock<'_, T>,
        totals: &mut [Exponentials],
        [maxima, sums]: &mut Self::Scratch,
    ) {
        let maxima = &mut maxima[..block.width];
        maxima.fill(Max::<T>::EMPTY);
        Simple::<Max<T>>::columns::<I>(block, maxima, sums);
        let sums = &mut sums[..block.width];
        sums.fill(T::ZERO);
        for r in 0..block.rows.len() {
            // If the maximum is not finite, the sum is NaN and unused.
            for ((sum, &max), &x) in sums.iter_mut().zip(&*maxima).zip(block.row(r)) {
                *sum = *sum + (x - max).exp_on::<I>();
            }
        }
        for ((total, &max), &sum) in totals.iter_mut().zip(&*maxima).zip(&*sums) {
            let column = Exponentials {
                max: max.into(),
                sum: sum.into(),
            };
            *total = Self::merge(*total, column);
        }
    }

    #[inline(always)]
    fn merge(a: Exponentials, b: Exponentials) -> Exponentials {
        let max = if b.max > a.max || b.max.is_nan() {
            b.max
        } else {
            a.max
        };
        let rescaled = |e: Exponentials| {
            if e.max == f64::NEG_INFINITY {
                0.0
            } else {
                e.sum * (e.max - max).exp()
            }
        };
        Exponentials {
            max,
            sum: if max.is_finite() {
                rescaled(a) + rescaled(b)
            } else {
                0.0
            },
        }
    }
}

/// The sum of squares of `f32`: in `f32` if that is accurate, otherwise in `f64`.
pub(super) struct Squared;

/// Sums of squares in `f32` that are accurate: none overflowed, and those that underflowed are far below the last digit.
const ACCURATE_F32_SQUARES: std::ops::Range<f64> = 1e-20..1e37;

/// Scratch memory of [`Squared`] by columns.
#[derive(Clone, Copy)]
pub(super) struct SquaredColumns {
    lanes: [f32; FOLD_BLOCK_COLUMNS],
    sums: [f64; FOLD_BLOCK_COLUMNS],
}

impl Folder for Squared {
    type In = f32;
    type Total = f64;
    const EMPTY: f64 = 0.0;
    const VECTOR: bool = true;
    type Scratch = SquaredColumns;
    const SCRATCH: Self::Scratch = SquaredColumns {
        lanes: [0.0; FOLD_BLOCK_COLUMNS],
        sums: [0.0; FOLD_BLOCK_COLUMNS],
    };

    #[inline(always)]
    fn run<I: Isa>(block: &[f32]) -> f64 {
        let sum = Simple::<SumSquare<f32>>::run::<I>(block);
        if ACCURATE_F32_SQUARES.contains(&sum) {
            return sum;
        }
        block.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
    }

    #[inline(always)]
    fn columns<I: Isa>(block: RowBlock<'_, f32>, totals: &mut [f64], scratch: &mut Self::Scratch) {
        let sums = &mut scratch.sums[..block.width];
        sums.fill(0.0);
        Simple::<SumSquare<f32>>::columns::<I>(block, sums, &mut scratch.lanes);
        for (j, (total, &sum)) in totals.iter_mut().zip(&*sums).enumerate() {
            *total += if ACCURATE_F32_SQUARES.contains(&sum) {
                sum
            } else {
                let rows = 0..block.rows.len();
                rows.map(|r| f64::from(block.row(r)[j]).powi(2)).sum()
            };
        }
    }

    #[inline(always)]
    fn merge(a: f64, b: f64) -> f64 {
        a + b
    }
}

/// The Euclidean norm of `f64`, whose squares may overflow or underflow: Blue's algorithm with three accumulators.
pub(super) struct Euclid;

/// Sums of squares: of blocks that were scaled up, not scaled, and scaled down.
#[derive(Clone, Copy)]
pub(super) struct Squares {
    small: f64,
    unscaled: f64,
    large: f64,
}

/// The factor that elements are multiplied or divided by, exactly: a power of 2 whose square is finite.
const SQUARE_SCALE: f64 = f64::from_bits((1023 + 500) << 52);

/// Smaller sums of squares may have lost significant terms to underflow.
const MIN_ACCURATE_SQUARES: f64 = 1e-200;

impl Squares {
    #[inline(always)]
    fn new(unscaled: f64, rescaled_sum: impl Fn(f64) -> f64) -> Self {
        let zero = Euclid::EMPTY;
        if unscaled < MIN_ACCURATE_SQUARES {
            let small = rescaled_sum(SQUARE_SCALE);
            return Self { small, ..zero };
        }
        if unscaled == f64::INFINITY {
            let large = rescaled_sum(1.0 / SQUARE_SCALE);
            return Self { large, ..zero };
        }
        Self { unscaled, ..zero }
    }

    /// The norm.
    pub(super) fn root(self) -> f64 {
        let down = 1.0 / (SQUARE_SCALE * SQUARE_SCALE);
        if self.large != 0.0 {
            (self.large + self.unscaled * down).sqrt() * SQUARE_SCALE
        } else if self.unscaled != 0.0 {
            (self.unscaled + self.small * down).sqrt()
        } else {
            self.small.sqrt() / SQUARE_SCALE
        }
    }
}

impl Folder for Euclid {
    type In = f64;
    type Total = Squares;
    const EMPTY: Squares = Squares {
        small: 0.0,
        unscaled: 0.0,
        large: 0.0,
    };
    const VECTOR: bool = true;
    type Scratch = [f64; FOLD_BLOCK_COLUMNS];
    const SCRATCH: Self::Scratch = [0.0; FOLD_BLOCK_COLUMNS];

    #[inline(always)]
    fn run<I: Isa>(block: &[f64]) -> Squares {
        let scaled = |scale: f64| sum(block, |x: f64| (x * scale) * (x * scale));
        Squares::new(sum(block, |x: f64| x * x), scaled)
    }

    #[inline(always)]
    fn columns<I: Isa>(block: RowBlock<'_, f64>, totals: &mut [Squares], sums: &mut Self::Scratch) {
        let sums = &mut sums[..block.width];
        sums.fill(0.0);
        for r in 0..block.rows.len() {
            for (sum, &x) in sums.iter_mut().zip(block.row(r)) {
                *sum += x * x;
            }
        }
        for (j, total) in totals.iter_mut().enumerate() {
            let column = Squares::new(sums[j], |scale| {
                let rows = 0..block.rows.len();
                rows.map(|r| (block.row(r)[j] * scale).powi(2)).sum()
            });
            *total = Self::merge(*total, column);
        }
    }

    #[inline(always)]
    fn merge(a: Squares, b: Squares) -> Squares {
        Squares {
            small: a.small + b.small,
            unscaled: a.unscaled + b.unscaled,
            large: a.large + b.large,
        }
    }
}
