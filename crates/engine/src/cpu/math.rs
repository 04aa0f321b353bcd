//! Elementary functions, free of branches, that vectorise when a loop that calls them is inlined into a
//! [`simd::Task`](super::simd::Task).
//!
//! Call them from the loop itself or from functions that are `#[inline(always)]`: a closure, or a function
//! passed as a value, is inlined as the optimiser sees fit, and if it is not, runs without the level's
//! instructions, an order of magnitude slower.
//!
//! Every function takes the whole range of its type: signed zeros, subnormal numbers (in and out),
//! infinities and NaN give what C99 (and so NumPy) prescribes. Sines, cosines and tangents of large
//! arguments are the one place with a choice to make: see [`trig`].
//!
//! The errors stand in the table [`ULP`], which the tests hold at every level. In f32, `asinh`,
//! `acosh`, `atan2`, `hypot` and `pow` are computed in f64 and rounded once. In f64 and
//! without FMA, `pow` is the standard library's, element by element.
mod activation;
mod erf;
mod exp;
pub(crate) mod half;
mod hyperbolic;
mod inverse_trig;
mod log;
mod power;
mod real;
#[cfg(test)]
mod tests;
pub(crate) mod trig;

use super::simd::Isa;

/// The largest error of each function in f32 and f64, in units in the last place of the result: as
/// measured with and without FMA, f32 on a walk through all bit patterns, f64 on 12,000 numbers of all
/// sorts against 50 digits, and rounded up.
#[cfg(test)]
const ULP: [(&str, f64, f64); 33] = [
    ("exp", 1.0, 1.0),
    ("exp2", 1.1, 1.2),
    ("expm1", 1.4, 1.8),
    ("log", 0.8, 0.8),
    ("log2", 0.7, 0.7),
    ("log10", 0.6, 0.7),
    ("log1p", 1.3, 0.9),
    ("sin", 1.4, 0.8),
    ("cos", 1.4, 0.8),
    ("tan", 1.3, 2.0),
    ("asin", 2.3, 2.2),
    ("acos", 1.1, 1.2),
    ("atan", 1.8, 1.2),
    ("sinh", 1.4, 1.6),
    ("cosh", 1.4, 1.5),
    ("tanh", 1.2, 1.4),
    ("asinh", 0.6, 1.8),
    ("acosh", 0.6, 1.8),
    ("atanh", 1.4, 1.8),
    ("erf", 1.0, 1.2),
    ("cbrt", 0.6, 0.6),
    ("rsqrt", 1.5, 1.5),
    ("sigmoid", 1.8, 1.8),
    ("log_sigmoid", 1.5, 1.8),
    ("softplus", 1.6, 1.8),
    ("silu", 2.9, 3.0),
    ("gelu", 2.6, 3.8),
    ("gelu_tanh", 2.7, 2.7),
    ("mish", 3.2, 3.2),
    ("elu", 1.6, 2.0),
    ("pow", 0.6, 1.4),
    ("atan2", 0.6, 2.2),
    ("hypot", 0.6, 1.3),
];

/// The functions, for `f32` and `f64`.
pub(crate) trait Math: Copy {
    /// Whether `…_near` does not hold for this number.
    fn is_far(self) -> bool;
    /// The sine of a number that is not far.
    fn sin_near<I: Isa>(self) -> Self;
    /// The cosine of a number that is not far.
    fn cos_near<I: Isa>(self) -> Self;
    /// The tangent of a number that is not far.
    fn tan_near<I: Isa>(self) -> Self;
    /// The sine of any number; a loop of these does not vectorise.
    fn sin_on<I: Isa>(self) -> Self;
    /// The cosine of any number; a loop of these does not vectorise.
    fn cos_on<I: Isa>(self) -> Self;
    /// The tangent of any number; a loop of these does not vectorise.
    fn tan_on<I: Isa>(self) -> Self;
    /// `e^x`.
    fn exp_on<I: Isa>(self) -> Self;
    /// `2^x`.
    fn exp2_on<I: Isa>(self) -> Self;
    /// `e^x - 1`, accurate near 0.
    fn expm1_on<I: Isa>(self) -> Self;
    /// The natural logarithm.
    fn log_on<I: Isa>(self) -> Self;
    /// The logarithm of base 2.
    fn log2_on<I: Isa>(self) -> Self;
    /// The logarithm of base 10.
    fn log10_on<I: Isa>(self) -> Self;
    /// `log(1 + x)`, accurate near 0.
    fn log1p_on<I: Isa>(self) -> Self;
    /// The arc sine.
    fn asin_on<I: Isa>(self) -> Self;
    /// The arc cosine.
    fn acos_on<I: Isa>(self) -> Self;
    /// The arc tangent.
    fn atan_on<I: Isa>(self) -> Self;
    /// The hyperbolic sine.
    fn sinh_on<I: Isa>(self) -> Self;
    /// The hyperbolic cosine.
    fn cosh_on<I: Isa>(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh_on<I: Isa>(self) -> Self;
    /// The inverse hyperbolic sine.
    fn asinh_on<I: Isa>(self) -> Self;
    /// The inverse hyperbolic cosine.
    fn acosh_on<I: Isa>(self) -> Self;
    /// The inverse hyperbolic tangent.
    fn atanh_on<I: Isa>(self) -> Self;
    /// The error function.
    fn erf_on<I: Isa>(self) -> Self;
    /// The cube root.
    fn cbrt_on<I: Isa>(self) -> Self;
    /// `1 / √x`.
    fn rsqrt_on<I: Isa>(self) -> Self;
    /// `1 / (1 + e^-x)`.
    fn sigmoid_on<I: Isa>(self) -> Self;
    /// `log(sigmoid x)`.
    fn log_sigmoid_on<I: Isa>(self) -> Self;
    /// `log(1 + e^x)`.
    fn softplus_on<I: Isa>(self) -> Self;
    /// `x·sigmoid(x)`.
    fn silu_on<I: Isa>(self) -> Self;
    /// `x·Φ(x)`, Φ the normal distribution.
    fn gelu_on<I: Isa>(self) -> Self;
    /// `x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2`.
    fn gelu_tanh_on<I: Isa>(self) -> Self;
    /// `x·tanh(softplus x)`.
    fn mish_on<I: Isa>(self) -> Self;
    /// `x`, or `alpha·(e^x - 1)` where x is not positive.
    fn elu_on<I: Isa>(self, alpha: Self) -> Self;
    /// `x^y`.
    fn pow_on<I: Isa>(self, y: Self) -> Self;
    /// The angle of the point (x, self).
    fn atan2_on<I: Isa>(self, x: Self) -> Self;
    /// `√(x² + y²)` without overflow on the way.
    fn hypot_on<I: Isa>(self, y: Self) -> Self;
}

/// Implements [`Math`] for a type: what both types share, the functions computed in the type itself, and
/// those that f32 computes in f64.
macro_rules! math {
    ($type:ident, { $($own:tt)* }) => {
        impl Math for $type {
            #[inline(always)]
            fn is_far(self) -> bool {
                self.abs() > trig::REACH as Self
            }
            #[inline(always)]
            fn sin_near<I: Isa>(self) -> Self {
                trig::Terms::sin_near::<I>(self)
            }
            #[inline(always)]
            fn cos_near<I: Isa>(self) -> Self {
                trig::Terms::cos_near::<I>(self)
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
            fn rsqrt_on<I: Isa>(self) -> Self {
                power::rsqrt(self)
            }
            #[inline(always)]
            fn elu_on<I: Isa>(self, alpha: Self) -> Self {
                activation::elu::<I, Self>(self, alpha)
            }
            #[inline(always)]
            fn exp_on<I: Isa>(self) -> Self {
                exp::exp::<I, Self>(self)
            }
            #[inline(always)]
            fn exp2_on<I: Isa>(self) -> Self {
                exp::exp2::<I, Self>(self)
            }
            #[inline(always)]
            fn expm1_on<I: Isa>(self) -> Self {
                exp::expm1::<I, Self>(self)
            }
            #[inline(always)]
            fn log_on<I: Isa>(self) -> Self {
                log::log::<I, Self>(self)
            }
            #[inline(always)]
            fn log2_on<I: Isa>(self) -> Self {
                log::log2::<I, Self>(self)
            }
            #[inline(always)]
            fn log10_on<I: Isa>(self) -> Self {
                log::log10::<I, Self>(self)
            }
            #[inline(always)]
            fn log1p_on<I: Isa>(self) -> Self {
                log::log1p::<I, Self>(self)
            }
            #[inline(always)]
            fn asin_on<I: Isa>(self) -> Self {
                inverse_trig::asin::<I, Self>(self)
            }
            #[inline(always)]
            fn acos_on<I: Isa>(self) -> Self {
                inverse_trig::acos::<I, Self>(self)
            }
            #[inline(always)]
            fn atan_on<I: Isa>(self) -> Self {
                inverse_trig::atan::<I, Self>(self)
            }
            #[inline(always)]
            fn sinh_on<I: Isa>(self) -> Self {
                hyperbolic::sinh::<I, Self>(self)
            }
            #[inline(always)]
            fn cosh_on<I: Isa>(self) -> Self {
                hyperbolic::cosh::<I, Self>(self)
            }
            #[inline(always)]
            fn tanh_on<I: Isa>(self) -> Self {
                hyperbolic::tanh::<I, Self>(self)
            }
            #[inline(always)]
            fn erf_on<I: Isa>(self) -> Self {
                erf::erf::<I, Self>(self)
            }
            #[inline(always)]
            fn sigmoid_on<I: Isa>(self) -> Self {
                activation::sigmoid::<I, Self>(self)
            }
            #[inline(always)]
            fn log_sigmoid_on<I: Isa>(self) -> Self {
                activation::log_sigmoid::<I, Self>(self)
            }
            #[inline(always)]
            fn softplus_on<I: Isa>(self) -> Self {
                activation::softplus::<I, Self>(self)
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
            #[inline(always)]
            fn mish_on<I: Isa>(self) -> Self {
                activation::mish::<I, Self>(self)
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
        inverse_trig::atan2::<I, f64>(f64::from(self), f64::from(x)) as Self
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
        hyperbolic::asinh::<I, Self>(self)
    }
    #[inline(always)]
    fn acosh_on<I: Isa>(self) -> Self {
        hyperbolic::acosh::<I, Self>(self)
    }
    #[inline(always)]
    fn atanh_on<I: Isa>(self) -> Self {
        hyperbolic::atanh::<I, Self>(self)
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
        inverse_trig::atan2::<I, Self>(self, x)
    }
    #[inline(always)]
    fn hypot_on<I: Isa>(self, y: Self) -> Self {
        power::hypot_f64(self, y)
    }
});
