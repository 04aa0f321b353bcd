//! Folds that look at each block twice: variance, `logsumexp`, and the Euclidean norm of `f64`. The block
//! is in the first cache the second time, so they are as fast as the memory.

use std::marker::PhantomData;

use super::fold::{Block, COLUMNS, Folder, Lanes, Max, Simple, Sum, SumSquare, WIDTH, halve};
use crate::cpu::math::Math;
use crate::cpu::simd::Isa;

/// `f32` or `f64`, which the second look computes in.
pub(super) trait Real:
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
        impl Real for $type {
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
fn sum<R: Real>(block: &[R], f: impl Fn(R) -> R) -> f64 {
    let mut lanes = [R::ZERO; WIDTH];
    let (rows, rest) = block.as_chunks::<WIDTH>();
    for row in rows.iter().map(|r| &r[..]).chain([rest]) {
        for (lane, &x) in lanes.iter_mut().zip(row) {
            *lane = *lane + f(x);
        }
    }
    halve(&mut lanes, block.len(), |a, b| a + b).into()
}

/// What the columns of a variance need meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Twice<R> {
    sums: [f64; COLUMNS],
    near: [R; COLUMNS],
    distance: [R; COLUMNS],
    square: [R; COLUMNS],
}

/// Mean and variance.
pub(super) struct Variance<T>(PhantomData<T>);

/// What some elements come to.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    count: f64,
    mean: f64,
    /// The sum of squared distances from the mean.
    square: f64,
}

impl Moments {
    /// From the sums of distances, and of their squares, from some number near the mean.
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
    T: Real,
    Sum<T>: Lanes<In = T, Lane = T, Total = f64>,
{
    type In = T;
    type Total = Moments;
    const EMPTY: Moments = Moments {
        count: 0.0,
        mean: 0.0,
        square: 0.0,
    };
    const VECTOR: bool = true;
    type Scratch = Twice<T>;
    const SCRATCH: Self::Scratch = Twice {
        sums: [0.0; COLUMNS],
        near: [T::ZERO; COLUMNS],
        distance: [T::ZERO; COLUMNS],
        square: [T::ZERO; COLUMNS],
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
    fn columns<I: Isa>(block: Block<'_, T>, totals: &mut [Moments], scratch: &mut Self::Scratch) {
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

/// `sum` of exponentials over `exp(max)`; of no meaning where `max` is not finite.
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
    T: Real,
    Max<T>: Lanes<In = T, Lane = T, Total = T>,
{
    type In = T;
    type Total = Exponentials;
    const EMPTY: Exponentials = Exponentials {
        max: f64::NEG_INFINITY,
        sum: 0.0,
    };
    const VECTOR: bool = true;
    type Scratch = [[T; COLUMNS]; 2];
    const SCRATCH: Self::Scratch = [[T::ZERO; COLUMNS]; 2];

    #[inline(always)]
    fn run<I: Isa>(block: &[T]) -> Exponentials {
        let greatest = Simple::<Max<T>>::run::<I>(block);
        let max: f64 = greatest.into();
        let sum = if max.is_finite() {
            sum(block, |x| (x - greatest).exp_on::<I>())
        } else {
            0.0
        };
        Exponentials { max, sum }
    }

    #[inline(always)]
    fn columns<I: Isa>(
        block: Block<'_, T>,
        totals: &mut [Exponentials],
        [greatest, sums]: &mut Self::Scratch,
    ) {
        let greatest = &mut greatest[..block.width];
        greatest.fill(Max::<T>::EMPTY);
        Simple::<Max<T>>::columns::<I>(block, greatest, sums);
        let sums = &mut sums[..block.width];
        sums.fill(T::ZERO);
        for r in 0..block.rows.len() {
            // Where the greatest is not finite the sum is NaN and nobody looks at it.
            for ((sum, &max), &x) in sums.iter_mut().zip(&*greatest).zip(block.row(r)) {
                *sum = *sum + (x - max).exp_on::<I>();
            }
        }
        for ((total, &max), &sum) in totals.iter_mut().zip(&*greatest).zip(&*sums) {
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
        let part = |e: Exponentials| {
            if e.max == f64::NEG_INFINITY {
                0.0
            } else {
                e.sum * (e.max - max).exp()
            }
        };
        Exponentials {
            max,
            sum: if max.is_finite() {
                part(a) + part(b)
            } else {
                0.0
            },
        }
    }
}

/// The sum of squares of `f32`: in `f32` where that is safe, otherwise in `f64`.
pub(super) struct Squared;

/// Squares of `f32` whose sum lies between these have lost nothing that matters: not to overflow, and
/// those that vanished are far below the last digit.
const SAFE: std::ops::Range<f64> = 1e-20..1e37;

impl Folder for Squared {
    type In = f32;
    type Total = f64;
    const EMPTY: f64 = 0.0;
    const VECTOR: bool = true;
    type Scratch = ([f32; COLUMNS], [f64; COLUMNS]);
    const SCRATCH: Self::Scratch = ([0.0; COLUMNS], [0.0; COLUMNS]);

    #[inline(always)]
    fn run<I: Isa>(block: &[f32]) -> f64 {
        let sum = Simple::<SumSquare<f32>>::run::<I>(block);
        if SAFE.contains(&sum) {
            return sum;
        }
        block.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
    }

    #[inline(always)]
    fn columns<I: Isa>(
        block: Block<'_, f32>,
        totals: &mut [f64],
        (lanes, sums): &mut Self::Scratch,
    ) {
        let sums = &mut sums[..block.width];
        sums.fill(0.0);
        Simple::<SumSquare<f32>>::columns::<I>(block, sums, lanes);
        for (j, (total, &sum)) in totals.iter_mut().zip(&*sums).enumerate() {
            *total += if SAFE.contains(&sum) {
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

/// The Euclidean norm of `f64`, whose squares may be too large or too small for `f64`.
pub(super) struct Euclid;

/// Sums of squares: of blocks that had to be made larger or smaller first, and of the others.
#[derive(Clone, Copy)]
pub(super) struct Squares {
    small: f64,
    plain: f64,
    large: f64,
}

/// What elements are multiplied or divided by, exactly; squares of it are still numbers.
const SCALE: f64 = f64::from_bits((1023 + 500) << 52);

/// Below this a sum of squares may have lost some that matter.
const SMALL: f64 = 1e-200;

impl Squares {
    #[inline(always)]
    fn new(plain: f64, again: impl Fn(f64) -> f64) -> Self {
        let zero = Euclid::EMPTY;
        if plain < SMALL {
            let small = again(SCALE);
            return Self { small, ..zero };
        }
        if plain == f64::INFINITY {
            let large = again(1.0 / SCALE);
            return Self { large, ..zero };
        }
        Self { plain, ..zero }
    }

    /// The norm.
    pub(super) fn root(self) -> f64 {
        let less = 1.0 / (SCALE * SCALE);
        if self.large != 0.0 {
            (self.large + self.plain * less).sqrt() * SCALE
        } else if self.plain != 0.0 {
            (self.plain + self.small * less).sqrt()
        } else {
            self.small.sqrt() / SCALE
        }
    }
}

impl Folder for Euclid {
    type In = f64;
    type Total = Squares;
    const EMPTY: Squares = Squares {
        small: 0.0,
        plain: 0.0,
        large: 0.0,
    };
    const VECTOR: bool = true;
    type Scratch = [f64; COLUMNS];
    const SCRATCH: Self::Scratch = [0.0; COLUMNS];

    #[inline(always)]
    fn run<I: Isa>(block: &[f64]) -> Squares {
        let scaled = |scale: f64| sum(block, |x: f64| (x * scale) * (x * scale));
        Squares::new(sum(block, |x: f64| x * x), scaled)
    }

    #[inline(always)]
    fn columns<I: Isa>(block: Block<'_, f64>, totals: &mut [Squares], sums: &mut Self::Scratch) {
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
            plain: a.plain + b.plain,
            large: a.large + b.large,
        }
    }
}
