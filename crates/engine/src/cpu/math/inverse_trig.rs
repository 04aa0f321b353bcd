//! Inverse sine, cosine and tangent.
//!
//! Arc tangents are reduced to |t| ≤ tan π/8 by one division, arc sines to |x| ≤ ½ by the half angle.

use super::Math;
use super::real::{MathFloat, poly};
use crate::cpu::simd::Isa;

/// The polynomials of one type.
pub(crate) trait InverseTrigTerms: MathFloat {
    /// `(atan t - t) / t³` of t² for |t| ≤ tan π/8.
    fn atan_terms<I: Isa>(square: Self) -> Self;
    /// `(asin x - x) / x³` of x² for |x| ≤ ½.
    fn asin_terms<I: Isa>(square: Self) -> Self;
}

// Interpolated at Chebyshev nodes with 60 digits, then rounded. Relative errors of arc tangent and sine:
// f32 2^-28.4 and 2^-28.4, f64 2^-58.2 and 2^-58.6.
impl InverseTrigTerms for f32 {
    #[inline(always)]
    fn atan_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                -0.3333333,
                0.19999538,
                -0.14263897,
                0.107430995,
                -0.06449835,
            ]
        )
    }
    #[inline(always)]
    fn asin_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                0.16666666,
                0.07500094,
                0.044599403,
                0.031100662,
                0.017149238,
                0.033690847,
            ]
        )
    }
}
impl InverseTrigTerms for f64 {
    #[inline(always)]
    fn atan_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                -0.3333333333333333,
                0.199999999999998,
                -0.14285714285659326,
                0.11111111105106705,
                -0.09090908751076636,
                0.0769229630497447,
                -0.06666423628069258,
                0.058789145444006215,
                -0.052303478730160745,
                0.04551108126325172,
                -0.034558092551413795,
                0.01627194475162406,
            ]
        )
    }
    #[inline(always)]
    fn asin_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                0.16666666666666666,
                0.07500000000000118,
                0.044642857142551895,
                0.03038194447553234,
                0.02237215744350722,
                0.017352816540325496,
                0.01396378001220357,
                0.011566459612121669,
                0.009621842970100282,
                0.009319560794767446,
                0.0030448799094556773,
                0.019554513336123378,
                -0.01924167174674304,
                0.02961201126495512,
            ]
        )
    }
}

/// π times a power of two, in two parts.
#[inline(always)]
fn pi<T: MathFloat>(factor: f64) -> (T, T) {
    (T::PI.0 * T::of(factor), T::PI.1 * T::of(factor))
}

/// The arc tangent of a non-negative number.
#[inline(always)]
fn atan_positive<I: Isa, T: InverseTrigTerms>(a: T) -> T {
    let one = T::of(1.0);
    // tan π/8 and tan 3π/8.
    let middle = a > T::of(0.4142135623730951);
    let large = a > T::of(2.414213562373095);
    let numerator = if middle { a - one } else { a };
    let numerator = if large { -one } else { numerator };
    let denominator = if middle { a + one } else { one };
    let denominator = if large { a } else { denominator };
    let (quarter, half) = (pi::<T>(0.25), pi::<T>(0.5));
    let base = if middle {
        quarter
    } else {
        (T::of(0.0), T::of(0.0))
    };
    let base = if large { half } else { base };
    let t = numerator / denominator;
    let z = t * t;
    base.0 + (t + (t * z).mul_add_on::<I>(T::atan_terms::<I>(z), base.1))
}

#[inline(always)]
pub(crate) fn atan<I: Isa, T: InverseTrigTerms>(x: T) -> T {
    atan_positive::<I, T>(x.magnitude()).with_sign_of(x)
}

/// The angle of the point (x, y).
#[inline(always)]
pub(crate) fn atan2<I: Isa, T: Math>(y: T, x: T) -> T {
    y.atan2_on::<I>(x)
}

#[inline(always)]
pub(super) fn angle<I: Isa, T: InverseTrigTerms>(y: T, x: T) -> T {
    let (a, b) = (y.magnitude(), x.magnitude());
    let steep = a > b;
    let (low, high) = if steep { (b, a) } else { (a, b) };
    let ratio = low / high;
    // Treats two infinities as equal numbers, two zeros as a zero ratio.
    let ratio = if low == high { T::of(1.0) } else { ratio };
    let ratio = if high == T::of(0.0) {
        T::of(0.0)
    } else {
        ratio
    };
    let angle = atan_positive::<I, T>(ratio);
    let left = T::of(1.0).with_sign_of(x) < T::of(0.0);
    let base = if left {
        T::PI
    } else {
        (T::of(0.0), T::of(0.0))
    };
    let base = if steep { pi::<T>(0.5) } else { base };
    let offset = if steep == left { angle } else { -angle };
    let angle = base.0 + (offset + base.1);
    if x.is_unknown() | y.is_unknown() {
        x + y
    } else {
        angle.with_sign_of(y)
    }
}

/// `(large, p)`: p is the arc sine of |x|, or half the arc cosine of |x| if it is large.
#[inline(always)]
fn half_angle<I: Isa, T: InverseTrigTerms>(a: T) -> (bool, T) {
    let large = a > T::of(0.5);
    let z = if large {
        (T::of(1.0) - a) * T::of(0.5)
    } else {
        a * a
    };
    let s = if large { z.square_root() } else { a };
    (large, (s * z).mul_add_on::<I>(T::asin_terms::<I>(z), s))
}

#[inline(always)]
pub(crate) fn asin<I: Isa, T: InverseTrigTerms>(x: T) -> T {
    let (large, p) = half_angle::<I, T>(x.magnitude());
    let half = pi::<T>(0.5);
    let result = if large { half.0 - (p + p - half.1) } else { p };
    result.with_sign_of(x)
}

#[inline(always)]
pub(crate) fn acos<I: Isa, T: InverseTrigTerms>(x: T) -> T {
    let (large, p) = half_angle::<I, T>(x.magnitude());
    let (half, whole) = (pi::<T>(0.5), T::PI);
    let twice = p + p;
    let twice = if x < T::of(0.0) {
        whole.0 - (twice - whole.1)
    } else {
        twice
    };
    let near = half.0 - (p.with_sign_of(x) - half.1);
    if large { twice } else { near }
}
