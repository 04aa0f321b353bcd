//! The error function and the Gaussian error linear unit.
//!
//! erfc z = e^(-z²)·g(t) / (z + K) with t = (z - K) / (z + K): g is smooth from 0 to infinity, so that
//! one polynomial serves for all but the numbers near 0, and the tail keeps its relative accuracy down
//! to the smallest results. The square enters the exponential with its rounding error.
use super::exp;
use super::real::poly;
use crate::cpu::simd::Isa;

/// The polynomials and ranges of one type.
pub(super) trait Terms: exp::Terms {
    /// K of the substitution: the one with the smallest error at the degree in use.
    const CENTRE: Self;
    /// From here on, erf is 1.
    const ERF_LIMIT: Self;
    /// From here on, `x·Φ(-x)` is 0.
    const GELU_LIMIT: Self;
    /// `erf x / x - 1` of x² for |x| ≤ 1.
    fn erf_terms<I: Isa>(square: Self) -> Self;
    /// `g(t)`.
    fn erfc_terms<I: Isa>(t: Self) -> Self;
}

// Interpolated at Chebyshev nodes with 60 digits, then rounded. Relative errors of erf below 1 and of
// erfc from z = 0.45 on: f32 2^-28.9 and 2^-25.1, f64 2^-56.3 and 2^-54.1. The latter are least squares fits at such
// nodes, repeated as each of the leading coefficients was rounded.
impl Terms for f32 {
    const CENTRE: Self = 2.5;
    const ERF_LIMIT: Self = 4.0;
    const GELU_LIMIT: Self = 15.0;
    #[inline(always)]
    fn erf_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                0.12837917,
                -0.37612638,
                0.11283782,
                -0.02686543,
                0.0052210316,
                -0.00084840803,
                0.00011265959,
                -9.667045e-6,
            ]
        )
    }
    #[inline(always)]
    fn erfc_terms<I: Isa>(t: Self) -> Self {
        poly!(
            I,
            t,
            [
                1.0540318,
                -0.80465186,
                0.45391345,
                -0.17125109,
                0.028363995,
                0.008394203,
                -0.004806245,
                -0.00044680017,
                0.00062320527,
                6.319798e-5,
            ]
        )
    }
}
impl Terms for f64 {
    const CENTRE: Self = 4.0;
    const ERF_LIMIT: Self = 6.0;
    const GELU_LIMIT: Self = 39.5;
    #[inline(always)]
    fn erf_terms<I: Isa>(square: Self) -> Self {
        poly!(
            I,
            square,
            [
                0.1283791670955126,
                -0.37612638903183754,
                0.1128379167095512,
                -0.02686617064512984,
                0.0052239776254232985,
                -0.000854832702193483,
                0.00012055332902888736,
                -1.4925647567519332e-5,
                1.6462045441468418e-6,
                -1.6364642158167616e-7,
                1.4792401209404813e-8,
                -1.216456005728345e-9,
                8.709045129053106e-11,
                -4.230945824295338e-12,
            ]
        )
    }
    #[inline(always)]
    fn erfc_terms<I: Isa>(t: Self) -> Self {
        poly!(
            I,
            t,
            [
                1.095995661000491,
                -0.976548729080882,
                0.7732087022652435,
                -0.5408538313132384,
                0.3308515878778078,
                -0.17401093723982394,
                0.07638151491213001,
                -0.026370053341840078,
                0.006112055636475507,
                -0.00028095885535459893,
                -0.0004550526254818793,
                0.0001768127853507281,
                -3.6351510175780246e-6,
                -1.886085298312238e-5,
                4.693673107472226e-6,
                1.4242892063593813e-6,
                -8.437438678153119e-7,
                -7.585569392802291e-8,
                1.2026823764258811e-7,
                1.2254309010337616e-9,
                -1.2369120599134094e-8,
            ]
        )
    }
}

/// `erfc z` of a number not negative as a product of two numbers, given z² in two parts.
#[inline(always)]
fn erfc_parts<I: Isa, T: Terms>(z: T, square: (T, T)) -> (T, T) {
    let inverse = T::of(1.0) / (z + T::CENTRE);
    let g = T::erfc_terms::<I>((z - T::CENTRE) * inverse) * inverse;
    let (a, b) = exp::exp_parts::<I, T>(-square.0, -square.1, 0.0);
    (a * g, b)
}

#[inline(always)]
pub(super) fn erf<I: Isa, T: Terms>(x: T) -> T {
    let a = x.magnitude().at_most(T::ERF_LIMIT);
    let square = a.exact_product::<I>(a);
    let near = a.mul_add_on::<I>(T::erf_terms::<I>(square.0), a);
    let (p, q) = erfc_parts::<I, T>(a, square);
    let far = T::of(1.0) - p * q;
    (if a < T::of(1.0) { near } else { far }).with_sign_of(x)
}

/// `x·Φ(x)`, Φ the normal distribution: `x - w` above 0 and `-w` below, w = |x|·erfc(|x| / √2) / 2.
#[inline(always)]
pub(super) fn gelu<I: Isa, T: Terms>(x: T) -> T {
    let half = T::of(0.5);
    let a = x.magnitude().at_most(T::GELU_LIMIT);
    let z = a * T::of(std::f64::consts::FRAC_1_SQRT_2);
    let square = a.exact_product::<I>(a);
    let square = (square.0 * half, square.1 * half);
    let (p, q) = erfc_parts::<I, T>(z, square);
    let far = (p * (a * half)) * q;
    let erf = z.mul_add_on::<I>(T::erf_terms::<I>(square.0), z);
    let near = a * (half - half * erf);
    let w = if z < half { near } else { far };
    if x < T::of(0.0) { -w } else { x - w }
}
