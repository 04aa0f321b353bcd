//! Functions of one value.

use bessemer::{DType, Kind, Tensor};

use super::erf::{erf, erfc};
use crate::Array;
use crate::number::{Value, wrap};
use crate::subnormal::operand;

/// Declares [`Unary`] from the engine's table: only the names, not the arithmetic.
macro_rules! declare {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($parameter:ident = $sample:literal))? $result:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        /// A function of one value.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Unary {
            $($(#[$doc])* $variant $((declare!(@type $parameter)))?,)*
        }

        use Unary::{$($variant),*};

        impl Unary {
            /// All functions, with the parameters of the table.
            pub const ALL: &[Self] = &[$($variant $(($sample))?,)*];

            /// The engine's name of the function.
            pub fn name(self) -> &'static str {
                match self {
                    $($variant { .. } => stringify!($name),)*
                }
            }

            /// The function with another parameter, if it has one.
            pub fn with(self, parameter: f64) -> Self {
                match self {
                    $($variant { .. } => $variant $((declare!(@value $parameter, parameter)))?,)*
                }
            }

            /// The engine's function.
            pub fn call(self, x: &Tensor) -> Tensor {
                match self {
                    $($variant $(($parameter))? => x.$name($($parameter)?),)*
                }
            }
        }
    };
    (@type $parameter:ident) => { f64 };
    (@value $parameter:ident, $value:ident) => { $value };
}

bessemer::for_each_unary!(declare);

impl Unary {
    /// The result type for elements of `dtype`, or `None` if the function is not defined.
    pub fn dtype(self, dtype: DType) -> Option<DType> {
        let number = |out| (dtype.kind() != Kind::Bool).then_some(out);
        match self {
            IsNan | IsInf | IsFinite | LogicalNot => Some(DType::Bool),
            BitwiseNot => (!dtype.is_float()).then_some(dtype),
            Neg | Sign | Square | Relu => number(dtype),
            Abs | Ceil | Floor | Round | Trunc => Some(dtype),
            _ => Some(dtype.to_float()),
        }
    }

    /// Applies the function to a value of type `dtype`; a float is not rounded.
    pub fn apply(self, dtype: DType, v: Value) -> Value {
        match v {
            Value::Int(i) => match self {
                Neg => Value::Int(wrap(dtype, -i)),
                Abs => Value::Int(wrap(dtype, i.abs())),
                Sign => Value::Int(i.signum()),
                Square => Value::Int(wrap(dtype, i.wrapping_mul(i))),
                Relu => Value::Int(i.max(0)),
                Ceil | Floor | Round | Trunc => v,
                IsNan | IsInf => false.into(),
                IsFinite => true.into(),
                LogicalNot => (i == 0).into(),
                BitwiseNot if dtype == DType::Bool => (i == 0).into(),
                BitwiseNot => Value::Int(wrap(dtype, !i)),
                _ => Value::Float(self.float(i as f64)),
            },
            Value::Float(x) => match self {
                IsNan => x.is_nan().into(),
                IsInf => x.is_infinite().into(),
                IsFinite => x.is_finite().into(),
                LogicalNot => (x == 0.0).into(),
                _ => Value::Float(self.float(x)),
            },
        }
    }

    /// Applies the function to a float.
    ///
    /// # Panics
    ///
    /// If the result is a boolean.
    pub fn float(self, x: f64) -> f64 {
        match self {
            Neg => -x,
            Abs => x.abs(),
            Sign if x == 0.0 || x.is_nan() => x,
            Sign => x.signum(),
            Square => x * x,
            Sqrt => x.sqrt(),
            Rsqrt => 1.0 / x.sqrt(),
            Reciprocal => 1.0 / x,
            Cbrt => x.cbrt(),
            Exp => x.exp(),
            Exp2 => x.exp2(),
            Expm1 => x.exp_m1(),
            Log => x.ln(),
            Log2 => x.log2(),
            Log10 => x.log10(),
            Log1p => x.ln_1p(),
            Logit => logit(x),
            Sin => x.sin(),
            Cos => x.cos(),
            Tan => x.tan(),
            Asin => x.asin(),
            Acos => x.acos(),
            Atan => x.atan(),
            Sinh => x.sinh(),
            Cosh => x.cosh(),
            Tanh => x.tanh(),
            Asinh => asinh(x),
            Acosh => acosh(x),
            Atanh => 0.5 * (x.ln_1p() - (-x).ln_1p()),
            Erf => erf(x),
            Sigmoid => sigmoid(x),
            LogSigmoid => -softplus(-x),
            Softplus => softplus(x),
            Relu if x.is_nan() => x,
            Relu => x.max(0.0),
            LeakyRelu(slope) => {
                if x < 0.0 {
                    slope * x
                } else {
                    x
                }
            }
            Elu(alpha) => {
                if x < 0.0 {
                    alpha * x.exp_m1()
                } else {
                    x
                }
            }
            // The limit, where the formula would be -∞ · 0.
            Silu | Gelu | GeluTanh | Mish if x == f64::NEG_INFINITY => -0.0,
            Silu => x * sigmoid(x),
            Gelu => gelu(x),
            GeluTanh => gelu_tanh(x),
            Hardswish => x * ((x + 3.0).clamp(0.0, 6.0) / 6.0),
            Mish => mish(x),
            Ceil => x.ceil(),
            Floor => x.floor(),
            Round => x.round_ties_even(),
            Trunc => x.trunc(),
            IsNan | IsInf | IsFinite | LogicalNot | BitwiseNot => {
                unreachable!("{self:?} has no float answer")
            }
        }
    }
}

/// Applies a function to every value.
pub fn unary(f: Unary, x: &Array) -> Array {
    let dtype = f
        .dtype(x.dtype)
        .unwrap_or_else(|| panic!("{f:?} of {}", x.dtype));
    x.map(dtype, |v| match f {
        // These move bits.
        Neg | Abs => f.apply(x.dtype, v),
        _ => f.apply(x.dtype, operand(x.dtype, v)),
    })
}

/// 1 / (1 + e⁻ˣ).
pub fn sigmoid(x: f64) -> f64 {
    if x < 0.0 {
        x.exp() / (1.0 + x.exp())
    } else {
        1.0 / (1.0 + (-x).exp())
    }
}

/// ln(x / (1 - x)); around ½, where that cancels, 2 artanh(2x - 1).
fn logit(x: f64) -> f64 {
    if (x - 0.5).abs() <= 0.25 {
        let t = 2.0 * x - 1.0;
        t.ln_1p() - (-t).ln_1p()
    } else {
        x.ln() - (-x).ln_1p()
    }
}

/// ln(1 + eˣ).
pub fn softplus(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// x Φ(x), with the Gaussian distribution function: ½ x erfc(-x / √2). For large |x|, an error of the argument is
/// amplified a hundred times in the result, so the argument is in double-double precision.
pub fn gelu(x: f64) -> f64 {
    let (t, rest) = times((-x, 0.0), ROOT_HALF);
    let slope = if rest.is_finite() {
        std::f64::consts::FRAC_2_SQRT_PI * (-t * t).exp() * rest
    } else {
        0.0
    };
    0.5 * x * (erfc(t) - slope)
}

/// ½ x (1 + tanh u) with u = √(2/π) (x + 0.044715 x³); 1 + tanh u is 2 sigmoid(2u). As above, 2u is in double-double
/// precision.
pub fn gelu_tanh(x: f64) -> f64 {
    if !x.is_finite() || x.abs() > 1e6 {
        return x * sigmoid(x);
    }
    let cubic = times(CUBIC, times((x, 0.0), (x, 0.0)));
    let sum = 1.0 + cubic.0;
    let inner = (sum, cubic.0 - (sum - 1.0) + cubic.1);
    let (v, rest) = times(TWICE_ROOT, times((x, 0.0), inner));
    if v < 0.0 {
        let e = v.exp() * (1.0 + rest);
        x * (e / (1.0 + e))
    } else {
        x / (1.0 + (-v).exp() * (1.0 - rest))
    }
}

/// 1/√2, 2√(2/π) and 0.044715, in double-double precision.
const ROOT_HALF: (f64, f64) = (std::f64::consts::FRAC_1_SQRT_2, -4.833646656726457e-17);
const TWICE_ROOT: (f64, f64) = (1.5957691216057308, -9.96930880911092e-17);
const CUBIC: (f64, f64) = (0.044715, 2.1960211427085595e-18);

/// The product of two double-doubles.
fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let high = a.0 * b.0;
    let low = a.0.mul_add(b.0, -high) + (a.0 * b.1 + a.1 * b.0);
    (high, low)
}

/// x tanh(softplus x), where the tangent is n / (n + 2) with n = eˣ (eˣ + 2).
fn mish(x: f64) -> f64 {
    if x > 40.0 {
        return x;
    }
    let n = x.exp() * (x.exp() + 2.0);
    x * (n / (n + 2.0))
}

/// Rust's own loses precision near 0 and overflows for large arguments.
fn asinh(x: f64) -> f64 {
    let a = x.abs();
    if a > 1e100 || a.is_nan() {
        return (a.ln() + std::f64::consts::LN_2).copysign(x);
    }
    let y = (a + a * a / (1.0 + (a * a + 1.0).sqrt())).ln_1p();
    y.copysign(x)
}

/// Rust's own loses precision near 1 and overflows for large arguments.
fn acosh(x: f64) -> f64 {
    if x.is_nan() || x < 1.0 {
        return f64::NAN;
    }
    if x > 1e100 {
        return x.ln() + std::f64::consts::LN_2;
    }
    let t = x - 1.0;
    (t + (2.0 * t + t * t).sqrt()).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_forty_digit_references() {
        let known = [
            (Gelu, -5.0, -1.4332578593959696e-6),
            (Gelu, -12.3, -5.570_309_556_075_305e-34),
            (Gelu, -30.5, -3.973_960_635_193_133e-203),
            (GeluTanh, -5.0, -2.291_796_196_629_506e-7),
            (GeluTanh, -12.3, -7.928_249_850_594_69e-66),
            (Gelu, 1.0, 0.841_344_746_068_542_9),
            (Gelu, -1.0, -0.15865525393145707),
            (GeluTanh, 1.0, 0.841_191_990_608_276_8),
            (GeluTanh, -3.0, -0.003_637_392_081_773_019),
            (Mish, 1.0, 0.865_098_388_267_310_3),
            (Mish, -2.0, -0.2525014826957089),
            (Silu, -1.0, -0.2689414213699951),
            (Softplus, 2.0, 2.1269280110429727),
            (LogSigmoid, -30.0, -30.000000000000092),
            (Hardswish, 1.0, 2.0 / 3.0),
            (Elu(1.5), -1.0, 1.5 * -0.632_120_558_828_557_7),
            (Asinh, 1e-9, 1e-9),
            (Asinh, -2.0, -1.4436354751788103),
            (Acosh, 1.5, 0.962_423_650_119_206_9),
            (Logit, 0.3, -0.847_297_860_387_203_6),
            (Logit, 1e-300, -690.775_527_898_213_7),
            (Atanh, 0.3, 0.309_519_604_203_111_75),
            (Atanh, 1e-12, 1e-12),
        ];
        for (f, x, expected) in known {
            let got = f.float(x);
            assert!((got / expected - 1.0).abs() < 3e-15, "{f:?}({x}) = {got}");
        }
    }

    #[test]
    fn special_values_are_handled() {
        for &f in Unary::ALL {
            if f.dtype(DType::F64) == Some(DType::F64) {
                assert!(f.float(f64::NAN).is_nan(), "{f:?}");
            }
        }
        assert_eq!(Softplus.float(f64::INFINITY), f64::INFINITY);
        assert_eq!(LogSigmoid.float(f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert_eq!(Atanh.float(1.0), f64::INFINITY);
        assert_eq!(Round.float(2.5), 2.0);
    }

    #[test]
    fn integers_wrap() {
        let byte = |f: Unary, i| f.apply(DType::I8, Value::Int(i));
        assert_eq!(byte(Neg, -128), Value::Int(-128));
        assert_eq!(byte(Abs, -128), Value::Int(-128));
        assert_eq!(byte(Square, 16), Value::Int(0));
        assert_eq!(byte(BitwiseNot, 5), Value::Int(-6));
        assert_eq!(BitwiseNot.apply(DType::U8, Value::Int(5)), Value::Int(250));
    }
}
