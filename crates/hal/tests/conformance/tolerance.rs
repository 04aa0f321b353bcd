//! Tolerances: the accuracy tables of the Metal Shading Language specification (chapter "Numerical Compliance").

/// Maximum distance of a value from the exact one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// Units in the last place of a single-precision number.
    Ulp(f64),
    /// Units in the last place of a half-precision number.
    HalfUlp(f64),
    /// An absolute error.
    Absolute(f64),
}

impl Bound {
    /// Returns whether `got` is within the bound. NaN and infinities must match exactly.
    pub(crate) fn allows(self, got: f64, exact: f64) -> bool {
        if exact.is_nan() {
            return got.is_nan();
        }
        if exact.is_infinite() || got.is_nan() || got.is_infinite() {
            return got == exact;
        }
        let error = (got - exact).abs();
        match self {
            Self::Ulp(n) => error <= n * ulp(exact, 23, -126),
            Self::HalfUlp(n) => error <= n * ulp(exact, 10, -14),
            Self::Absolute(limit) => error <= limit,
        }
    }
}

/// The distance between neighbouring floats around `x`, for a format with this number of fraction bits.
fn ulp(x: f64, fraction_bits: i32, min_exponent: i32) -> f64 {
    let exponent = if x == 0.0 {
        min_exponent
    } else {
        (x.abs().log2().floor() as i32).max(min_exponent)
    };
    2_f64.powi(exponent - fraction_bits)
}

/// Correctly rounded.
pub(crate) const ROUNDED: Bound = Bound::Ulp(0.5);

/// Single precision, `metal::precise`.
pub(crate) fn precise(function: &str) -> Bound {
    Bound::Ulp(match function {
        "acos" | "acosh" | "asin" | "asinh" | "cos" | "cosh" | "cospi" | "exp" | "exp2"
        | "exp10" | "log" | "log2" | "log10" | "sin" | "sinh" | "sinpi" => 4.0,
        "atan" | "atanh" | "tanh" => 5.0,
        "atan2" | "tan" | "tanpi" => 6.0,
        "pow" | "powr" => 16.0,
        "rsqrt" => 2.0,
        "sqrt" | "fma" | "divide" | "reciprocal" => 0.5,
        other => panic!("no precise bound for `{other}`"),
    })
}

/// Single precision, `metal::fast`, for the argument `x` and the exact result.
///
/// The specification defines several of these by formulas of others (`pow` is `exp2(y * log2(x))`, `tan`
/// is `sin / cos`); their bounds are derived from those for the arguments of the suite.
pub(crate) fn fast(function: &str, x: f64, exact: f64) -> Bound {
    match function {
        "acos" | "asin" | "acosh" | "asinh" | "atanh" => Bound::Absolute(2_f64.powi(-11)),
        "atan" => Bound::Ulp(5.0),
        "atan2" => Bound::Absolute(2_f64.powi(-11)),
        "cos" | "sin" | "cospi" | "sinpi" => Bound::Absolute(2_f64.powi(-13)),
        "tan" | "tanpi" => Bound::Absolute(2_f64.powi(-12) * (1.0 + exact * exact) * 2.0),
        "exp" | "exp2" => Bound::Ulp(3.0 + (2.0 * x).abs().floor()),
        "exp10" => Bound::Ulp(4.0 + (8.0 * x).abs().floor()),
        "cosh" | "sinh" | "tanh" => {
            Bound::Absolute(exact.abs().max(x.abs().exp()) * 2_f64.powi(-19))
        }
        "log" | "log2" | "log10" if (0.5..=2.0).contains(&x) => Bound::Absolute(2_f64.powi(-21)),
        "log" | "log2" => Bound::Ulp(3.0),
        "log10" => Bound::Ulp(5.0),
        "pow" | "powr" => Bound::Absolute(exact.abs() * 2_f64.powi(-17)),
        "sqrt" => Bound::Ulp(3.0),
        "rsqrt" => Bound::Ulp(2.0),
        "divide" => Bound::Ulp(2.5),
        "reciprocal" => Bound::Ulp(1.0),
        other => panic!("no fast bound for `{other}`"),
    }
}

/// Half precision.
pub(crate) fn half(function: &str) -> Bound {
    Bound::HalfUlp(match function {
        "sqrt" => 0.5,
        _ => 1.0,
    })
}
