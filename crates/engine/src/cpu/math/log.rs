//! Logarithms: natural, of base 2 and 10, of `1 + x`, and of odds.
//!
//! x = 2^k·(1 + f) with √½ ≤ 1 + f < √2, and log(1 + f) = f - f²/2 + tail. Bases 2 and 10 multiply by a
//! constant in two parts, so that the product is not rounded before the exponent is added.

use super::real::{MathFloat, poly};
use crate::cpu::simd::{Isa, MulAdd};

/// The polynomial of one type.
pub(crate) trait LogTerms: MathFloat {
    /// `log(1 + f) - f + f²/2`, given `f` and `f²/2`.
    fn log_tail<I: Isa>(f: Self, half_square: Self) -> Self;
}

// Interpolated at Chebyshev nodes with 60 digits, then rounded. Relative error of the logarithm:
// f32 2^-28.1, f64 2^-57.6.
impl LogTerms for f32 {
    #[inline(always)]
    fn log_tail<I: Isa>(f: Self, half_square: Self) -> Self {
        let terms = poly!(
            I,
            f,
            [
                0.3333333,
                -0.24999997,
                0.20000716,
                -0.16667803,
                0.14249058,
                -0.12425687,
                0.1168542,
                -0.11479734,
                0.06971612,
            ]
        );
        (f + f) * half_square * terms
    }
}
impl LogTerms for f64 {
    /// Uses log(1 + f) = 2 artanh s, s = f / (2 + f): a third of the terms of a series in f, for one
    /// division. The tail is then s·(f²/2 + R(s²)).
    #[inline(always)]
    fn log_tail<I: Isa>(f: Self, half_square: Self) -> Self {
        let s = f / (f + 2.0);
        let z = s * s;
        let terms = poly!(
            I,
            z,
            [
                0.666666666666667,
                0.3999999999989889,
                0.28571428626253836,
                0.22222211089379496,
                0.1818289243253687,
                0.15331611722055008,
                0.14617807153417325,
            ]
        );
        s * z.mul_add_on::<I>(terms, half_square)
    }
}

/// Adds the special values to the formula: NaN below 0, -infinity at 0, infinity and NaN unchanged.
#[inline(always)]
fn with_special<T: MathFloat>(x: T, result: T) -> T {
    let result = if x < T::of(f64::INFINITY) { result } else { x };
    let result = if x == T::of(0.0) {
        T::of(f64::NEG_INFINITY)
    } else {
        result
    };
    if x < T::of(0.0) {
        T::of(f64::NAN)
    } else {
        result
    }
}

/// `k·ln 2 + log(1 + f)`.
#[inline(always)]
fn natural<I: Isa, T: LogTerms>(k: T, f: T) -> T {
    let half_square = f * f * T::of(0.5);
    let tail = k.mul_add_on::<I>(T::LN_2.1, T::log_tail::<I>(f, half_square));
    k.mul_add_on::<I>(T::LN_2.0, f - (half_square - tail))
}

/// `k·unit + log(1 + f)·factor`, both constants in two parts.
#[inline(always)]
fn scaled<I: Isa, T: LogTerms>(k: T, f: T, unit: (T, T), factor: (T, T)) -> T {
    let half_square = f * f * T::of(0.5);
    let tail = T::log_tail::<I>(f, half_square);
    let high = (f - half_square).upper_half();
    let low = ((f - high) - half_square) + tail;
    // Both are exact, and |exponent| ≥ |fraction| or exponent = 0 (Fast2Sum).
    let exponent = k * unit.0;
    let fraction = high * factor.0;
    let sum = exponent + fraction;
    let error = (exponent - sum) + fraction;
    let small = low.mul_add_on::<I>(factor.1, k * unit.1 + error);
    let small = high.mul_add_on::<I>(factor.1, small);
    sum + low.mul_add_on::<I>(factor.0, small)
}

#[inline(always)]
pub(crate) fn log<I: Isa, T: LogTerms>(x: T) -> T {
    let (k, m) = x.decompose();
    with_special(x, natural::<I, T>(k, m - T::of(1.0)))
}

#[inline(always)]
pub(crate) fn log2<I: Isa, T: LogTerms>(x: T) -> T {
    let (k, m) = x.decompose();
    let unit = (T::of(1.0), T::of(0.0));
    with_special(x, scaled::<I, T>(k, m - T::of(1.0), unit, T::LOG2_E))
}

#[inline(always)]
pub(crate) fn log10<I: Isa, T: LogTerms>(x: T) -> T {
    let (k, m) = x.decompose();
    with_special(x, scaled::<I, T>(k, m - T::of(1.0), T::LOG10_2, T::LOG10_E))
}

#[inline(always)]
pub(crate) fn log1p<I: Isa, T: LogTerms>(x: T) -> T {
    // Adds the rounding error of 1 + x to f, which is x itself if k = 0.
    let (sum, lost) = x.exact_sum(T::of(1.0));
    let (k, m) = sum.decompose();
    let unscale = (T::of(1.0) - k).power_of_two() * T::of(0.5);
    let f = lost.mul_add_on::<I>(unscale, m - T::of(1.0));
    let result = with_special(sum, natural::<I, T>(k, f));
    if x == T::of(0.0) { x } else { result }
}

/// `log(x / (1 - x))`. Around ½ the quotient is about 1, and its logarithm would lose what rounding it took away; there it
/// is `2·artanh t = log(1 + 2·t / (1 - t))` with t = 2·x - 1, which is exact.
#[inline(always)]
pub(crate) fn logit<I: Isa, T: LogTerms>(x: T) -> T {
    let (zero, one) = (T::of(0.0), T::of(1.0));
    let apart = x - T::of(0.5);
    let t = (apart + apart).magnitude();
    let is_near = t <= T::of(0.5);
    let (above, below) = if is_near { (t + t, t) } else { (x, x) };
    let ratio = above / (one - below);
    let (sum, lost) = ratio.exact_sum(one);
    let (odds, lost) = if is_near { (sum, lost) } else { (ratio, zero) };
    let (k, m) = odds.decompose();
    // What the sum lost is 0 where k is not 0, 1 or 2; the power of two must exist all the same.
    let unscale = (-k).at_least(T::of(-2.0)).at_most(zero).power_of_two();
    let f = lost.mul_add_on::<I>(unscale, m - one);
    let result = with_special(odds, natural::<I, T>(k, f));
    if is_near {
        result.with_sign_of(apart)
    } else {
        result
    }
}

/// `log(1 + e)` for `e` from 0 to 1.
#[inline(always)]
pub(crate) fn log1p_unit<I: Isa, T: LogTerms>(e: T) -> T {
    let (zero, one) = (T::of(0.0), T::of(1.0));
    let upper = e > T::of(std::f64::consts::SQRT_2 - 1.0);
    let k = if upper { one } else { zero };
    let f = if upper { (e - one) * T::of(0.5) } else { e };
    natural::<I, T>(k, f)
}
