//! Division that rounds down and what it leaves, as Python and NumPy have them.
//!
//! There are no vector instructions for remainders of floats, nor for any division of 64-bit integers. A
//! quotient of moderate size is found by a division of floats, though, and what it leaves by a product that
//! is exact. Elements are taken in chunks that the compiler vectorises, in three ways, each for what the one
//! before cannot: floats of the usual sort, floats of any sort with a quotient that is not too large, and one
//! by one. All give the same bits.

use std::marker::PhantomData;
use std::ops::BitOr;

use bytemuck::Pod;

use super::map::Args;
use super::simd::{self, Isa, MulAdd, Task};

/// Elements of a chunk.
const CHUNK: usize = 128;

/// A number that is divided.
pub(super) trait Divide: Pod {
    /// What [`Divide::plain`] says of an element: as wide as that, so that a loop stays one of vectors.
    type Flag: Copy + Default + PartialEq + BitOr<Output = Self::Flag>;

    /// The quotient and what is left of usual numbers, and a flag that is not 0 where these are not.
    fn plain<I: Isa>(a: Self, b: Self) -> (Self, Self, Self::Flag);
    /// The quotient, what is left, and whether both are uncertain.
    fn fast<I: Isa>(a: Self, b: Self) -> (Self, Self, bool);
    /// The quotient and what is left.
    fn slow(a: Self, b: Self) -> (Self, Self);
}

/// The kernel of the quotient, or of what is left.
pub(super) fn divmod<T: Divide, const LEFT: bool>(args: &Args<'_>, out: &mut [u8]) {
    simd::run(Loop::<T, LEFT>(args, out, PhantomData));
}

struct Loop<'a, 'b, T, const LEFT: bool>(&'a Args<'b>, &'a mut [u8], PhantomData<T>);

impl<T: Divide, const LEFT: bool> Task for Loop<'_, '_, T, LEFT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [T] = bytemuck::cast_slice_mut(self.1);
        let a: &[T] = &bytemuck::cast_slice(self.0.a)[..out.len()];
        let b: &[T] = &bytemuck::cast_slice(self.0.b)[..out.len()];
        let chunks = a.chunks(CHUNK).zip(b.chunks(CHUNK));
        for (out, (a, b)) in out.chunks_mut(CHUNK).zip(chunks) {
            let mut unusual = T::Flag::default();
            for ((y, &a), &b) in out.iter_mut().zip(a).zip(b) {
                let (quotient, left, flag) = T::plain::<I>(a, b);
                *y = if LEFT { left } else { quotient };
                unusual = unusual | flag;
            }
            if unusual == T::Flag::default() {
                continue;
            }
            let mut uncertain = false;
            for ((y, &a), &b) in out.iter_mut().zip(a).zip(b) {
                let (quotient, left, hard) = T::fast::<I>(a, b);
                *y = if LEFT { left } else { quotient };
                uncertain |= hard;
            }
            if uncertain {
                for ((y, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    let (quotient, left) = T::slow(a, b);
                    *y = if LEFT { left } else { quotient };
                }
            }
        }
    }
}

macro_rules! float {
    ($T:ident, $bits:ident, |$a:ident, $b:ident, $I:ident| $left:expr) => {
        impl Divide for $T {
            type Flag = $bits;

            /// A quotient that rounding has not made an integer lies between the same two as the exact one.
            /// Of one that is an integer, the sign of what is left, which the fused product and sum has
            /// exactly, says on which side of it the exact one lies. [`Finish`] finds the same: up to this
            /// limit its own roundings are less than a half.
            #[inline(always)]
            fn plain<$I: Isa>($a: Self, $b: Self) -> (Self, Self, $bits) {
                const LIMIT: $T = (1_u64 << ($T::MANTISSA_DIGITS - 2)) as $T;
                // As if the divisor were positive: then what is left has to be, too.
                let sign = $b.to_bits() & (1 << ($bits::BITS - 1));
                let turn = |x: Self| Self::from_bits(x.to_bits() ^ sign);
                let by = turn($b);
                let ratio = $a / $b;
                let floor = ratio.floor();
                let left = (-floor).mul_add_on::<$I>(by, turn($a));
                let over = left < 0.0;
                let quotient = floor - if over { 1.0 } else { 0.0 };
                let next = left + if over { by } else { 0.0 };
                // By an infinity NaN is left here.
                let usual = $I::FMA & (ratio.abs() < LIMIT) & (left < Self::INFINITY);
                (quotient, turn(next), $bits::from(!usual))
            }

            #[inline(always)]
            fn fast<$I: Isa>($a: Self, $b: Self) -> (Self, Self, bool) {
                let (left, hard) = $left;
                let finite = $a.abs() < Self::INFINITY;
                let divides = $b.abs() > 0.0;
                let left = if $b.abs() == Self::INFINITY { $a } else { left };
                let left = if finite & divides { left } else { Self::NAN };
                let (quotient, left) = Self::finish($a, $b, left.copysign($a));
                (quotient, left, hard & finite & divides)
            }

            #[inline(always)]
            fn slow(a: Self, b: Self) -> (Self, Self) {
                Self::finish(a, b, a % b)
            }
        }

        impl Finish for $T {
            #[inline(always)]
            fn finish(a: Self, b: Self, left: Self) -> (Self, Self) {
                let exact = left == 0.0;
                let other_side = !exact & ((b < 0.0) != (left < 0.0));
                let quotient = (a - left) / b;
                let quotient = if other_side { quotient - 1.0 } else { quotient };
                let left = if other_side { left + b } else { left };
                let left = if exact {
                    (0.0 as Self).copysign(b)
                } else {
                    left
                };
                // Dividing may have rounded down past the integer.
                let floor = quotient.floor();
                let nearest = if quotient - floor > 0.5 {
                    floor + 1.0
                } else {
                    floor
                };
                let zero = (0.0 as Self).copysign(a / b);
                let quotient = if quotient == 0.0 { zero } else { nearest };
                (if b == 0.0 { a / b } else { quotient }, left)
            }
        }
    };
}

/// From what is left towards zero to both results, consistent with each other: what is left is exact and
/// has the sign of `b`, and the quotient is the integer next to `(a - left) / b`. By 0: `a / 0`, and NaN is
/// left.
trait Finish: Sized {
    fn finish(a: Self, b: Self, left: Self) -> (Self, Self);
}

// In `f64`, a quotient of 29 bits times a divisor of 24 is exact. Rounding may have taken the quotient up
// to the next integer, never down past one.
float!(f32, u32, |a, b, I| {
    let (x, y) = (f64::from(a.abs()), f64::from(b.abs()));
    let ratio = x / y;
    let left = x - ratio.floor() * y;
    let left = if left < 0.0 { left + y } else { left };
    (left as f32, !(I::FMA && ratio < 536_870_912.0))
});

// A fused product and sum is exact where the result has few enough bits, which what is left has.
float!(f64, u64, |a, b, I| {
    let (x, y) = (a.abs(), b.abs());
    let ratio = x / y;
    let left = (-ratio.floor()).mul_add_on::<I>(y, x);
    let left = if left < 0.0 { left + y } else { left };
    (left, !(I::FMA && ratio < 4_503_599_627_370_496.0))
});

/// 1.5 · 2⁵²: a float this large plus an integer below 2⁵¹ has that integer in its low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

macro_rules! int {
    ($T:ident, |$x:ident| $small:expr, |$a:ident, $b:ident| $slow:expr) => {
        impl Divide for $T {
            type Flag = u8;

            /// Integers of all sorts go the second way.
            #[inline(always)]
            fn plain<I: Isa>(a: Self, _: Self) -> (Self, Self, u8) {
                (a, a, 1)
            }

            /// A quotient that is not an integer is at least `1 / b` away from one; rounding moves it by at
            /// most `2^-53 * a / b`, which is less.
            #[inline(always)]
            fn fast<I: Isa>(a: Self, b: Self) -> (Self, Self, bool) {
                let small = |$x: Self| $small;
                let float =
                    |x: Self| f64::from_bits(MAGIC.to_bits().wrapping_add(x as u64)) - MAGIC;
                let quotient = (float(a) / float(b)).floor();
                let quotient = if b == 0 { 0.0 } else { quotient };
                let quotient = (quotient + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits());
                let left = a.wrapping_sub((quotient as Self).wrapping_mul(b));
                let left = if b == 0 { 0 } else { left };
                (quotient as Self, left, !(I::FMA && small(a) & small(b)))
            }

            #[inline(always)]
            fn slow($a: Self, $b: Self) -> (Self, Self) {
                if $b == 0 {
                    return (0, 0);
                }
                $slow
            }
        }
    };
}

int!(u64, |x| x < 1 << 51, |a, b| (a / b, a % b));
int!(
    i64,
    |x| (x.wrapping_add(1 << 51) as u64) < 1 << 52,
    |a, b| {
        // Rust's quotient is rounded towards 0: one too many where it is inexact and negative.
        let (quotient, left) = (a.wrapping_div(b), a.wrapping_rem(b));
        let other_side = left != 0 && (left < 0) != (b < 0);
        (
            quotient.wrapping_sub(i64::from(other_side)),
            if other_side { left + b } else { left },
        )
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::testing::levels;
    use crate::simd::Level;

    fn both<T: Divide>(at: Level, a: &[T], b: &[T]) -> [Vec<T>; 2] {
        let args = Args {
            a: bytemuck::cast_slice(a),
            b: bytemuck::cast_slice(b),
            ..Args::default()
        };
        let mut out = [a.to_vec(), a.to_vec()];
        let [quotients, left] = &mut out;
        let bytes = bytemuck::cast_slice_mut(quotients);
        simd::run_at(at, Loop::<T, false>(&args, bytes, PhantomData));
        let bytes = bytemuck::cast_slice_mut(left);
        simd::run_at(at, Loop::<T, true>(&args, bytes, PhantomData));
        out
    }

    fn pairs<T: Copy>(of: &[T]) -> (Vec<T>, Vec<T>) {
        of.iter()
            .flat_map(|&a| of.iter().map(move |&b| (a, b)))
            .unzip()
    }

    fn some_bits() -> impl Iterator<Item = u64> {
        let mut state = 1_u64;
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state ^ (state >> 29)
        })
    }

    #[test]
    fn fast_and_slow_give_the_same_bits_of_floats() {
        let mut numbers = vec![
            0.0,
            1.0,
            2.0,
            3.0,
            0.1,
            0.3,
            7.0,
            1e30,
            1e-30,
            1e-45,
            5e-324,
            1e300,
            1e-310,
            f64::INFINITY,
            f64::NAN,
            f64::MAX,
            536_870_911.0,
            536_870_912.0,
            4_503_599_627_370_495.5,
        ];
        numbers.extend(some_bits().take(150).map(|x| (x >> 40) as f64 / 4096.0));
        numbers.extend(some_bits().take(100).map(f64::from_bits));
        numbers.extend(numbers.clone().iter().map(|x| -x));
        let (a, b) = pairs(&numbers);
        let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let (c, d) = (narrow(&a), narrow(&b));
        for level in levels() {
            let [quotients, left] = both(level, &a, &b);
            let [short, short_left] = both(level, &c, &d);
            for i in 0..a.len() {
                let (q, r) = f64::slow(a[i], b[i]);
                let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                assert!(
                    same(q, quotients[i]) && same(r, left[i]),
                    "{} {}",
                    a[i],
                    b[i]
                );
                let (q, r) = f32::slow(c[i], d[i]);
                let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                assert!(
                    same(q, short[i]) && same(r, short_left[i]),
                    "{} {}",
                    c[i],
                    d[i]
                );
            }
        }
    }

    #[test]
    fn usual_floats_give_the_same_bits_without_a_second_way() {
        let mut numbers = vec![
            0.0, 1.0, 2.0, 3.0, 0.1, 0.3, 0.7, 7.0, 1e-3, 1e-45, 3e-45, 1e-40,
        ];
        numbers.extend((0..150).map(|i| f64::from(i) * 0.1));
        numbers.extend(some_bits().take(150).map(|x| (x >> 48) as f64 / 64.0));
        // Next to multiples of each other, where a quotient is rounded to an integer.
        numbers.extend((1..100).map(|i| f64::from(f32::from_bits((i as f32 * 0.3).to_bits() - 1))));
        numbers.extend(numbers.clone().iter().map(|x| -x));
        let (a, b): (Vec<f64>, Vec<f64>) = {
            let (a, b) = pairs(&numbers);
            let usual = |&(a, b): &(f64, f64)| b as f32 != 0.0 && (a / b).abs() < 4e6;
            a.into_iter().zip(b).filter(usual).unzip()
        };
        let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let (c, d) = (narrow(&a), narrow(&b));
        for level in levels() {
            let [quotients, left] = both(level, &a, &b);
            let [short, short_left] = both(level, &c, &d);
            for i in 0..a.len() {
                let (q, r) = f64::slow(a[i], b[i]);
                let found = [quotients[i], left[i]].map(f64::to_bits);
                assert_eq!(found, [q, r].map(f64::to_bits), "{} {}", a[i], b[i]);
                let (q, r) = f32::slow(c[i], d[i]);
                let found = [short[i], short_left[i]].map(f32::to_bits);
                assert_eq!(found, [q, r].map(f32::to_bits), "{} {}", c[i], d[i]);
            }
        }
        struct Flags<'a>(&'a [f32], &'a [f32]);
        impl Task for Flags<'_> {
            type Output = bool;
            #[inline(always)]
            fn run<I: Isa>(self) -> bool {
                let mut pairs = self.0.iter().zip(self.1);
                !I::FMA || pairs.all(|(&a, &b)| f32::plain::<I>(a, b).2 == 0)
            }
        }
        for level in levels() {
            assert!(simd::run_at(level, Flags(&c, &d)), "{level:?}");
        }
    }

    #[test]
    fn fast_and_slow_give_the_same_integers() {
        let mut numbers: Vec<u64> = (0..64).flat_map(|i| [1 << i, (1 << i) - 1]).collect();
        numbers.extend(some_bits().zip(0..200).map(|(x, i)| x >> (i % 64)));
        numbers.extend(numbers.clone().iter().map(|x| x.wrapping_neg()));
        let (a, b) = pairs(&numbers);
        let signed = |x: &[u64]| x.iter().map(|&x| x as i64).collect::<Vec<_>>();
        let (c, d) = (signed(&a), signed(&b));
        // In chunks of their own, small ones take the fast way.
        let (small, by) = pairs(&(-300..300).map(|i| i * 7_777_777_777).collect::<Vec<i64>>());
        for level in levels() {
            for (a, b) in [(&c, &d), (&small, &by)] {
                let [quotients, left] = both(level, a, b);
                for i in 0..a.len() {
                    let found = (quotients[i], left[i]);
                    assert_eq!(found, i64::slow(a[i], b[i]), "{} {}", a[i], b[i]);
                }
            }
            let [quotients, left] = both(level, &a, &b);
            for i in 0..a.len() {
                let found = (quotients[i], left[i]);
                assert_eq!(found, u64::slow(a[i], b[i]), "{} {}", a[i], b[i]);
            }
        }
    }
}
