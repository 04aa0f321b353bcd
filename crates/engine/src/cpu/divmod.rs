//! Floor division and modulo, as Python and NumPy define them.
//!
//! There are no vector instructions for remainders of floats, nor for any division of 64-bit integers. A quotient of
//! moderate size, however, can be found by a division of floats, and the remainder by an exact product. Elements are
//! processed in chunks that the compiler vectorises, by three algorithms, each a fallback of the previous one: `plain`
//! for finite floats with moderate quotients, `fast` for all floats whose quotient is not too large, and `slow`, element
//! by element. All give the same bits.

use std::marker::PhantomData;
use std::ops::BitOr;

use bytemuck::Pod;

use super::map::Args;
use super::simd::{self, Isa, MulAdd, Task};

/// Elements of a chunk.
const CHUNK_LEN: usize = 128;

/// An element type with floor division and modulo.
pub(super) trait Divide: Pod {
    /// The failure flag of [`Divide::plain`]: as wide as an element, so that the loop vectorises.
    type Flag: Copy + Default + PartialEq + BitOr<Output = Self::Flag>;

    /// Returns the quotient, the remainder, and a flag that is not 0 if they may be wrong.
    fn plain<I: Isa>(a: Self, b: Self) -> (Self, Self, Self::Flag);
    /// Returns the quotient, the remainder, and whether they may be wrong.
    fn fast<I: Isa>(a: Self, b: Self) -> (Self, Self, bool);
    /// Returns the quotient and the remainder.
    fn slow(a: Self, b: Self) -> (Self, Self);
}

/// The kernel of floor division or, if `REMAINDER`, of modulo.
pub(super) fn divmod<T: Divide, const REMAINDER: bool>(args: &Args<'_>, out: &mut [u8]) {
    simd::run(DivmodLoop::<T, REMAINDER>::new(args, out));
}

/// The loop of the kernel over a block.
struct DivmodLoop<'a, 'b, T, const REMAINDER: bool> {
    args: &'a Args<'b>,
    out: &'a mut [u8],
    element: PhantomData<T>,
}

impl<'a, 'b, T, const REMAINDER: bool> DivmodLoop<'a, 'b, T, REMAINDER> {
    fn new(args: &'a Args<'b>, out: &'a mut [u8]) -> Self {
        Self {
            args,
            out,
            element: PhantomData,
        }
    }
}

impl<T: Divide, const REMAINDER: bool> Task for DivmodLoop<'_, '_, T, REMAINDER> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let out: &mut [T] = bytemuck::cast_slice_mut(self.out);
        let a: &[T] = &bytemuck::cast_slice(self.args.a)[..out.len()];
        let b: &[T] = &bytemuck::cast_slice(self.args.b)[..out.len()];
        let chunks = a.chunks(CHUNK_LEN).zip(b.chunks(CHUNK_LEN));
        for (out, (a, b)) in out.chunks_mut(CHUNK_LEN).zip(chunks) {
            let mut failed = T::Flag::default();
            for ((y, &a), &b) in out.iter_mut().zip(a).zip(b) {
                let (quotient, remainder, flag) = T::plain::<I>(a, b);
                *y = if REMAINDER { remainder } else { quotient };
                failed = failed | flag;
            }
            if failed == T::Flag::default() {
                continue;
            }
            let mut uncertain = false;
            for ((y, &a), &b) in out.iter_mut().zip(a).zip(b) {
                let (quotient, remainder, hard) = T::fast::<I>(a, b);
                *y = if REMAINDER { remainder } else { quotient };
                uncertain |= hard;
            }
            if uncertain {
                for ((y, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    let (quotient, remainder) = T::slow(a, b);
                    *y = if REMAINDER { remainder } else { quotient };
                }
            }
        }
    }
}

macro_rules! float {
    ($T:ident, $bits:ident, |$a:ident, $b:ident, $I:ident| $remainder:expr) => {
        impl Divide for $T {
            type Flag = $bits;

            /// A rounded quotient that is not an integer lies between the same two integers as the exact one. If it is
            /// an integer, the sign of the remainder, which a fused multiply-add computes exactly, tells on which side
            /// of it the exact quotient lies. [`FinishDivision`] gives the same result: up to this limit, its own rounding
            /// errors are less than a half.
            #[inline(always)]
            fn plain<$I: Isa>($a: Self, $b: Self) -> (Self, Self, $bits) {
                const LIMIT: $T = (1_u64 << ($T::MANTISSA_DIGITS - 2)) as $T;
                // Flip the signs so that the divisor is positive: then the remainder has to be, too.
                let sign = $b.to_bits() & (1 << ($bits::BITS - 1));
                let flip = |x: Self| Self::from_bits(x.to_bits() ^ sign);
                let by = flip($b);
                let ratio = $a / $b;
                let floor = ratio.floor();
                let remainder = (-floor).mul_add_on::<$I>(by, flip($a));
                let over = remainder < 0.0;
                let quotient = floor - if over { 1.0 } else { 0.0 };
                let next = remainder + if over { by } else { 0.0 };
                // Division by infinity gives a NaN remainder here, which sets the flag.
                let correct = $I::FMA & (ratio.abs() < LIMIT) & (remainder < Self::INFINITY);
                (quotient, flip(next), $bits::from(!correct))
            }

            #[inline(always)]
            fn fast<$I: Isa>($a: Self, $b: Self) -> (Self, Self, bool) {
                let (remainder, hard) = $remainder;
                let finite = $a.abs() < Self::INFINITY;
                let divides = $b.abs() > 0.0;
                let remainder = if $b.abs() == Self::INFINITY {
                    $a
                } else {
                    remainder
                };
                let remainder = if finite & divides {
                    remainder
                } else {
                    Self::NAN
                };
                let (quotient, remainder) = Self::finish($a, $b, remainder.copysign($a));
                (quotient, remainder, hard & finite & divides)
            }

            #[inline(always)]
            fn slow(a: Self, b: Self) -> (Self, Self) {
                Self::finish(a, b, a % b)
            }
        }

        impl FinishDivision for $T {
            #[inline(always)]
            fn finish(a: Self, b: Self, remainder: Self) -> (Self, Self) {
                let exact = remainder == 0.0;
                let other_side = !exact & ((b < 0.0) != (remainder < 0.0));
                let quotient = (a - remainder) / b;
                let quotient = if other_side { quotient - 1.0 } else { quotient };
                let remainder = if other_side { remainder + b } else { remainder };
                let remainder = if exact {
                    (0.0 as Self).copysign(b)
                } else {
                    remainder
                };
                // The division may have rounded down past the integer.
                let floor = quotient.floor();
                let nearest = if quotient - floor > 0.5 {
                    floor + 1.0
                } else {
                    floor
                };
                let zero = (0.0 as Self).copysign(a / b);
                let quotient = if quotient == 0.0 { zero } else { nearest };
                (if b == 0.0 { a / b } else { quotient }, remainder)
            }
        }
    };
}

/// Computes both results from the truncated remainder, consistently: the remainder is exact and has the sign of `b`, and
/// the quotient is the integer nearest to `(a - remainder) / b`. Division by 0 gives `a / 0` and a NaN remainder.
trait FinishDivision: Sized {
    fn finish(a: Self, b: Self, remainder: Self) -> (Self, Self);
}

// In `f64`, a quotient of 29 bits times a divisor of 24 is exact. Rounding may have raised the quotient to the next
// integer, but never lowered it past one.
float!(f32, u32, |a, b, I| {
    let (x, y) = (f64::from(a.abs()), f64::from(b.abs()));
    let ratio = x / y;
    let remainder = x - ratio.floor() * y;
    let remainder = if remainder < 0.0 {
        remainder + y
    } else {
        remainder
    };
    (remainder as f32, !(I::FMA && ratio < 536_870_912.0))
});

// A fused multiply-add is exact if the result is representable, as the remainder is.
float!(f64, u64, |a, b, I| {
    let (x, y) = (a.abs(), b.abs());
    let ratio = x / y;
    let remainder = (-ratio.floor()).mul_add_on::<I>(y, x);
    let remainder = if remainder < 0.0 {
        remainder + y
    } else {
        remainder
    };
    (remainder, !(I::FMA && ratio < 4_503_599_627_370_496.0))
});

/// 1.5 · 2⁵²: a float this large plus an integer below 2⁵¹ has that integer in its low bits.
const INT_TO_FLOAT_MAGIC: f64 = 6_755_399_441_055_744.0;

macro_rules! int {
    ($T:ident, |$x:ident| $small:expr, |$a:ident, $b:ident| $slow:expr) => {
        impl Divide for $T {
            type Flag = u8;

            /// Always fails: integers use [`Divide::fast`].
            #[inline(always)]
            fn plain<I: Isa>(a: Self, _: Self) -> (Self, Self, u8) {
                (a, a, 1)
            }

            /// A quotient that is not an integer is at least `1 / b` away from one; rounding changes it by at most
            /// `2^-53 * a / b`, which is less.
            #[inline(always)]
            fn fast<I: Isa>(a: Self, b: Self) -> (Self, Self, bool) {
                let small = |$x: Self| $small;
                let float = |x: Self| {
                    f64::from_bits(INT_TO_FLOAT_MAGIC.to_bits().wrapping_add(x as u64))
                        - INT_TO_FLOAT_MAGIC
                };
                let quotient = (float(a) / float(b)).floor();
                let quotient = if b == 0 { 0.0 } else { quotient };
                let quotient = (quotient + INT_TO_FLOAT_MAGIC)
                    .to_bits()
                    .wrapping_sub(INT_TO_FLOAT_MAGIC.to_bits());
                let remainder = a.wrapping_sub((quotient as Self).wrapping_mul(b));
                let remainder = if b == 0 { 0 } else { remainder };
                (
                    quotient as Self,
                    remainder,
                    !(I::FMA && small(a) & small(b)),
                )
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
        // Rust truncates the quotient: it is one too large if it is inexact and negative.
        let (quotient, remainder) = (a.wrapping_div(b), a.wrapping_rem(b));
        let other_side = remainder != 0 && (remainder < 0) != (b < 0);
        (
            quotient.wrapping_sub(i64::from(other_side)),
            if other_side { remainder + b } else { remainder },
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
        let [quotients, remainder] = &mut out;
        let bytes = bytemuck::cast_slice_mut(quotients);
        simd::run_at(at, DivmodLoop::<T, false>::new(&args, bytes));
        let bytes = bytemuck::cast_slice_mut(remainder);
        simd::run_at(at, DivmodLoop::<T, true>::new(&args, bytes));
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
            let [quotients, remainder] = both(level, &a, &b);
            let [narrow_quotients, narrow_remainders] = both(level, &c, &d);
            for i in 0..a.len() {
                let (q, r) = f64::slow(a[i], b[i]);
                let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                assert!(
                    same(q, quotients[i]) && same(r, remainder[i]),
                    "{} {}",
                    a[i],
                    b[i]
                );
                let (q, r) = f32::slow(c[i], d[i]);
                let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                assert!(
                    same(q, narrow_quotients[i]) && same(r, narrow_remainders[i]),
                    "{} {}",
                    c[i],
                    d[i]
                );
            }
        }
    }

    #[test]
    fn plain_gives_the_same_bits_for_moderate_quotients_without_a_fallback() {
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
            let moderate = |&(a, b): &(f64, f64)| b as f32 != 0.0 && (a / b).abs() < 4e6;
            a.into_iter().zip(b).filter(moderate).unzip()
        };
        let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let (c, d) = (narrow(&a), narrow(&b));
        for level in levels() {
            let [quotients, remainder] = both(level, &a, &b);
            let [narrow_quotients, narrow_remainders] = both(level, &c, &d);
            for i in 0..a.len() {
                let (q, r) = f64::slow(a[i], b[i]);
                let found = [quotients[i], remainder[i]].map(f64::to_bits);
                assert_eq!(found, [q, r].map(f64::to_bits), "{} {}", a[i], b[i]);
                let (q, r) = f32::slow(c[i], d[i]);
                let found = [narrow_quotients[i], narrow_remainders[i]].map(f32::to_bits);
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
        // Chunks of small integers alone take the fast path.
        let (small, by) = pairs(&(-300..300).map(|i| i * 7_777_777_777).collect::<Vec<i64>>());
        for level in levels() {
            for (a, b) in [(&c, &d), (&small, &by)] {
                let [quotients, remainder] = both(level, a, b);
                for i in 0..a.len() {
                    let found = (quotients[i], remainder[i]);
                    assert_eq!(found, i64::slow(a[i], b[i]), "{} {}", a[i], b[i]);
                }
            }
            let [quotients, remainder] = both(level, &a, &b);
            for i in 0..a.len() {
                let found = (quotients[i], remainder[i]);
                assert_eq!(found, u64::slow(a[i], b[i]), "{} {}", a[i], b[i]);
            }
        }
    }
}
