//! Activation functions.
//!
//! All use the exponential of a non-positive number, so that nothing overflows, and multiply before the last
//! step of its scaling, so that subnormal results are correct too. `silu`, `gelu` and `mish` of -infinity are
//! their limit, -0, for which the formula would give NaN.

use super::real::MathFloat;
use super::{exp, log};
use crate::cpu::simd::{Isa, MulAdd};

/// The argument of `gelu_tanh`, which the types compute differently.
pub(crate) trait TanhArgument: exp::ExpTerms + log::LogTerms {
    /// `2·√(2/π)·(x + 0.044715·x³)` in two parts, for |x| ≤ 30.
    fn tanh_argument<I: Isa>(self) -> (Self, Self);
}

const LINEAR: f64 = 1.5957691216057308; // 2·√(2/π)
const CUBIC: f64 = 0.07135481627260025; // 0.044715·2·√(2/π)

impl TanhArgument for f32 {
    #[inline(always)]
    fn tanh_argument<I: Isa>(self) -> (Self, Self) {
        let x = f64::from(self);
        let exact = x * (x * x).mul_add_on::<I>(CUBIC, LINEAR);
        let high = exact as Self;
        (high, (exact - f64::from(high)) as Self)
    }
}
impl TanhArgument for f64 {
    /// In the tail the absolute error of the argument becomes a relative one, hence double-double arithmetic.
    #[inline(always)]
    fn tanh_argument<I: Isa>(self) -> (Self, Self) {
        const LINEAR_LOW: f64 = -9.96930880911092e-17;
        const CUBIC_LOW: f64 = -6.175149918155315e-19;
        let (square, square_low) = self.exact_product::<I>(self);
        let (cubic, cubic_low) = square.exact_product::<I>(CUBIC);
        let cubic_low = cubic_low + (square_low * CUBIC + square * CUBIC_LOW);
        let (sum, sum_low) = cubic.exact_sum(LINEAR);
        let sum_low = sum_low + (cubic_low + LINEAR_LOW);
        let (product, low) = self.exact_product::<I>(sum);
        (product, low + self * sum_low)
    }
}

#[inline(always)]
pub(crate) fn sigmoid<I: Isa, T: TanhArgument>(x: T) -> T {
    let one = T::of(1.0);
    let e = exp::exp::<I, T>(-x.magnitude());
    let negative = x < T::of(0.0);
    let denominator = one + e;
    let lost = (one - denominator) + e;
    let q = (if negative { e } else { one }) / denominator;
    // Corrects the rounding error of `denominator`, with 1 / denominator known without another division.
    let inverse = if negative { one - q } else { q };
    (-q).mul_add_on::<I>(lost * inverse, q)
}

/// `x·sigmoid(v)` for a `v` of x's sign, given |v| in two parts.
#[inline(always)]
fn gate<I: Isa, T: TanhArgument>(x: T, v: (T, T)) -> T {
    let (a, b) = exp::exp_parts::<I, T>(-v.0, -v.1, -0.0);
    let below = (x.at_least(T::of(-1000.0)) * a) * b;
    let numerator = if x < T::of(0.0) { below } else { x };
    numerator / (a * b + T::of(1.0))
}

#[inline(always)]
pub(crate) fn silu<I: Isa, T: TanhArgument>(x: T) -> T {
    gate::<I, T>(x, (x.magnitude(), T::of(0.0)))
}

#[inline(always)]
pub(crate) fn gelu_tanh<I: Isa, T: TanhArgument>(x: T) -> T {
    gate::<I, T>(x, x.magnitude().at_most(T::of(30.0)).tanh_argument::<I>())
}

#[inline(always)]
pub(crate) fn softplus<I: Isa, T: TanhArgument>(x: T) -> T {
    let e = exp::exp::<I, T>(-x.magnitude());
    x.at_least(T::of(0.0)) + log::log1p_unit::<I, T>(e)
}

#[inline(always)]
pub(crate) fn log_sigmoid<I: Isa, T: TanhArgument>(x: T) -> T {
    -softplus::<I, T>(-x)
}

/// `x·tanh(softplus x)` is `x·n / (n + 2)` with n = e^x·(e^x + 2).
#[inline(always)]
pub(crate) fn mish<I: Isa, T: TanhArgument>(x: T) -> T {
    let two = T::of(2.0);
    // At 40 the factor is 1 even in f64, and n is finite in f32.
    let (a, b) = exp::exp_parts::<I, T>(x.at_most(T::of(40.0)), T::of(-0.0), -0.0);
    let e = a * b;
    let n = e * (e + two);
    let below = ((x.at_least(T::of(-1000.0)) * a) * (e + two)) * b;
    let negative = x < T::of(0.0);
    let quotient = (if negative { below } else { n }) / (n + two);
    if negative { quotient } else { x * quotient }
}

#[inline(always)]
pub(crate) fn elu<I: Isa, T: TanhArgument>(x: T, alpha: T) -> T {
    let below = alpha * exp::expm1::<I, T>(x);
    if x > T::of(0.0) { x } else { below }
}
