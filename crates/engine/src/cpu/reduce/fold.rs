//! What a reduction does with runs of elements: many accumulators side by side, so that loops vectorise
//! and rounding errors stay small, joined in an order that depends on nothing but the length.

use std::marker::PhantomData;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::cpu::simd::Isa;

/// Elements of a run that are folded at once: lanes of few elements each, and all of them in the first
/// cache for folds that look twice.
pub(super) const BLOCK: usize = 4096;

/// Rows that are folded at once, column by column; see [`BLOCK`].
pub(super) const ROWS: usize = 64;

/// Columns that are folded at once: two pages of totals of the largest kind.
pub(super) const COLUMNS: usize = 512;

/// Up to [`ROWS`] rows of neighbours.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Block<'a, T> {
    pub(super) data: &'a [T],
    /// Where each row begins.
    pub(super) rows: &'a [usize],
    /// Length of the rows, at most [`COLUMNS`].
    pub(super) width: usize,
}

impl<'a, T> Block<'a, T> {
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> &'a [T] {
        &self.data[self.rows[i]..][..self.width]
    }
}

/// A reduction of elements in memory.
pub(in crate::cpu) trait Folder {
    /// An element.
    type In: Pod + Send + Sync;
    /// What some elements come to.
    type Total: Copy + Send + Sync;
    /// What no elements come to.
    const EMPTY: Self::Total;
    /// Whether vector instructions beyond those that every processor has are worth their space.
    const VECTOR: bool;
    /// Numbers that [`Folder::columns`] needs meanwhile.
    type Scratch: Copy;
    /// Any of them.
    const SCRATCH: Self::Scratch;

    /// Folds at most [`BLOCK`] neighbours.
    fn run<I: Isa>(block: &[Self::In]) -> Self::Total;
    /// Folds rows into the totals of their columns.
    fn columns<I: Isa>(
        block: Block<'_, Self::In>,
        totals: &mut [Self::Total],
        scratch: &mut Self::Scratch,
    );
    /// Both.
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
}

/// A fold whose accumulators are plain numbers.
pub(in crate::cpu) trait Lanes {
    /// An element.
    type In: Pod + Send + Sync;
    /// An accumulator of a few elements.
    type Lane: Copy;
    /// An accumulator of all.
    type Total: Copy + Send + Sync;
    /// What changes nothing.
    const NEUTRAL: Self::Lane;
    /// What no elements come to.
    const EMPTY: Self::Total;
    /// See [`Folder::VECTOR`].
    const VECTOR: bool = true;

    /// One element.
    fn lift(x: Self::In) -> Self::Lane;
    /// Both.
    fn join(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    /// A lane and four elements.
    #[inline(always)]
    fn join_four(lane: Self::Lane, [a, b, c, d]: [Self::Lane; 4]) -> Self::Lane {
        Self::join(lane, Self::join(Self::join(a, b), Self::join(c, d)))
    }
    /// A lane as a total.
    fn widen(lane: Self::Lane) -> Self::Total;
    /// Both.
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
}

/// Lanes of a run.
pub(super) const WIDTH: usize = 128;

/// Joins lanes in halves.
#[inline(always)]
pub(super) fn halve<T: Copy, const N: usize>(
    lanes: &mut [T; N],
    used: usize,
    join: impl Fn(T, T) -> T,
) -> T {
    let mut half = used.clamp(1, N).next_power_of_two() / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (a, &b) in low.iter_mut().zip(&*high) {
            *a = join(*a, b);
        }
        half /= 2;
    }
    lanes[0]
}

/// The [`Folder`] of [`Lanes`].
pub(in crate::cpu) struct Simple<L>(PhantomData<L>);

impl<L: Lanes> Folder for Simple<L> {
    type In = L::In;
    type Total = L::Total;
    const EMPTY: L::Total = L::EMPTY;
    const VECTOR: bool = L::VECTOR;
    type Scratch = [L::Lane; COLUMNS];
    const SCRATCH: Self::Scratch = [L::NEUTRAL; COLUMNS];

    #[inline(always)]
    fn run<I: Isa>(block: &[L::In]) -> L::Total {
        if block.len() < 8 {
            let mut lane = L::NEUTRAL;
            for &x in block {
                lane = L::join(lane, L::lift(x));
            }
            return L::widen(lane);
        }
        if block.len() < WIDTH {
            let mut lanes = [L::NEUTRAL; 8];
            let (rows, rest) = block.as_chunks::<8>();
            for row in rows {
                for (lane, &x) in lanes.iter_mut().zip(row) {
                    *lane = L::join(*lane, L::lift(x));
                }
            }
            for (lane, &x) in lanes.iter_mut().zip(rest) {
                *lane = L::join(*lane, L::lift(x));
            }
            return L::widen(halve(&mut lanes, 8, L::join));
        }
        // Wider than registers: the loop over lanes is one that the compiler vectorises, not one that it
        // unrolls.
        let mut lanes = [L::NEUTRAL; WIDTH];
        let (rows, rest) = block.as_chunks::<WIDTH>();
        let (fours, rows) = rows.as_chunks::<4>();
        for [a, b, c, d] in fours {
            for ((((lane, &a), &b), &c), &d) in lanes.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *lane = L::join_four(*lane, [a, b, c, d].map(L::lift));
            }
        }
        for row in rows.iter().map(|r| &r[..]).chain([rest]) {
            for (lane, &x) in lanes.iter_mut().zip(row) {
                *lane = L::join(*lane, L::lift(x));
            }
        }
        L::widen(halve(&mut lanes, block.len(), L::join))
    }

    #[inline(always)]
    fn columns<I: Isa>(
        block: Block<'_, L::In>,
        totals: &mut [L::Total],
        scratch: &mut Self::Scratch,
    ) {
        let lanes = &mut scratch[..block.width];
        lanes.fill(L::NEUTRAL);
        let count = block.rows.len();
        let mut r = 0;
        while r + 4 <= count {
            let (a, b) = (block.row(r), block.row(r + 1));
            let (c, d) = (block.row(r + 2), block.row(r + 3));
            for ((((lane, &a), &b), &c), &d) in lanes.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *lane = L::join_four(*lane, [a, b, c, d].map(L::lift));
            }
            r += 4;
        }
        while r < count {
            for (lane, &x) in lanes.iter_mut().zip(block.row(r)) {
                *lane = L::join(*lane, L::lift(x));
            }
            r += 1;
        }
        for (total, &lane) in totals.iter_mut().zip(&*lanes) {
            *total = L::merge(*total, L::widen(lane));
        }
    }

    #[inline(always)]
    fn merge(a: L::Total, b: L::Total) -> L::Total {
        L::merge(a, b)
    }
}

/// The sum.
pub(super) struct Sum<T>(PhantomData<T>);
/// The product.
pub(super) struct Prod<T>(PhantomData<T>);
/// The least.
pub(in crate::cpu) struct Min<T>(PhantomData<T>);
/// The greatest.
pub(in crate::cpu) struct Max<T>(PhantomData<T>);
/// The sum of magnitudes.
pub(super) struct SumAbs<T>(PhantomData<T>);
/// The sum of squares.
pub(super) struct SumSquare<T>(PhantomData<T>);
/// The greatest magnitude.
pub(super) struct MaxAbs<T>(PhantomData<T>);
/// The least magnitude.
pub(super) struct MinAbs<T>(PhantomData<T>);
/// How many are not 0.
pub(super) struct CountNonzero<T>(PhantomData<T>);

/// An exact conversion that vectorises.
pub(in crate::cpu) trait Widen: Pod + Send + Sync {
    /// `f32` for floats with fewer bits than that, otherwise the type itself.
    type Wide: Copy + PartialOrd + Send + Sync;
    fn wide(self) -> Self::Wide;
}

macro_rules! itself {
    ($($type:ty),*) => {$(
        impl Widen for $type {
            type Wide = Self;
            #[inline(always)]
            fn wide(self) -> Self {
                self
            }
        }
    )*};
}
itself!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl Widen for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

impl Widen for f16 {
    type Wide = f32;
    #[inline(always)]
    fn wide(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7FFF) << 13;
        // The exponents differ by 112; the product also makes subnormal numbers normal. What was infinite
        // or NaN comes out above 2^16 and gets the exponent of those.
        let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
        let special = if scaled >= 65536.0 { 0x7F80_0000 } else { 0 };
        f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
    }
}

/// Implements [`Lanes`]: element, lane and total types, then the five functions.
macro_rules! lanes {
    (plain $($rest:tt)*) => {
        lanes!(@vector false, $($rest)*);
    };
    ($fold:ident: $($rest:tt)*) => {
        lanes!(@vector true, $fold: $($rest)*);
    };
    (@vector $vector:expr, $fold:ident: $([$in:ty, $lane:ty, $total:ty])*
        neutral $neutral:expr, empty $empty:expr,
        lift |$x:ident| $lift:expr,
        join |$a:ident, $b:ident| $join:expr,
        merge |$c:ident, $d:ident| $merge:expr) => {$(
        impl Lanes for $fold<$in> {
            type In = $in;
            type Lane = $lane;
            type Total = $total;
            const NEUTRAL: $lane = $neutral as $lane;
            const EMPTY: $total = $empty as $total;
            const VECTOR: bool = $vector;
            #[inline(always)]
            fn lift(x: $in) -> $lane {
                let $x = x.wide();
                $lift as $lane
            }
            #[inline(always)]
            fn join($a: $lane, $b: $lane) -> $lane {
                $join
            }
            #[inline(always)]
            fn widen(lane: $lane) -> $total {
                lane as $total
            }
            #[inline(always)]
            fn merge($c: $total, $d: $total) -> $total {
                $merge
            }
        }
    )*};
}

// -0 is what changes no float, not even -0.
lanes!(Sum: [f16, f32, f64] [bf16, f32, f64] [f32, f32, f64] [f64, f64, f64]
    neutral -0.0, empty -0.0, lift |x| x, join |a, b| a + b, merge |a, b| a + b);
// Blocks of small integers fit 32 bits: 4096 * 65535 is less than 2^28.
lanes!(Sum: [u8, u32, u64] [u16, u32, u64] [u32, u64, u64] [u64, u64, u64]
    [i8, i32, i64] [i16, i32, i64] [i32, i64, i64] [i64, i64, i64]
    neutral 0, empty 0, lift |x| x, join |a, b| a.wrapping_add(b), merge |a, b| a.wrapping_add(b));
lanes!(Prod: [f32, f64, f64] [f64, f64, f64]
    neutral 1.0, empty 1.0, lift |x| x, join |a, b| a * b, merge |a, b| a * b);
lanes!(plain Prod: [u8, u64, u64] [u16, u64, u64] [u32, u64, u64] [u64, u64, u64]
    [i8, i64, i64] [i16, i64, i64] [i32, i64, i64] [i64, i64, i64]
    neutral 1, empty 1, lift |x| x, join |a, b| a.wrapping_mul(b), merge |a, b| a.wrapping_mul(b));
lanes!(SumAbs: [f32, f32, f64] [f64, f64, f64]
    neutral 0.0, empty 0.0, lift |x| x.abs(), join |a, b| a + b, merge |a, b| a + b);
lanes!(SumSquare: [f32, f32, f64]
    neutral 0.0, empty 0.0, lift |x| x * x, join |a, b| a + b, merge |a, b| a + b);
lanes!(plain CountNonzero: [f32, u32, u64] [f64, u64, u64]
    neutral 0, empty 0, lift |x| u8::from(x != 0.0), join |a, b| a + b, merge |a, b| a + b);

/// Implements [`Lanes`] for the greatest or least float: NaN where one is. A comparison with NaN does not
/// hold, so that NaN stays in a lane once it is there; of four new elements two comparisons say whether
/// one is.
macro_rules! float_extreme {
    ($fold:ident $compare:tt $neutral:ident |$x:ident| $lift:expr; $([$in:ident, $lane:ident])*) => {$(
        impl Lanes for $fold<$in> {
            type In = $in;
            type Lane = $lane;
            type Total = $lane;
            const NEUTRAL: $lane = $lane::$neutral;
            const EMPTY: $lane = $lane::$neutral;
            #[inline(always)]
            fn lift(x: $in) -> $lane {
                let $x = x.wide();
                $lift
            }
            #[inline(always)]
            fn join(a: $lane, b: $lane) -> $lane {
                if b $compare a || b.is_nan() { b } else { a }
            }
            #[inline(always)]
            fn join_four(lane: $lane, [a, b, c, d]: [$lane; 4]) -> $lane {
                let either = |a: $lane, b: $lane| if b $compare a { b } else { a };
                let nan = a.is_nan() | b.is_nan() | (c.is_nan() | d.is_nan());
                let best = either(lane, either(either(a, b), either(c, d)));
                if nan { $lane::NAN } else { best }
            }
            #[inline(always)]
            fn widen(lane: $lane) -> $lane {
                lane
            }
            #[inline(always)]
            fn merge(a: $lane, b: $lane) -> $lane {
                Self::join(a, b)
            }
        }
    )*};
}
float_extreme!(Max > NEG_INFINITY |x| x; [f16, f32] [bf16, f32] [f32, f32] [f64, f64]);
float_extreme!(Min < INFINITY |x| x; [f16, f32] [bf16, f32] [f32, f32] [f64, f64]);
float_extreme!(MaxAbs > NEG_INFINITY |x| x.abs(); [f32, f32] [f64, f64]);
float_extreme!(MinAbs < INFINITY |x| x.abs(); [f32, f32] [f64, f64]);

macro_rules! extremes {
    ($($type:ident),*) => {$(
        lanes!(Max: [$type, $type, $type] neutral $type::MIN, empty $type::MIN,
            lift |x| x, join |a, b| a.max(b), merge |a, b| a.max(b));
        lanes!(Min: [$type, $type, $type] neutral $type::MAX, empty $type::MAX,
            lift |x| x, join |a, b| a.min(b), merge |a, b| a.min(b));
    )*};
}
extremes!(u8, u16, u32, u64, i8, i16, i32, i64);

/// Whether one is not 0, by the bits; of floats without the sign, which zeros may have.
pub(super) struct Any<T, const FLOAT: bool>(PhantomData<T>);
/// Whether all are not 0, likewise.
pub(super) struct All<T, const FLOAT: bool>(PhantomData<T>);

macro_rules! truth {
    ($($type:ident),*) => {$(
        impl<const FLOAT: bool> Lanes for Any<$type, FLOAT> {
            type In = $type;
            type Lane = $type;
            type Total = u8;
            const NEUTRAL: $type = 0;
            const EMPTY: u8 = 0;
            const VECTOR: bool = false;
            #[inline(always)]
            fn lift(x: $type) -> $type {
                x << FLOAT as u32
            }
            #[inline(always)]
            fn join(a: $type, b: $type) -> $type {
                a | b
            }
            #[inline(always)]
            fn widen(lane: $type) -> u8 {
                u8::from(lane != 0)
            }
            #[inline(always)]
            fn merge(a: u8, b: u8) -> u8 {
                a | b
            }
        }

        impl<const FLOAT: bool> Lanes for All<$type, FLOAT> {
            type In = $type;
            type Lane = $type;
            type Total = u8;
            const NEUTRAL: $type = $type::MAX;
            const EMPTY: u8 = 1;
            const VECTOR: bool = false;
            #[inline(always)]
            fn lift(x: $type) -> $type {
                x << FLOAT as u32
            }
            #[inline(always)]
            fn join(a: $type, b: $type) -> $type {
                a.min(b)
            }
            #[inline(always)]
            fn widen(lane: $type) -> u8 {
                u8::from(lane != 0)
            }
            #[inline(always)]
            fn merge(a: u8, b: u8) -> u8 {
                a & b
            }
        }
    )*};
}
truth!(u8, u16, u32, u64);
