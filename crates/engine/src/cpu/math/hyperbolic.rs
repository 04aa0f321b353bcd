//! Hyperbolic functions and their inverses.
//!
//! Near 0, where exponentials would cancel, odd polynomials; elsewhere the exponential, and the
//! logarithm of `1 + x` for the inverses.

use super::real::{MathFloat, poly};
use super::{Math, exp, log};
use crate::cpu::simd::{Isa, MulAdd};

/// The polynomials of one type.
pub(crate) trait HyperbolicTerms: exp::ExpTerms + log::LogTerms {
    /// `(sinh x - x) / x³` of x² for |x| ≤ 1.
    fn sinh_terms<I: Isa>(square: Self) -> Self;
    /// `(tanh x - x) / x³` of x² for |x| ≤ 0.625.
    fn tanh_terms<I: Isa>(square: Self) -> Self;
}

// Interpolated at Chebyshev nodes with 60 digits, then rounded. Relative errors of sinh and tanh:
// f32 2^-27.9 and 2^-27.8, f64 2^-56.8 and 2^-56.4.
impl HyperbolicTerms for f32 {
    #[inline(always)]
    fn sinh_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [0.16666667, 0.008333339, 0.00019838102, 2.8062802e-6,]
        )
    }
    #[inline(always)]
    fn tanh_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                -0.33333334,
                0.13333304,
                -0.053959258,
                0.021768918,
                -0.008343945,
                0.0022927448,
            ]
        )
    }
}
impl HyperbolicTerms for f64 {
    #[inline(always)]
    fn sinh_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                0.16666666666666666,
                0.008333333333333333,
                0.00019841269841269773,
                2.755731922404034e-6,
                2.505210836405804e-8,
                1.6059048396350562e-10,
                7.646625361656657e-13,
                2.8445264169895285e-15,
            ]
        )
    }
    #[inline(always)]
    fn tanh_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                -0.3333333333333333,
                0.13333333333333322,
                -0.0539682539682359,
                0.021869488535133222,
                -0.008863235499801992,
                0.003592127507599252,
                -0.0014558283998303246,
                0.0005899818158388232,
                -0.00023888944636751174,
                9.604109157026265e-5,
                -3.708106921544234e-5,
                1.2209921790162781e-5,
                -2.438831631472088e-6,
            ]
        )
    }
}

/// A quarter of `e^a` for a non-negative number: it is finite even if `e^a` overflows, and needs one scaling
/// step.
#[inline(always)]
fn quarter_exp<I: Isa, T: HyperbolicTerms>(a: T) -> T {
    exp::exp_above::<I, T>(a.at_most(T::RANGE.1), -2.0)
}

#[inline(always)]
pub(crate) fn sinh<I: Isa, T: HyperbolicTerms>(x: T) -> T {
    let a = x.magnitude();
    let z = a * a;
    let near = (a * z).mul_add_on::<I>(T::sinh_terms::<I>(z), a);
    let e = quarter_exp::<I, T>(a);
    let half = e - T::of(0.0625) / e;
    let far = half + half;
    (if a < T::of(1.0) { near } else { far }).with_sign_of(x)
}

#[inline(always)]
pub(crate) fn cosh<I: Isa, T: HyperbolicTerms>(x: T) -> T {
    let e = quarter_exp::<I, T>(x.magnitude());
    let half = e + T::of(0.0625) / e;
    half + half
}

#[inline(always)]
pub(crate) fn tanh<I: Isa, T: HyperbolicTerms>(x: T) -> T {
    let a = x.magnitude();
    let z = a * a;
    let near = (a * z).mul_add_on::<I>(T::tanh_terms::<I>(z), a);
    // At 20 the result is 1 in f64 too.
    let b = a.at_most(T::of(20.0));
    let e = exp::exp_above::<I, T>(b + b, -0.0);
    let far = T::of(1.0) - T::of(2.0) / (e + T::of(1.0));
    (if a < T::of(0.625) { near } else { far }).with_sign_of(x)
}

/// `log(1 + small)`, or `log(2·a)` if `a` is so large that its square may overflow.
#[inline(always)]
fn log_sum<I: Isa, T: HyperbolicTerms>(a: T, small: T) -> T {
    // 2⁶⁰: 1 is far below its last bit, and its square is finite in f64.
    let large = a > T::of(1_152_921_504_606_846_976.0);
    // A single selection: the optimiser would turn two into a branch around the whole logarithm.
    let (argument, shift) = if large {
        (a, T::of(std::f64::consts::LN_2))
    } else {
        (small, T::of(0.0))
    };
    log::log1p::<I, T>(argument) + shift
}

/// The inverse hyperbolic sine.
#[inline(always)]
pub(crate) fn asinh<I: Isa, T: Math>(x: T) -> T {
    x.asinh_on::<I>()
}

/// The inverse hyperbolic cosine.
#[inline(always)]
pub(crate) fn acosh<I: Isa, T: Math>(x: T) -> T {
    x.acosh_on::<I>()
}

/// The inverse hyperbolic tangent.
#[inline(always)]
pub(crate) fn atanh<I: Isa, T: Math>(x: T) -> T {
    x.atanh_on::<I>()
}

#[inline(always)]
pub(super) fn asinh_f64<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let z = a * a;
    let small = a + z / ((z + 1.0).sqrt() + 1.0);
    log_sum::<I, f64>(a, small).with_sign_of(x)
}

#[inline(always)]
pub(super) fn acosh_f64<I: Isa>(x: f64) -> f64 {
    let t = x - 1.0;
    let small = t + (t * t + (t + t)).sqrt();
    let result = log_sum::<I, f64>(x, small);
    if x < 1.0 { f64::NAN } else { result }
}

#[inline(always)]
pub(super) fn atanh_f64<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let result = log::log1p::<I, f64>((a + a) / (1.0 - a));
    (result * 0.5).with_sign_of(x)
}

/// The logarithm of a non-negative normal number, with as many terms as f32 needs: the relative error is
/// 2^-29.4.
#[inline(always)]
fn log_short<I: Isa>(y: f64) -> f64 {
    let (k, m) = y.decompose_normal();
    let f = m - 1.0;
    let terms = poly!(
        I,
        f,
        [
            -0.4999999994349637,
            0.333333227936071,
            -0.25000010940100675,
            0.2000144672220023,
            -0.16667536772428632,
            0.1423231785955222,
            -0.12420814467908906,
            0.1181213614232965,
            -0.11557287882015821,
            0.06769024113816001,
        ]
    );
    k.mul_add_on::<I>(std::f64::consts::LN_2, (f * f).mul_add_on::<I>(terms, f))
}

/// Below this, an inverse hyperbolic function equals its argument in f32; above it, `log` of a number close to 1
/// has enough digits in f64.
const SAME_F32: f64 = 1.0 / 1_048_576.0;

// In f64, squares of f32 are exact and cannot overflow, and the rounding of `1 + x` does not matter for f32.

#[inline(always)]
pub(super) fn asinh_f32<I: Isa>(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let log = log_short::<I>(a + a.mul_add_on::<I>(a, 1.0).sqrt());
    let is_identity = !((a > SAME_F32) & (a < f64::INFINITY));
    let result = if is_identity { a } else { log };
    (result as f32).copysign(x)
}

#[inline(always)]
pub(super) fn acosh_f32<I: Isa>(x: f32) -> f32 {
    let a = f64::from(x);
    let log = log_short::<I>(a + a.mul_add_on::<I>(a, -1.0).sqrt());
    let result = if a < f64::INFINITY { log } else { a };
    (if a < 1.0 { f64::NAN } else { result }) as f32
}

// `atanh` in `f32` is half of `k·ln 2 + 2·artanh s` with s = (t - 2^k·b) / (t + 2^k·b), t = 1 + a and b = 1 - a: one
// division, and a polynomial of five terms.

/// `(k, 2^k)` of the power of two nearest to a positive normal number, given its bits.
#[inline(always)]
fn nearest_power(bits: u32) -> (f32, f32) {
    const INTEGERS: f32 = 8_388_608.0; // 2²³
    const HALF: u32 = 0x3504f3; // the significand of √2
    let exponent = bits.wrapping_add((1 << 23) - HALF) >> 23;
    let k = f32::from_bits(exponent | INTEGERS.to_bits()) - (INTEGERS + 127.0);
    (k, f32::from_bits(exponent << 23))
}

/// `k·ln 2 + 2·artanh s`.
#[inline(always)]
fn double_artanh<I: Isa>(k: f32, s: f32) -> f32 {
    let z = s * s;
    // Interpolated at Chebyshev nodes with 50 digits; relative error 2^-30.3 up to 0.3.
    let terms = poly!(
        I,
        z,
        [0.6666667, 0.39999878, 0.28582042, 0.21898016, 0.22134062]
    );
    let tail = (s * z).mul_add_on::<I>(terms, k * f32::LN_2.1);
    k.mul_add_on::<I>(f32::LN_2.0, (s + s) + tail)
}

#[inline(always)]
pub(super) fn atanh_f32<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    // The logarithm of (1 + a) / (1 - a) is twice the result; both sums with their errors.
    let (numerator, numerator_low) = 1.0_f32.exact_sum(a);
    let (denominator, denominator_low) = 1.0_f32.exact_sum(-a);
    // The quotient of powers of two, from the difference of the bits, which approximate logarithms.
    let (k, power) = nearest_power(
        numerator
            .to_bits()
            .wrapping_sub(denominator.to_bits())
            .wrapping_add(127 << 23),
    );
    let (scaled, scaled_low) = (denominator * power, denominator_low * power);
    let s = ((numerator - scaled) + (numerator_low - scaled_low)) / (numerator + scaled);
    // Below 0.3, k·ln 2 would cancel most of the other term, and `s` has lost a digit.
    let (k, s) = if a < 0.3 { (0.0, a) } else { (k, s) };
    let half = double_artanh::<I>(k, s) * 0.5;
    let beyond = if a == 1.0 { f32::INFINITY } else { f32::NAN };
    (if a < 1.0 { half } else { beyond }).copysign(x)
}
