//! The error function and the Gaussian error linear unit.
//!
//! Near 0, a polynomial. Elsewhere erfc x = e^(-x²)·g(t) / (x + K) with t = (x - K) / (x + K): g is smooth
//! up to infinity, so one polynomial is enough, and the tail keeps its relative accuracy down to the
//! smallest results. The square is passed to the exponential with its rounding error. The normal
//! distribution, Φ(-x) = erfc(x / √2) / 2, has a separate polynomial, since rounding x / √2 costs digits.
//! In f32, where erfc is only subtracted from 1 and only up to 4, its logarithm is a polynomial.

use super::exp;
use super::real::poly;
use crate::cpu::simd::{Isa, MulAdd};

/// The polynomials and ranges of one type.
pub(crate) trait ErfTerms: exp::ExpTerms {
    /// K of the normal distribution: the one with the smallest error at the degree in use.
    const NORMAL_CENTRE: Self;
    /// erf is 1 from here on.
    const ERF_LIMIT: Self;
    /// `x·Φ(-x)` is 0 from here on.
    const GELU_LIMIT: Self;
    /// `erf x / x - 1` of x² for |x| ≤ 1.
    fn erf_terms<I: Isa>(square: Self) -> Self;
    /// `erf x` for x from 1 to [`Self::ERF_LIMIT`], given x² as `square + low`.
    fn erf_above<I: Isa>(self, square: Self, low: Self) -> Self;
    /// `e^(x²/2)·Φ(-x)·x` of t, from x = 0.69 to [`Self::GELU_LIMIT`].
    fn normal_terms<I: Isa>(t: Self) -> Self;
}

// The first interpolated at Chebyshev nodes with 60 digits, then rounded; the others least squares fits
// at such nodes, repeated as each of the leading coefficients was rounded. Relative errors:
// f32 2^-28.9, 2^-29.7 (of erf) and 2^-25.3, f64 2^-56.3, 2^-52.9 and 2^-53.5.
impl ErfTerms for f32 {
    const NORMAL_CENTRE: Self = 3.5;
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
    /// `1 - e^p(x)`: only the digits of erfc that matter next to 1 are needed.
    #[inline(always)]
    fn erf_above<I: Isa>(self, _: Self, _: Self) -> Self {
        const FIRST: f32 = -0.0003297907;
        let terms = poly!(
            I,
            self,
            [
                -1.1271381,
                -0.6380612,
                -0.103181526,
                0.021874959,
                -0.0029571748,
                0.00018738101,
            ]
        );
        // Rounded once, fused or not: at 1, a sixth of its error reaches the result.
        let log = if I::FMA {
            self.mul_add_on::<I>(terms, FIRST)
        } else {
            (f64::from(self) * f64::from(terms) + f64::from(FIRST)) as Self
        };
        1.0 - exp::exp_above::<I, Self>(log, -0.0)
    }
    #[inline(always)]
    fn normal_terms<I: Isa>(t: Self) -> Self {
        // Evaluation by pairs would lose another half ulp.
        poly!(
            @horner I,
            t,
            [
                0.37220803,
                0.08942711,
                -0.12506813,
                0.09968763,
                -0.049324356,
                0.011935377,
                0.001654049,
                -0.0017869943,
                6.55626e-7,
                0.0002116851
            ]
        )
    }
}
impl ErfTerms for f64 {
    const NORMAL_CENTRE: Self = 6.0;
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
    fn erf_above<I: Isa>(self, square: Self, low: Self) -> Self {
        const CENTRE: f64 = 3.5;
        let inverse = 1.0 / (self + CENTRE);
        let g = poly!(
            I,
            (self - CENTRE) * inverse,
            [
                1.0870555892622602,
                -0.937799724567114,
                0.6941136466345593,
                -0.43525602671640623,
                0.22573862165837738,
                -0.0923187066627606,
                0.026518619328528188,
                -0.0031770502909029713,
                -0.0013053417777178853,
                0.000714550185463978,
                -4.2192505044598196e-5,
                -7.515119730471945e-5,
                1.8889498472196823e-5,
                9.352884217963012e-6,
                -6.429723963667438e-7,
            ]
        );
        let (p, q) = exp::exp_parts::<I, Self>(-square, -low, -0.0);
        1.0 - (p * (g * inverse)) * q
    }
    #[inline(always)]
    fn normal_terms<I: Isa>(t: Self) -> Self {
        poly!(
            I,
            t,
            [
                0.38867588594668107,
                0.03817137115124814,
                -0.06602006888803676,
                0.07753265301962023,
                -0.07296466996713255,
                0.05764700688766667,
                -0.03875415819491494,
                0.022093300096979546,
                -0.01047774745886853,
                0.003949107555003087,
                -0.0010493674776079027,
                0.00010711616601175569,
                5.8303978405900536e-5,
                -3.1841720149082114e-5,
                3.935687987655233e-6,
                2.5065908070989365e-6,
                -1.1120403699600503e-6,
                -7.151550891255857e-8,
                1.5321666376854125e-7,
                -8.090932372439935e-9,
                -1.4663495105733119e-8,
            ]
        )
    }
}

#[inline(always)]
pub(crate) fn erf<I: Isa, T: ErfTerms>(x: T) -> T {
    let a = x.magnitude().at_most(T::ERF_LIMIT);
    let (square, low) = a.exact_product::<I>(a);
    let near = a.mul_add_on::<I>(T::erf_terms::<I>(square), a);
    let far = a.erf_above::<I>(square, low);
    (if a < T::of(1.0) { near } else { far }).with_sign_of(x)
}

/// `x·Φ(x)`, Φ the normal distribution: `x - w` above 0 and `-w` below, w = |x|·Φ(-|x|).
#[inline(always)]
pub(crate) fn gelu<I: Isa, T: ErfTerms>(x: T) -> T {
    let half = T::of(0.5);
    let a = x.magnitude().at_most(T::GELU_LIMIT);
    let (square, low) = a.exact_product::<I>(a);
    let (square, low) = (square * half, low * half);
    let g = T::normal_terms::<I>((a - T::NORMAL_CENTRE) / (a + T::NORMAL_CENTRE));
    let (p, q) = exp::exp_parts::<I, T>(-square, -low, -0.0);
    let far = (p * g) * q;
    let z = a * T::of(std::f64::consts::FRAC_1_SQRT_2);
    let erf = z.mul_add_on::<I>(T::erf_terms::<I>(square), z);
    let near = a * (half - half * erf);
    let w = if z < half { near } else { far };
    if x < T::of(0.0) { -w } else { x - w }
}
