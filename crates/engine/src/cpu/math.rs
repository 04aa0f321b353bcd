//! Elementary functions, free of branches, that vectorise when a loop that calls them is inlined into a
//! [`simd::Task`](super::simd::Task).
//!
//! Call them from the loop itself or from functions that are `#[inline(always)]`: a closure, or a function
//! passed as a value, is inlined as the optimiser sees fit, and if it is not, runs without the level's
//! instructions, an order of magnitude slower.
//!
//! Every function accepts the whole range of its type: signed zeros, subnormal numbers (in and out),
//! infinities and NaN give the results that C99 (and so NumPy) prescribes. Only sines, cosines and tangents
//! treat large arguments separately: see [`trig`].
//!
//! Error bounds are in the rows of [`for_each_unary!`] and [`for_each_binary!`], and tested at every level. In f32,
//! `asinh`, `acosh`, `atan2`, `hypot` and `pow` are computed in f64 and rounded once. In f64 without FMA, `pow` is the
//! standard library's, element by element.
//!
//! `file::name` is the function `name` of a row with that file, for `f32` and `f64`. [`Math`] has the functions that other
//! kernels call as methods, and those that the two types compute differently.
//!
//! [`for_each_unary!`]: crate::for_each_unary
//! [`for_each_binary!`]: crate::for_each_binary
pub(crate) mod activation;
pub(crate) mod erf;
pub(crate) mod exp;
pub(crate) mod half;
pub(crate) mod hyperbolic;
pub(crate) mod inverse_trig;
pub(crate) mod log;
pub(crate) mod power;
mod real;
#[cfg(test)]
mod tests;
pub(crate) mod trig;

use super::simd::Isa;

/// Functions that other kernels call as methods, and those that `f32` and `f64` compute differently.
pub(crate) trait Math: Copy {
    /// Returns true if this number is out of the range of the `…_near` functions.
    fn is_far(self) -> bool;
    /// The sine, unless [`Self::is_far`].
    fn sin_near<I: Isa>(self) -> Self;
    /// The cosine, unless [`Self::is_far`].
    fn cos_near<I: Isa>(self) -> Self;
    /// The tangent, unless [`Self::is_far`].
    fn tan_near<I: Isa>(self) -> Self;
    /// The sine of any number; a loop of these does not vectorise.
    fn sin_on<I: Isa>(self) -> Self;
    /// The cosine of any number; a loop of these does not vectorise.
    fn cos_on<I: Isa>(self) -> Self;
    /// The tangent of any number; a loop of these does not vectorise.
    fn tan_on<I: Isa>(self) -> Self;
    /// `e^x`.
    fn exp_on<I: Isa>(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh_on<I: Isa>(self) -> Self;
    /// The inverse hyperbolic sine.
    fn asinh_on<I: Isa>(self) -> Self;
    /// The inverse hyperbolic cosine.
    fn acosh_on<I: Isa>(self) -> Self;
    /// The inverse hyperbolic tangent.
    fn atanh_on<I: Isa>(self) -> Self;
    /// The cube root.
    fn cbrt_on<I: Isa>(self) -> Self;
    /// `x·sigmoid(x)`.
    fn silu_on<I: Isa>(self) -> Self;
    /// `x·Φ(x)`, Φ the normal distribution.
    fn gelu_on<I: Isa>(self) -> Self;
    /// `x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2`.
    fn gelu_tanh_on<I: Isa>(self) -> Self;
    /// `x^y`.
    fn pow_on<I: Isa>(self, y: Self) -> Self;
    /// The angle of the point (x, self).
    fn atan2_on<I: Isa>(self, x: Self) -> Self;
    /// `√(x² + y²)` without intermediate overflow.
    fn hypot_on<I: Isa>(self, y: Self) -> Self;
}

/// Implements [`Math`] for a type: the functions that both types share, and the given ones.
macro_rules! math {
    ($type:ident, { $($own:tt)* }) => {
        impl Math for $type {
            #[inline(always)]
            fn is_far(self) -> bool {
                self.abs() > trig::MAX_NEAR_ANGLE as Self
            }
            #[inline(always)]
            fn sin_near<I: Isa>(self) -> Self {
                trig::TrigTerms::sin_near::<I>(self)
            }
            #[inline(always)]
            fn cos_near<I: Isa>(self) -> Self {
                trig::TrigTerms::cos_near::<I>(self)
            }
            #[inline(always)]
            fn sin_on<I: Isa>(self) -> Self {
                if self.is_far() {
                    f64::from(self).sin() as Self
                } else {
                    self.sin_near::<I>()
                }
            }
            #[inline(always)]
            fn cos_on<I: Isa>(self) -> Self {
                if self.is_far() {
                    f64::from(self).cos() as Self
                } else {
                    self.cos_near::<I>()
                }
            }
            #[inline(always)]
            fn tan_on<I: Isa>(self) -> Self {
                if self.is_far() {
                    f64::from(self).tan() as Self
                } else {
                    self.tan_near::<I>()
                }
            }
            #[inline(always)]
            fn exp_on<I: Isa>(self) -> Self {
                exp::exp::<I, Self>(self)
            }
            #[inline(always)]
            fn tanh_on<I: Isa>(self) -> Self {
                hyperbolic::tanh::<I, Self>(self)
            }
            #[inline(always)]
            fn silu_on<I: Isa>(self) -> Self {
                activation::silu::<I, Self>(self)
            }
            #[inline(always)]
            fn gelu_on<I: Isa>(self) -> Self {
                erf::gelu::<I, Self>(self)
            }
            #[inline(always)]
            fn gelu_tanh_on<I: Isa>(self) -> Self {
                activation::gelu_tanh::<I, Self>(self)
            }
            $($own)*
        }
    };
}

math!(f32, {
    #[inline(always)]
    fn tan_near<I: Isa>(self) -> Self {
        trig::tan_near_f32::<I>(self)
    }
    #[inline(always)]
    fn asinh_on<I: Isa>(self) -> Self {
        hyperbolic::asinh_f32::<I>(self)
    }
    #[inline(always)]
    fn acosh_on<I: Isa>(self) -> Self {
        hyperbolic::acosh_f32::<I>(self)
    }
    #[inline(always)]
    fn atanh_on<I: Isa>(self) -> Self {
        hyperbolic::atanh_f32::<I>(self)
    }
    #[inline(always)]
    fn cbrt_on<I: Isa>(self) -> Self {
        power::cbrt_f32::<I>(self)
    }
    #[inline(always)]
    fn pow_on<I: Isa>(self, y: Self) -> Self {
        power::pow_f32::<I>(self, y)
    }
    #[inline(always)]
    fn atan2_on<I: Isa>(self, x: Self) -> Self {
        inverse_trig::angle::<I, f64>(f64::from(self), f64::from(x)) as Self
    }
    #[inline(always)]
    fn hypot_on<I: Isa>(self, y: Self) -> Self {
        power::hypot_f32(self, y)
    }
});
math!(f64, {
    #[inline(always)]
    fn tan_near<I: Isa>(self) -> Self {
        trig::tan_near::<I, Self>(self)
    }
    #[inline(always)]
    fn asinh_on<I: Isa>(self) -> Self {
        hyperbolic::asinh_f64::<I>(self)
    }
    #[inline(always)]
    fn acosh_on<I: Isa>(self) -> Self {
        hyperbolic::acosh_f64::<I>(self)
    }
    #[inline(always)]
    fn atanh_on<I: Isa>(self) -> Self {
        hyperbolic::atanh_f64::<I>(self)
    }
    #[inline(always)]
    fn cbrt_on<I: Isa>(self) -> Self {
        power::cbrt_f64::<I>(self)
    }
    #[inline(always)]
    fn pow_on<I: Isa>(self, y: Self) -> Self {
        power::pow_f64::<I>(self, y)
    }
    #[inline(always)]
    fn atan2_on<I: Isa>(self, x: Self) -> Self {
        inverse_trig::angle::<I, Self>(self, x)
    }
    #[inline(always)]
    fn hypot_on<I: Isa>(self, y: Self) -> Self {
        power::hypot_f64(self, y)
    }
});
