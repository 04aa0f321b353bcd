//! Elementary functions, free of branches, that vectorise when a loop that calls them is inlined into a
//! [`simd::Task`](super::simd::Task).
//!
//! Every function takes the whole range of its type: signed zeros, subnormal numbers (in and out),
//! infinities and NaN give what C99 (and so NumPy) prescribes. Sines, cosines and tangents of large
//! arguments are the one place with a choice to make: see [`trig`].
//!
//! The errors stand in the table `ULP` of the tests, which measure them at every level, in units in the
//! last place of the result, with and without FMA. In f32, `tan`, `asinh`, `acosh`, `atanh`, `atan2`,
//! `hypot`, `cbrt` and `pow` are computed in f64 and rounded once. In f64, `pow` is the standard
//! library's, element by element.
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
                trig::sin_near::<I, Self>(self)
            }
            #[inline(always)]
            fn cos_near<I: Isa>(self) -> Self {
                trig::cos_near::<I, Self>(self)
            }
            #[inline(always)]
            fn sin_on<I: Isa>(self) -> Self {
                if self.is_far() { self.sin() } else { self.sin_near::<I>() }
            }
            #[inline(always)]
            fn cos_on<I: Isa>(self) -> Self {
                if self.is_far() { self.cos() } else { self.cos_near::<I>() }
            }
            #[inline(always)]
            fn tan_on<I: Isa>(self) -> Self {
                if self.is_far() { self.tan() } else { self.tan_near::<I>() }
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
        trig::tan_near::<I, f64>(f64::from(self)) as Self
    }
    #[inline(always)]
    fn asinh_on<I: Isa>(self) -> Self {
        hyperbolic::asinh::<I, f64>(f64::from(self)) as Self
    }
    #[inline(always)]
    fn acosh_on<I: Isa>(self) -> Self {
        hyperbolic::acosh::<I, f64>(f64::from(self)) as Self
    }
    #[inline(always)]
    fn atanh_on<I: Isa>(self) -> Self {
        hyperbolic::atanh::<I, f64>(f64::from(self)) as Self
    }
    #[inline(always)]
    fn cbrt_on<I: Isa>(self) -> Self {
        power::cbrt_f64::<I>(f64::from(self)) as Self
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
        self.powf(y)
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
