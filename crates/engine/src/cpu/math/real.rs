//! Constants and bit tricks of the floating-point types.
//!
//! Rounding adds and subtracts 1.5·2^(p-1) (p the significand's bits), which puts the integer into the low
//! bits: one addition instead of a saturating conversion, which would not vectorise.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::cpu::simd::{Isa, MulAdd};

/// `c0 + c1·x + c2·x² + …`, unrolled: Horner's rule or, with FMA, Horner's rule in x² over pairs `c0 + c1·x` (Estrin),
/// which halves the dependency chain, a large part of the time in a loop over vectors.
macro_rules! poly {
    ($isa:ident, $x:expr, [$c:expr, $d:expr]) => {
        $crate::cpu::simd::MulAdd::mul_add_on::<$isa>($x, $d, $c)
    };
    ($isa:ident, $x:expr, [$($c:expr),+ $(,)?]) => {{
        let x = $x;
        if $isa::FMA {
            let square = x * x;
            $crate::cpu::math::real::poly!(@pairs $isa, x, square, [$($c),+])
        } else {
            $crate::cpu::math::real::poly!(@horner $isa, x, [$($c),+])
        }
    }};
    (@horner $isa:ident, $x:ident, [$c:expr]) => { $c };
    (@horner $isa:ident, $x:ident, [$c:expr, $($rest:expr),+]) => {
        $crate::cpu::simd::MulAdd::mul_add_on::<$isa>(
            $x,
            $crate::cpu::math::real::poly!(@horner $isa, $x, [$($rest),+]),
            $c,
        )
    };
    (@pairs $isa:ident, $x:ident, $square:ident, [$c:expr]) => { $c };
    (@pairs $isa:ident, $x:ident, $square:ident, [$c:expr, $d:expr]) => {
        $crate::cpu::simd::MulAdd::mul_add_on::<$isa>($x, $d, $c)
    };
    (@pairs $isa:ident, $x:ident, $square:ident, [$c:expr, $d:expr, $($rest:expr),+]) => {
        $crate::cpu::simd::MulAdd::mul_add_on::<$isa>(
            $square,
            $crate::cpu::math::real::poly!(@pairs $isa, $x, $square, [$($rest),+]),
            $crate::cpu::math::real::poly!(@pairs $isa, $x, $square, [$c, $d]),
        )
    };
}
pub(super) use poly;

/// `f32` and `f64`.
pub(crate) trait MathFloat:
    MulAdd
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// All numbers are integers from here on.
    const INTEGERS: Self;
    /// ln 2 in two parts: the first times any exponent is exact.
    const LN_2: (Self, Self);
    /// log₁₀ 2, likewise.
    const LOG10_2: (Self, Self);
    /// log₂ e in two parts: the first has half of the significand's bits.
    const LOG2_E: (Self, Self);
    /// log₁₀ e, likewise.
    const LOG10_E: (Self, Self);
    /// π in two parts, each of full precision.
    const PI: (Self, Self);

    /// The nearest value; meant for constants, where the conversion is free.
    fn of(x: f64) -> Self;
    /// The nearest integer, ties to even, for magnitudes below 2^(p-2).
    fn nearest(self) -> Self;
    /// 2 to the power of this integer, for exponents of normal numbers; 0 for one below the smallest.
    fn power_of_two(self) -> Self;
    /// For a positive finite number, `(k, m)` with `self = 2^k·m` and √½ ≤ m < √2.
    fn decompose(self) -> (Self, Self);
    /// The same for a normal number.
    fn decompose_normal(self) -> (Self, Self);
    /// The number without the low half of its significand, so that its square is exact.
    fn upper_half(self) -> Self;
    /// Returns true if this integer is odd.
    fn is_odd(self) -> bool;
    /// The number, negated if bit 1 of the integer `n` is set.
    fn negate_by(self, n: Self) -> Self;
    /// The magnitude.
    fn magnitude(self) -> Self;
    /// The number with another's sign.
    fn with_sign_of(self, other: Self) -> Self;
    /// Returns true for NaN.
    fn is_unknown(self) -> bool;
    /// The square root.
    fn square_root(self) -> Self;

    /// The maximum, or `self` if it is NaN.
    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        if low > self { low } else { self }
    }
    /// The minimum, or `self` if it is NaN.
    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        if high < self { high } else { self }
    }
    /// The product and its rounding error, exact unless it underflows or overflows (Dekker's product without FMA).
    #[inline(always)]
    fn exact_product<I: Isa>(self, other: Self) -> (Self, Self) {
        let product = self * other;
        if I::FMA {
            return (product, self.mul_add_on::<I>(other, -product));
        }
        let (a, b) = (self.upper_half(), other.upper_half());
        let (c, d) = (self - a, other - b);
        (product, ((a * b - product) + a * d + c * b) + c * d)
    }
    /// The sum and its rounding error (Knuth's 2Sum).
    #[inline(always)]
    fn exact_sum(self, other: Self) -> (Self, Self) {
        let sum = self + other;
        let rounded = sum - self;
        (sum, (self - (sum - rounded)) + (other - rounded))
    }
}

/// Implements [`MathFloat`]: the type, its bits, its explicit significand bits, its exponent bias, and the
/// constants.
macro_rules! real {
    ($type:ident, $bits:ident, $digits:expr, $bias:expr, {$($constants:tt)*}) => {
        impl MathFloat for $type {
            const INTEGERS: Self = (1_u64 << $digits) as Self;
            $($constants)*

            #[inline(always)]
            fn nearest(self) -> Self {
                const MAGIC: $type = 1.5 * (1_u64 << $digits) as $type;
                (self + MAGIC) - MAGIC
            }
            #[inline(always)]
            fn power_of_two(self) -> Self {
                const MAGIC: $type = 1.5 * (1_u64 << $digits) as $type + $bias as $type;
                Self::from_bits((self + MAGIC).to_bits() << $digits)
            }
            #[inline(always)]
            fn decompose(self) -> (Self, Self) {
                let tiny = self < Self::MIN_POSITIVE;
                let (scale, bias) = if tiny {
                    (Self::INTEGERS, Self::INTEGERS + ($bias + $digits) as Self)
                } else {
                    (1.0, Self::INTEGERS + $bias as Self)
                };
                let (k, m) = (self * scale).split_exponent();
                (k - bias, m)
            }
            #[inline(always)]
            fn decompose_normal(self) -> (Self, Self) {
                let (k, m) = self.split_exponent();
                (k - (Self::INTEGERS + $bias as Self), m)
            }
            #[inline(always)]
            fn upper_half(self) -> Self {
                Self::from_bits(self.to_bits() & ($bits::MAX << ($digits / 2 + 1)))
            }
            #[inline(always)]
            fn is_odd(self) -> bool {
                const MAGIC: $type = 1.5 * (1_u64 << $digits) as $type;
                (self + MAGIC).to_bits() & 1 != 0
            }
            #[inline(always)]
            fn negate_by(self, n: Self) -> Self {
                const MAGIC: $type = 1.5 * (1_u64 << $digits) as $type;
                let sign = ((n + MAGIC).to_bits() & 2) << ($bits::BITS - 2);
                Self::from_bits(self.to_bits() ^ sign)
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn with_sign_of(self, other: Self) -> Self {
                self.copysign(other)
            }
            #[inline(always)]
            fn is_unknown(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn square_root(self) -> Self {
                self.sqrt()
            }
        }
    };
}

/// The shared step of the two ways to decompose a number.
trait SplitExponent: Sized {
    /// The exponent, plus its bias and [`MathFloat::INTEGERS`], and the significand of a normal number.
    fn split_exponent(self) -> (Self, Self);
}

/// Implements [`SplitExponent`]: the type, its bits, its explicit significand bits, its exponent bias, and √½.
macro_rules! split_exponent {
    ($type:ident, $bits:ident, $digits:expr, $bias:expr, $root:expr) => {
        impl SplitExponent for $type {
            #[inline(always)]
            fn split_exponent(self) -> (Self, Self) {
                const ROOT: $bits = $root;
                const ONE: $bits = $bias << $digits;
                let shifted = self.to_bits().wrapping_add(ONE - ROOT);
                // The significand of 2^digits + n is n, for an integer n below 2^digits.
                let exponent = (shifted >> $digits) | Self::INTEGERS.to_bits();
                let fraction = (shifted & ((1 << $digits) - 1)) + ROOT;
                (Self::from_bits(exponent), Self::from_bits(fraction))
            }
        }
    };
}
split_exponent!(f32, u32, 23, 127, 0x3f35_04f3);
split_exponent!(f64, u64, 52, 1023, 0x3fe6_a09e_667f_3bcd);

real!(f32, u32, 23, 127, {
    const LN_2: (Self, Self) = (0.69314575, 1.4286068e-6);
    const LOG10_2: (Self, Self) = (0.3010254, 4.605039e-6);
    const LOG2_E: (Self, Self) = (1.4423828, 0.0003122284);
    const LOG10_E: (Self, Self) = (0.4342041, 9.038034e-5);
    const PI: (Self, Self) = (std::f32::consts::PI, -8.742278e-8);
    #[inline(always)]
    fn of(x: f64) -> Self {
        x as Self
    }
});
real!(f64, u64, 52, 1023, {
    const LN_2: (Self, Self) = (0.693147180559663, 2.8235290563031577e-13);
    const LOG10_2: (Self, Self) = (0.30102999566383914, 1.42050232272661e-13);
    const LOG2_E: (Self, Self) = (1.4426950216293335, 1.9259629911266175e-8);
    const LOG10_E: (Self, Self) = (0.4342944771051407, 4.798111141615973e-9);
    const PI: (Self, Self) = (std::f64::consts::PI, 1.2246467991473532e-16);
    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }
});
