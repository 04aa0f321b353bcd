//! Sine, cosine and tangent.
//!
//! x = n·π/2 + r, |r| ≤ π/4, and one polynomial each for sin r and cos r. The reduction is exact enough
//! up to [`MAX_NEAR_ANGLE`]; beyond that it would need hundreds of digits of π, for arguments that hardly occur.
//! Loops therefore test blocks with [`any_far`] and call `…_near`, which vectorises, if no element is far.
//! The result of an element never depends on the others: near elements of a far block get the same bits.

use super::Math;
use super::real::{MathFloat, poly};
use crate::cpu::simd::{Isa, MulAdd};

/// Maximum magnitude for the near functions: n stays below 2²⁰, so that its product with 33 bits of π/2
/// is exact.
pub(crate) const MAX_NEAR_ANGLE: f64 = 1_048_576.0;

/// π/2 in four parts, 33 bits each but the last.
const HALF_PI: [f64; 4] = [
    1.5707963267341256,
    6.077100506303966e-11,
    2.0222662487111665e-21,
    8.4784276603689e-32,
];

/// The reduction and the polynomials of one type.
pub(crate) trait TrigTerms: MathFloat {
    /// `(n, r, low)` with `self = n·π/2 + r + low`, for a non-negative number.
    fn reduce<I: Isa>(self) -> (Self, Self, Self);
    /// `(sin r - r) / r³` of r².
    fn sin_terms<I: Isa>(square: Self) -> Self;
    /// `(cos r - 1 + r²/2) / r⁴` of r².
    fn cos_terms<I: Isa>(square: Self) -> Self;
    /// The sine of a number up to [`MAX_NEAR_ANGLE`].
    #[inline(always)]
    fn sin_near<I: Isa>(self) -> Self {
        sin_near::<I, Self>(self)
    }
    /// The cosine of a number up to [`MAX_NEAR_ANGLE`].
    #[inline(always)]
    fn cos_near<I: Isa>(self) -> Self {
        cos_near::<I, Self>(self)
    }
}

// Interpolated at Chebyshev nodes with 60 digits, then rounded. Relative errors of sine and cosine:
// f32 2^-28.1 and 2^-30.1, f64 2^-57.1 and 2^-59.5.
impl TrigTerms for f32 {
    /// In f64: no f32 up to [`MAX_NEAR_ANGLE`] is nearer to a multiple of π/2 than about 2⁻²⁸, and two
    /// parts of it are accurate to 2⁻⁶⁶.
    #[inline(always)]
    fn reduce<I: Isa>(self) -> (Self, Self, Self) {
        let x = f64::from(self);
        let n = (x * std::f64::consts::FRAC_2_PI).nearest();
        let r = (-n).mul_add_on::<I>(HALF_PI[0], x);
        let r = (-n).mul_add_on::<I>(HALF_PI[1], r);
        (n as Self, r as Self, 0.0)
    }
    #[inline(always)]
    fn sin_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [-0.16666667, 0.008333332, -0.00019840083, 2.7249314e-6,]
        )
    }
    #[inline(always)]
    fn cos_terms<I: Isa>(square: Self) -> Self {
        poly!(I, square, [0.041666664, -0.00138883, 2.4547437e-5,])
    }
    #[inline(always)]
    fn sin_near<I: Isa>(self) -> Self {
        if I::FMA {
            sin_quarters::<I>(self.abs(), 0, self.to_bits() & SIGN)
        } else {
            sin_near::<I, Self>(self)
        }
    }
    #[inline(always)]
    fn cos_near<I: Isa>(self) -> Self {
        if I::FMA {
            sin_quarters::<I>(self.abs(), 1, 0)
        } else {
            cos_near::<I, Self>(self)
        }
    }
}

/// The sign bit.
const SIGN: u32 = 1 << 31;

/// π/2 in three parts, each of full precision.
const HALF_PI_F32: [f32; 3] = [1.5707964, -4.371139e-8, -1.7151245e-15];

/// The sine of `x + quarters·π/2` for a non-negative `x`, with the sign bit flipped by `sign`.
///
/// The reduction stays in f32, with FMA and π/2 in three parts. n times the first part is a multiple of 2⁻²³ close
/// to x, so the difference is exact. The second difference has the relative error of one rounding; the third part
/// matters for numbers close to a multiple of π/2, where that difference is small: at least 2⁻²⁸, while the error of
/// n times the three parts is 2⁻⁵⁶.
#[inline(always)]
fn sin_quarters<I: Isa>(x: f32, quarters: u32, sign: u32) -> f32 {
    // Adding it puts an integer into the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let shifted = x.mul_add_on::<I>(std::f32::consts::FRAC_2_PI, MAGIC);
    let n = shifted - MAGIC;
    let r = (-n).mul_add_on::<I>(HALF_PI_F32[0], x);
    let r = (-n).mul_add_on::<I>(HALF_PI_F32[1], r);
    let r = (-n).mul_add_on::<I>(HALF_PI_F32[2], r);
    let z = r * r;
    let sin = (r * z).mul_add_on::<I>(f32::sin_terms::<I>(z), r);
    let cos = z.mul_add_on::<I>(z.mul_add_on::<I>(f32::cos_terms::<I>(z), -0.5), 1.0);
    let quadrant = shifted.to_bits().wrapping_add(quarters);
    let result = if quadrant & 1 != 0 { cos } else { sin };
    f32::from_bits(result.to_bits() ^ ((quadrant & 2) << 30) ^ sign)
}
impl TrigTerms for f64 {
    /// The first difference and all products but the last are exact; sums keep their errors. The omitted
    /// terms are below 2⁻¹³⁰, and no f64 up to [`MAX_NEAR_ANGLE`] is nearer to a multiple of π/2 than 2⁻⁶⁰.
    #[inline(always)]
    fn reduce<I: Isa>(self) -> (Self, Self, Self) {
        let n = (self * std::f64::consts::FRAC_2_PI).nearest();
        let (r, e1) = (self - n * HALF_PI[0]).exact_sum(-n * HALF_PI[1]);
        let (r, e2) = r.exact_sum(-n * HALF_PI[2]);
        let low = (-n).mul_add_on::<I>(HALF_PI[3], e1 + e2);
        let sum = r + low;
        (n, sum, (r - sum) + low)
    }
    #[inline(always)]
    fn sin_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                -0.16666666666666666,
                0.008333333333333331,
                -0.00019841269841265017,
                2.755731921930192e-6,
                -2.5052106219521895e-8,
                1.6058529572267877e-10,
                -7.586576588171073e-13,
            ]
        )
    }
    #[inline(always)]
    fn cos_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                0.041666666666666664,
                -0.0013888888888887382,
                2.480158729874307e-5,
                -2.7557317260008837e-7,
                2.0876143827993133e-9,
                -1.1382456778061306e-11,
            ]
        )
    }
}

#[inline(always)]
fn sin_reduced<I: Isa, T: TrigTerms>(r: T, low: T) -> T {
    let z = r * r;
    let slope = T::of(1.0) - z * T::of(0.5);
    r + (r * z).mul_add_on::<I>(T::sin_terms::<I>(z), low * slope)
}

#[inline(always)]
fn cos_reduced<I: Isa, T: TrigTerms>(r: T, low: T) -> T {
    let z = r * r;
    let half = z * T::of(0.5);
    let head = T::of(1.0) - half;
    let rest = (z * z).mul_add_on::<I>(T::cos_terms::<I>(z), -(r * low));
    head + (((T::of(1.0) - head) - half) + rest)
}

#[inline(always)]
pub(crate) fn sin_near<I: Isa, T: TrigTerms>(x: T) -> T {
    let (n, r, low) = x.magnitude().reduce::<I>();
    let (sin, cos) = (sin_reduced::<I, T>(r, low), cos_reduced::<I, T>(r, low));
    let result = if n.is_odd() { cos } else { sin };
    // Multiplies the sign of x with that of the quadrant; -0 stays -0.
    let sign = T::of(1.0).with_sign_of(x);
    result.negate_by(n) * sign
}

#[inline(always)]
pub(crate) fn cos_near<I: Isa, T: TrigTerms>(x: T) -> T {
    let (n, r, low) = x.magnitude().reduce::<I>();
    let (sin, cos) = (sin_reduced::<I, T>(r, low), cos_reduced::<I, T>(r, low));
    let result = if n.is_odd() { sin } else { cos };
    result.negate_by(n + T::of(1.0))
}

/// The tangent of an `f32`: the argument is reduced to two parts, the polynomial is the tangent's own, and in odd
/// quadrants the result is the negative reciprocal with its rounding errors corrected.
#[inline(always)]
pub(crate) fn tan_near_f32<I: Isa>(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5·2²³
    let shifted = if I::FMA {
        x.mul_add_on::<I>(std::f32::consts::FRAC_2_PI, MAGIC)
    } else {
        (f64::from(x) * std::f64::consts::FRAC_2_PI).nearest() as f32 + MAGIC
    };
    let n = shifted - MAGIC;
    let (first, first_low) = n.exact_product::<I>(HALF_PI_F32[0]);
    let (second, second_low) = n.exact_product::<I>(HALF_PI_F32[1]);
    // The first difference is exact; next to a multiple of π/2 the second may cancel most of it.
    let (r, low) = ((x - first) - first_low).exact_sum(-second);
    let low = (-n).mul_add_on::<I>(HALF_PI_F32[2], low - second_low);

    // Interpolated at Chebyshev nodes with 50 digits; relative error of the tangent 2^-26.8 up to 0.818: for large
    // arguments n, a product of rounded numbers, has an error of up to 0.52.
    let z = r * r;
    let terms = poly!(
        I,
        z,
        [
            0.33333334,
            0.13333149,
            0.054011736,
            0.021491008,
            0.010398982,
            0.00051692483,
            0.004223198,
        ]
    );
    // tan' = 1 + tan² ≈ 1 + z near 0, and 2 at π/4, where 1 + z·(1 + z) is 2.0.
    let slope = z.mul_add_on::<I>(z, z);
    let rest = (r * z).mul_add_on::<I>(terms, low.mul_add_on::<I>(slope, low));
    let tan = r + rest;
    let tan_low = (r - tan) + rest;

    let inverse = -1.0 / tan;
    let (product, product_low) = inverse.exact_product::<I>(tan);
    let error = (product + 1.0) + inverse.mul_add_on::<I>(tan_low, product_low);
    let cotangent = inverse.mul_add_on::<I>(error, inverse);
    let odd = shifted.to_bits() & 1 != 0;
    let result = if odd { cotangent } else { tan };
    // Keeps -0, which the sum above turns into 0, and the last bit of subnormal numbers.
    if x.abs() < 1e-4 {
        (x * x * x).mul_add_on::<I>(0.333_333_34, x)
    } else {
        result
    }
}

#[inline(always)]
pub(crate) fn tan_near<I: Isa, T: TrigTerms>(x: T) -> T {
    let (n, r, low) = x.magnitude().reduce::<I>();
    let (sin, cos) = (sin_reduced::<I, T>(r, low), cos_reduced::<I, T>(r, low));
    let odd = n.is_odd();
    let result = (if odd { -cos } else { sin }) / (if odd { sin } else { cos });
    result * T::of(1.0).with_sign_of(x)
}

/// Returns true if any number is too large for the near functions (infinities are, NaN is not).
#[inline(always)]
pub(crate) fn any_far<T: Math>(values: &[T]) -> bool {
    let mut far = false;
    for x in values {
        far |= x.is_far();
    }
    far
}

/// Elements per call of [`any_far`].
const CHECK_LEN: usize = 256;

/// A function with a fast version for near numbers.
///
/// A trait, because its functions are always inlined; closures are inlined at the optimiser's discretion, and
/// otherwise compiled without the instruction set.
trait TrigFunction {
    fn near<I: Isa, T: Math>(x: T) -> T;
    fn any<I: Isa, T: Math>(x: T) -> T;
}

#[inline(always)]
fn map<I: Isa, T: Math, F: TrigFunction>(source: &[T], target: &mut [T]) {
    for (source, target) in source.chunks(CHECK_LEN).zip(target.chunks_mut(CHECK_LEN)) {
        if any_far(source) {
            for (x, y) in source.iter().zip(target) {
                *y = F::any::<I, T>(*x);
            }
        } else {
            for (x, y) in source.iter().zip(target) {
                *y = F::near::<I, T>(*x);
            }
        }
    }
}

macro_rules! function {
    ($(#[$doc:meta])* $name:ident, $marker:ident, $near:ident, $any:ident) => {
        struct $marker;
        impl TrigFunction for $marker {
            #[inline(always)]
            fn near<I: Isa, T: Math>(x: T) -> T {
                x.$near::<I>()
            }
            #[inline(always)]
            fn any<I: Isa, T: Math>(x: T) -> T {
                x.$any::<I>()
            }
        }
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name<I: Isa, T: Math>(source: &[T], target: &mut [T]) {
            map::<I, T, $marker>(source, target);
        }
    };
}
function!(
    /// The sine of every element.
    sin, Sine, sin_near, sin_on
);
function!(
    /// The cosine of every element.
    cos, Cosine, cos_near, cos_on
);
function!(
    /// The tangent of every element.
    tan, Tangent, tan_near, tan_on
);
