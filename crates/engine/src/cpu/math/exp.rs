//! Exponentials: `e^x`, `2^x`, `e^x - 1`.
//!
//! x = n·ln 2 + r with |r| ≤ ½ ln 2 (Cody and Waite: ln 2 in two parts, the first of which has few
//! enough bits for its product with n to be exact even without FMA), a polynomial in r, and a
//! scaling by 2^n in two steps, so that subnormal results are rounded once.

use super::real::{MathFloat, poly};
use crate::cpu::simd::Isa;

/// The polynomials and ranges of one type.
pub(crate) trait ExpTerms: MathFloat {
    /// The result is 0 or infinity outside this range, with a margin that lets `sinh` double it and
    /// activations multiply it by a thousand first.
    const RANGE: (Self, Self);
    /// `expm1` is -1 or infinity outside this range; 2^(n-1) must be finite at the upper end.
    const RANGE_LESS_ONE: (Self, Self);
    /// `exp2` is 0 or infinity outside this range.
    const RANGE_BASE_TWO: (Self, Self);
    /// `(e^r - 1 - r) / r²` for |r| ≤ ½ ln 2.
    fn exp_terms<I: Isa>(r: Self) -> Self;
    /// `(2^r - 1) / r` for |r| ≤ ½.
    fn exp2_terms<I: Isa>(r: Self) -> Self;
}

// Interpolated at Chebyshev nodes with 60 digits, then rounded. Relative errors of the exponential they
// give: f32 2^-30.3 and 2^-28.7, f64 2^-61.5 and 2^-55.5.
impl ExpTerms for f32 {
    const RANGE: (Self, Self) = (-120.0, 90.0);
    const RANGE_LESS_ONE: (Self, Self) = (-20.0, 89.0);
    const RANGE_BASE_TWO: (Self, Self) = (-151.0, 129.0);
    #[inline(always)]
    fn exp_terms<I: Isa>(r: Self) -> Self {
        poly!(
            I,
            r,
            [
                0.5,
                0.16666667,
                0.041666463,
                0.0083333105,
                0.0013933821,
                0.0001989118,
            ]
        )
    }
    #[inline(always)]
    fn exp2_terms<I: Isa>(r: Self) -> Self {
        poly!(
            I,
            r,
            [
                std::f32::consts::LN_2,
                0.2402265,
                0.05550411,
                0.009618057,
                0.0013333502,
                0.00015461445,
                1.5297324e-5,
            ]
        )
    }
}
impl ExpTerms for f64 {
    const RANGE: (Self, Self) = (-760.0, 711.0);
    const RANGE_LESS_ONE: (Self, Self) = (-40.0, 710.0);
    const RANGE_BASE_TWO: (Self, Self) = (-1076.0, 1025.0);
    #[inline(always)]
    fn exp_terms<I: Isa>(r: Self) -> Self {
        poly!(
            I,
            r,
            [
                0.5,
                0.1666666666666667,
                0.04166666666666667,
                0.008333333333326025,
                0.001388888888888367,
                0.00019841269875205077,
                2.4801587325822283e-5,
                2.75572549134867e-6,
                2.7557273295539724e-7,
                2.5105419192016337e-8,
                2.091483135138041e-9,
            ]
        )
    }
    #[inline(always)]
    fn exp2_terms<I: Isa>(r: Self) -> Self {
        poly!(
            I,
            r,
            [
                std::f64::consts::LN_2,
                0.24022650695910072,
                0.055504108664821625,
                0.00961812910762848,
                0.001333355814640647,
                0.00015403530393370734,
                1.5252733841556773e-5,
                1.3215486808705563e-6,
                1.0178057087733941e-7,
                7.0548973041554995e-9,
                4.4558179083360645e-10,
                2.5729324177362305e-11,
            ]
        )
    }
}

/// `(n, r)` of the reduction.
#[inline(always)]
fn reduce<I: Isa, T: ExpTerms>(x: T) -> (T, T) {
    let n = (x * T::of(std::f64::consts::LOG2_E)).nearest();
    let r = (-n).mul_add_on::<I>(T::LN_2.0, x);
    (n, (-n).mul_add_on::<I>(T::LN_2.1, r))
}

/// `(a, b)` with `a·b = p·2^n`: both are normal numbers even if the product is subnormal or infinite.
#[inline(always)]
fn halve_scale<I: Isa, T: MathFloat>(p: T, n: T) -> (T, T) {
    let half = (n * T::of(0.5)).nearest();
    (p * half.power_of_two(), (n - half).power_of_two())
}

/// `e^(x + low)·2^shift` as a product of two numbers, for a `low` much smaller than 1.
///
/// Without a low part, pass -0, which is optimised away, unlike 0, which is not neutral for -0.
/// Multiplying the first number by other factors, then by the second, rounds subnormal results correctly.
#[inline(always)]
pub(crate) fn exp_parts<I: Isa, T: ExpTerms>(x: T, low: T, shift: f64) -> (T, T) {
    let (n, r) = reduce::<I, T>(x.at_least(T::RANGE.0).at_most(T::RANGE.1));
    let r = r + low;
    let p = (r * r).mul_add_on::<I>(T::exp_terms::<I>(r), r) + T::of(1.0);
    halve_scale::<I, T>(p, n + T::of(shift))
}

/// `e^x·2^shift`, scaled in one step: correct for results of at least the smallest normal number, infinity from
/// twice the largest power of two on.
#[inline(always)]
pub(crate) fn exp_above<I: Isa, T: ExpTerms>(x: T, shift: f64) -> T {
    let (n, r) = reduce::<I, T>(x);
    let p = (r * r).mul_add_on::<I>(T::exp_terms::<I>(r), r) + T::of(1.0);
    p * (n + T::of(shift)).power_of_two()
}

#[inline(always)]
pub(crate) fn exp<I: Isa, T: ExpTerms>(x: T) -> T {
    let (a, b) = exp_parts::<I, T>(x, T::of(-0.0), -0.0);
    a * b
}

#[inline(always)]
pub(crate) fn exp2<I: Isa, T: ExpTerms>(x: T) -> T {
    exp2_sum::<I, T>(x, T::of(-0.0))
}

/// `2^(x + low)`, for a `low` much smaller than 1.
#[inline(always)]
pub(crate) fn exp2_sum<I: Isa, T: ExpTerms>(x: T, low: T) -> T {
    let x = x.at_least(T::RANGE_BASE_TWO.0).at_most(T::RANGE_BASE_TWO.1);
    let n = x.nearest();
    let r = (x - n) + low;
    let p = r.mul_add_on::<I>(T::exp2_terms::<I>(r), T::of(1.0));
    let (a, b) = halve_scale::<I, T>(p, n);
    a * b
}

#[inline(always)]
pub(crate) fn expm1<I: Isa, T: ExpTerms>(x: T) -> T {
    let (low, high) = T::RANGE_LESS_ONE;
    let (n, r) = reduce::<I, T>(x.at_least(low).at_most(high));
    let e = (r * r).mul_add_on::<I>(T::exp_terms::<I>(r), r);
    // Computes half of it, since 2^n overflows for the largest results.
    let scale = (n - T::of(1.0)).power_of_two();
    let half = scale.mul_add_on::<I>(e, scale - T::of(0.5));
    // Keeps -0, and the last bit of subnormal numbers.
    if x.magnitude() < T::of(1e-20) {
        x
    } else {
        half + half
    }
}
