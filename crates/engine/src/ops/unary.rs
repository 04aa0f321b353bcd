//! Functions of one element: `exp`, `relu`, `is_nan`, ….

use std::hash::{Hash, Hasher};

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::{DType, Error, Kind, Result, Tensor};

/// The result type of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// That of the input.
    Same,
    /// That of the input; not for truth values.
    Number,
    /// That of the input where it is a float, otherwise the float that holds it.
    Float,
    /// A truth value.
    Bool,
}

/// Declares [`Unary`] with its names and result types, and the methods of the functions without
/// parameters.
macro_rules! unary {
    ($($(#[$doc:meta])* $variant:ident $name:ident $result:ident;)*) => {
        /// A function of one element.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Unary {
            $($(#[$doc])* $variant,)*
            /// `x` above 0, `slope * x` below.
            LeakyRelu(f64),
            /// `x` above 0, `alpha * (exp(x) - 1)` below.
            Elu(f64),
        }

        impl Unary {
            /// All of them, those with a parameter with 0.
            pub(crate) const ALL: &[Self] =
                &[$(Self::$variant,)* Self::LeakyRelu(0.0), Self::Elu(0.0)];

            /// The result type.
            pub(crate) const fn result(self) -> Answer {
                match self {
                    $(Self::$variant => Answer::$result,)*
                    Self::LeakyRelu(_) | Self::Elu(_) => Answer::Float,
                }
            }
        }

        impl Rule for Unary {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                    Self::LeakyRelu(_) => "leaky_relu",
                    Self::Elu(_) => "elu",
                }
            }

            fn measured_as(&self) -> Option<OpClass> {
                Some(OpClass::Elementwise)
            }

            fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
                let x = inputs[0].dtype();
                Ok((self.check(x)?, *inputs[0].shape()))
            }
        }

        impl Tensor {
            $($(#[$doc])* pub fn $name(&self) -> Self {
                self.unary(Unary::$variant)
            })*
        }
    };
}

unary! {
    /// `-x`; integers wrap.
    Neg neg Number;
    /// `|x|`; the least integer stays itself.
    Abs abs Same;
    /// -1, 0 or 1, and NaN for NaN.
    Sign sign Number;
    /// `x * x`.
    Square square Number;
    /// The square root; NaN below 0.
    Sqrt sqrt Float;
    /// `1 / sqrt(x)`.
    Rsqrt rsqrt Float;
    /// `1 / x`.
    Reciprocal reciprocal Float;
    /// The cube root, also of negative numbers.
    Cbrt cbrt Float;
    /// `e^x`.
    Exp exp Float;
    /// `2^x`.
    Exp2 exp2 Float;
    /// `e^x - 1`, exact near 0.
    Expm1 expm1 Float;
    /// The natural logarithm.
    Log log Float;
    /// The logarithm to base 2.
    Log2 log2 Float;
    /// The logarithm to base 10.
    Log10 log10 Float;
    /// `log(1 + x)`, exact near 0.
    Log1p log1p Float;
    /// The sine of radians.
    Sin sin Float;
    /// The cosine of radians.
    Cos cos Float;
    /// The tangent of radians.
    Tan tan Float;
    /// The inverse sine.
    Asin asin Float;
    /// The inverse cosine.
    Acos acos Float;
    /// The inverse tangent.
    Atan atan Float;
    /// The hyperbolic sine.
    Sinh sinh Float;
    /// The hyperbolic cosine.
    Cosh cosh Float;
    /// The hyperbolic tangent.
    Tanh tanh Float;
    /// The inverse hyperbolic sine.
    Asinh asinh Float;
    /// The inverse hyperbolic cosine.
    Acosh acosh Float;
    /// The inverse hyperbolic tangent.
    Atanh atanh Float;
    /// The error function.
    Erf erf Float;
    /// `1 / (1 + exp(-x))`.
    Sigmoid sigmoid Float;
    /// `log(sigmoid(x))`.
    LogSigmoid log_sigmoid Float;
    /// `log(1 + exp(x))`.
    Softplus softplus Float;
    /// `max(x, 0)`; NaN stays NaN.
    Relu relu Number;
    /// `x * sigmoid(x)`.
    Silu silu Float;
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu gelu Float;
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³))) / 2`.
    GeluTanh gelu_tanh Float;
    /// `x * clamp(x + 3, 0, 6) / 6`.
    Hardswish hardswish Float;
    /// `x * tanh(softplus(x))`.
    Mish mish Float;
    /// The next integer up.
    Ceil ceil Same;
    /// The next integer down.
    Floor floor Same;
    /// The nearest integer; halves to the even one.
    Round round Same;
    /// The integer part.
    Trunc trunc Same;
    /// Whether it is not a number.
    IsNan is_nan Bool;
    /// Whether it is infinite.
    IsInf is_inf Bool;
    /// Whether it is neither infinite nor NaN.
    IsFinite is_finite Bool;
    /// Whether it is 0.
    LogicalNot logical_not Bool;
    /// All bits turned over; `not` for truth values.
    BitwiseNot bitwise_not Same;
}

impl Unary {
    /// The parameter, 0 where there is none.
    pub(crate) const fn parameter(self) -> f64 {
        match self {
            Self::LeakyRelu(p) | Self::Elu(p) => p,
            _ => 0.0,
        }
    }

    /// The result type for an input type, or why there is none.
    fn check(self, x: DType) -> Result<DType> {
        let refuse = |expected| Error::BadDType {
            op: self.name(),
            dtype: x,
            expected,
        };
        if matches!(self, Self::BitwiseNot) && x.is_float() {
            return Err(refuse("integers and truth values have bits"));
        }
        match self.result() {
            Answer::Number if x.kind() == Kind::Bool => Err(refuse("a number type")),
            Answer::Same | Answer::Number => Ok(x),
            Answer::Float => Ok(x.to_float()),
            Answer::Bool => Ok(DType::Bool),
        }
    }

    fn key(self) -> (std::mem::Discriminant<Self>, u64) {
        (std::mem::discriminant(&self), self.parameter().to_bits())
    }
}

impl PartialEq for Unary {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Unary {}

impl Hash for Unary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Tensor {
    /// Kernels see inputs that already have the type the function computes in.
    fn unary(&self, op: Unary) -> Self {
        match op.result() {
            Answer::Float if !self.dtype().is_float() => {
                Self::apply(op, &[&self.cast(self.dtype().to_float())])
            }
            _ => Self::apply(op, &[self]),
        }
    }

    /// `x` above 0, `slope * x` below.
    pub fn leaky_relu(&self, slope: f64) -> Self {
        self.unary(Unary::LeakyRelu(slope))
    }

    /// `x` above 0, `alpha * (exp(x) - 1)` below.
    pub fn elu(&self, alpha: f64) -> Self {
        self.unary(Unary::Elu(alpha))
    }
}
