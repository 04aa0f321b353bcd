//! Folds of contiguous runs and of columns: many parallel accumulators, so that loops vectorise and rounding errors stay
//! small, combined in an order that depends on the length alone.

use std::marker::PhantomData;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::cpu::simd::Isa;

/// Elements of a run that are folded per block: few per accumulator lane, and a block stays in the L1 cache for folds
/// with two passes.
pub(super) const FOLD_BLOCK_LEN: usize = 4096;

/// Rows that are folded per block in a column-wise fold; see [`FOLD_BLOCK_LEN`].
pub(super) const FOLD_BLOCK_ROWS: usize = 64;

/// Columns that are folded per block: two pages of totals of the largest type.
pub(super) const FOLD_BLOCK_COLUMNS: usize = 512;

/// Up to [`FOLD_BLOCK_ROWS`] contiguous rows.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct RowBlock<'a, T> {
    pub(super) data: &'a [T],
    /// Offset of each row.
    pub(super) rows: &'a [usize],
    /// Length of the rows, at most [`FOLD_BLOCK_COLUMNS`].
    pub(super) width: usize,
}

impl<'a, T> RowBlock<'a, T> {
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> &'a [T] {
        &self.data[self.rows[i]..][..self.width]
    }
}

/// A reduction of elements in memory.
pub(in crate::cpu) trait Folder {
    /// An element.
    type In: Pod + Send + Sync;
    /// The accumulated state of a set of elements.
    type Total: Copy + Send + Sync;
    /// The total of no elements.
    const EMPTY: Self::Total;
    /// Whether compiling for vector instructions beyond the baseline is worth the code size.
    const VECTOR: bool;
    /// Scratch memory of [`Folder::columns`].
    type Scratch: Copy;
    /// An initial value of the scratch memory.
    const SCRATCH: Self::Scratch;

    /// Folds at most [`FOLD_BLOCK_LEN`] contiguous elements.
    fn run<I: Isa>(block: &[Self::In]) -> Self::Total;
    /// Folds rows into the totals of their columns.
    fn columns<I: Isa>(
        block: RowBlock<'_, Self::In>,
        totals: &mut [Self::Total],
        scratch: &mut Self::Scratch,
    );
    /// Combines two totals.
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
}

/// A fold whose accumulators are single numbers.
pub(in crate::cpu) trait LaneFold {
    /// An element.
    type In: Pod + Send + Sync;
    /// An accumulator of a few elements.
    type Lane: Copy;
    /// An accumulator of all.
    type Total: Copy + Send + Sync;
    /// The neutral element of [`LaneFold::combine`].
    const NEUTRAL: Self::Lane;
    /// The total of no elements.
    const EMPTY: Self::Total;
    /// See [`Folder::VECTOR`].
    const VECTOR: bool = true;

    /// Converts one element.
    fn lift(x: Self::In) -> Self::Lane;
    /// Combines two lanes.
    fn combine(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    /// Combines a lane with four elements.
    #[inline(always)]
    fn combine_four(lane: Self::Lane, [a, b, c, d]: [Self::Lane; 4]) -> Self::Lane {
        Self::combine(
            lane,
            Self::combine(Self::combine(a, b), Self::combine(c, d)),
        )
    }
    /// Converts a lane to a total.
    fn widen(lane: Self::Lane) -> Self::Total;
    /// Combines two totals.
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
}

/// Accumulator lanes of a run.
pub(super) const FOLD_LANES: usize = 128;

/// Combines lanes pairwise by a binary tree.
#[inline(always)]
pub(super) fn combine_lanes<T: Copy, const N: usize>(
    lanes: &mut [T; N],
    used: usize,
    combine: impl Fn(T, T) -> T,
) -> T {
    let mut half = used.clamp(1, N).next_power_of_two() / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (a, &b) in low.iter_mut().zip(&*high) {
            *a = combine(*a, b);
        }
        half /= 2;
    }
    lanes[0]
}

/// The [`Folder`] of [`LaneFold`].
pub(in crate::cpu) struct Simple<L>(PhantomData<L>);

impl<L: LaneFold> Folder for Simple<L> {
    type In = L::In;
    type Total = L::Total;
    const EMPTY: L::Total = L::EMPTY;
    const VECTOR: bool = L::VECTOR;
    type Scratch = [L::Lane; FOLD_BLOCK_COLUMNS];
    const SCRATCH: Self::Scratch = [L::NEUTRAL; FOLD_BLOCK_COLUMNS];

    #[inline(always)]
    fn run<I: Isa>(block: &[L::In]) -> L::Total {
        if block.len() < 8 {
            let mut lane = L::NEUTRAL;
            for &x in block {
                lane = L::combine(lane, L::lift(x));
            }
            return L::widen(lane);
        }
        if block.len() < FOLD_LANES {
            let mut lanes = [L::NEUTRAL; 8];
            let (rows, rest) = block.as_chunks::<8>();
            for row in rows {
                for (lane, &x) in lanes.iter_mut().zip(row) {
                    *lane = L::combine(*lane, L::lift(x));
                }
            }
            for (lane, &x) in lanes.iter_mut().zip(rest) {
                *lane = L::combine(*lane, L::lift(x));
            }
            return L::widen(combine_lanes(&mut lanes, 8, L::combine));
        }
        // More lanes than the registers take: the compiler vectorises the loop over lanes instead of unrolling it.
        let mut lanes = [L::NEUTRAL; FOLD_LANES];
        let (rows, rest) = block.as_chunks::<FOLD_LANES>();
        let (fours, rows) = rows.as_chunks::<4>();
        for [a, b, c, d] in fours {
            for ((((lane, &a), &b), &c), &d) in lanes.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *lane = L::combine_four(*lane, [a, b, c, d].map(L::lift));
            }
        }
        for row in rows.iter().map(|r| &r[..]).chain([rest]) {
            for (lane, &x) in lanes.iter_mut().zip(row) {
                *lane = L::combine(*lane, L::lift(x));
            }
        }
        L::widen(combine_lanes(&mut lanes, block.len(), L::combine))
    }

    #[inline(always)]
    fn columns<I: Isa>(
        block: RowBlock<'_, L::In>,
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
                *lane = L::combine_four(*lane, [a, b, c, d].map(L::lift));
            }
            r += 4;
        }
        while r < count {
            for (lane, &x) in lanes.iter_mut().zip(block.row(r)) {
                *lane = L::combine(*lane, L::lift(x));
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
/// The minimum.
pub(in crate::cpu) struct Min<T>(PhantomData<T>);
/// The maximum.
pub(in crate::cpu) struct Max<T>(PhantomData<T>);
/// The sum of magnitudes.
pub(super) struct SumAbs<T>(PhantomData<T>);
/// The sum of squares.
pub(super) struct SumSquare<T>(PhantomData<T>);
/// The maximum magnitude.
pub(super) struct MaxAbs<T>(PhantomData<T>);
/// The minimum magnitude.
pub(super) struct MinAbs<T>(PhantomData<T>);
/// The number of nonzero elements.
pub(super) struct CountNonzero<T>(PhantomData<T>);

/// An exact widening conversion that vectorises.
pub(in crate::cpu) trait Widen: Pod + Send + Sync {
    /// `f32` for half-precision floats, otherwise the type itself.
    type Wide: Copy + PartialOrd + Send + Sync;
    fn wide(self) -> Self::Wide;
}

macro_rules! identity {
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
identity!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

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
        // The exponent biases differ by 112; the multiplication also normalises subnormal numbers. Infinities and NaN
        // come out at 2^16 or above and get the exponent of those.
        let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
        let special = if scaled >= 65536.0 { 0x7F80_0000 } else { 0 };
        f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
    }
}

/// Implements [`LaneFold`]: element, lane and total types, then the five functions.
macro_rules! lanes {
    (scalar $($rest:tt)*) => {
        lanes!(@vector false, $($rest)*);
    };
    ($fold:ident: $($rest:tt)*) => {
        lanes!(@vector true, $fold: $($rest)*);
    };
    (@vector $vector:expr, $fold:ident: $([$in:ty, $lane:ty, $total:ty])*
        neutral $neutral:expr, empty $empty:expr,
        lift |$x:ident| $lift:expr,
        combine |$a:ident, $b:ident| $combine:expr,
        merge |$c:ident, $d:ident| $merge:expr) => {$(
        impl LaneFold for $fold<$in> {
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
            fn combine($a: $lane, $b: $lane) -> $lane {
                $combine
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

// The neutral element is -0: it preserves even -0.
lanes!(Sum: [f16, f32, f64] [bf16, f32, f64] [f32, f32, f64] [f64, f64, f64]
    neutral -0.0, empty -0.0, lift |x| x, combine |a, b| a + b, merge |a, b| a + b);
// Sums of blocks of small integers fit 32 bits: 4096 * 65535 is less than 2^28.
lanes!(Sum: [u8, u32, u64] [u16, u32, u64] [u32, u64, u64] [u64, u64, u64]
    [i8, i32, i64] [i16, i32, i64] [i32, i64, i64] [i64, i64, i64]
    neutral 0, empty 0, lift |x| x, combine |a, b| a.wrapping_add(b), merge |a, b| a.wrapping_add(b));
lanes!(Prod: [f32, f64, f64] [f64, f64, f64]
    neutral 1.0, empty 1.0, lift |x| x, combine |a, b| a * b, merge |a, b| a * b);
lanes!(scalar Prod: [u8, u64, u64] [u16, u64, u64] [u32, u64, u64] [u64, u64, u64]
    [i8, i64, i64] [i16, i64, i64] [i32, i64, i64] [i64, i64, i64]
    neutral 1, empty 1, lift |x| x, combine |a, b| a.wrapping_mul(b), merge |a, b| a.wrapping_mul(b));
lanes!(SumAbs: [f32, f32, f64] [f64, f64, f64]
    neutral 0.0, empty 0.0, lift |x| x.abs(), combine |a, b| a + b, merge |a, b| a + b);
lanes!(SumSquare: [f32, f32, f64]
    neutral 0.0, empty 0.0, lift |x| x * x, combine |a, b| a + b, merge |a, b| a + b);
lanes!(scalar CountNonzero: [f32, u32, u64] [f64, u64, u64]
    neutral 0, empty 0, lift |x| u8::from(x != 0.0), combine |a, b| a + b, merge |a, b| a + b);

/// Implements [`LaneFold`] for the maximum or minimum of floats, which propagates NaN. Comparisons with NaN are false, so a
/// NaN stays in its lane; the NaN tests of four new elements are combined.
macro_rules! float_extreme {
    ($fold:ident $compare:tt $neutral:ident |$x:ident| $lift:expr; $([$in:ident, $lane:ident])*) => {$(
        impl LaneFold for $fold<$in> {
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
            fn combine(a: $lane, b: $lane) -> $lane {
                if b $compare a || b.is_nan() { b } else { a }
            }
            #[inline(always)]
            fn combine_four(lane: $lane, [a, b, c, d]: [$lane; 4]) -> $lane {
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
                Self::combine(a, b)
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
            lift |x| x, combine |a, b| a.max(b), merge |a, b| a.max(b));
        lanes!(Min: [$type, $type, $type] neutral $type::MAX, empty $type::MAX,
            lift |x| x, combine |a, b| a.min(b), merge |a, b| a.min(b));
    )*};
}
extremes!(u8, u16, u32, u64, i8, i16, i32, i64);

/// Whether any element is nonzero, by its bits; the sign of floats is shifted out because of -0.
pub(super) struct Any<T, const FLOAT: bool>(PhantomData<T>);
/// Whether all elements are nonzero; see [`Any`].
pub(super) struct All<T, const FLOAT: bool>(PhantomData<T>);

macro_rules! boolean {
    ($($type:ident),*) => {$(
        impl<const FLOAT: bool> LaneFold for Any<$type, FLOAT> {
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
            fn combine(a: $type, b: $type) -> $type {
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

        impl<const FLOAT: bool> LaneFold for All<$type, FLOAT> {
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
            fn combine(a: $type, b: $type) -> $type {
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
boolean!(u8, u16, u32, u64);
