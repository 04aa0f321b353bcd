//! Functions of one element on the CPU.

use super::cast;
use super::map::{Kernel, map};
use crate::DType;
use crate::ops::unary::Unary;

/// The kernel of a function for elements of a type. `f16` and `bf16` are computed as `f32`.
pub(crate) fn kernel(op: Unary, dtype: DType) -> Kernel {
    match dtype {
        DType::F32 => of_f32(op),
        DType::F64 => of_f64(op),
        DType::Bool => match op {
            Unary::BitwiseNot => map!(u8 => u8, |x| x ^ 1),
            _ => of_u8(op),
        },
        DType::U8 => of_u8(op),
        DType::U16 => of_u16(op),
        DType::U32 => of_u32(op),
        DType::U64 => of_u64(op),
        DType::I8 => of_i8(op),
        DType::I16 => of_i16(op),
        DType::I32 => of_i32(op),
        DType::I64 => of_i64(op),
        DType::F16 | DType::BF16 => unreachable!("computed as f32"),
    }
}

macro_rules! float {
    ($name:ident, $T:ident) => {
        fn $name(op: Unary) -> Kernel {
            use std::$T::consts;
            match op {
                Unary::Neg => map!($T => $T, |x| -x),
                Unary::Abs => map!($T => $T, |x| x.abs()),
                // NaN is returned as it is; both zeros give 0.
                Unary::Sign => map!($T => $T, |x| if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else if x == 0.0 {
                    0.0
                } else {
                    x
                }),
                Unary::Square => map!($T => $T, |x| x * x),
                Unary::Sqrt => map!($T => $T, |x| x.sqrt()),
                Unary::Rsqrt => map!($T => $T, |x| 1.0 / x.sqrt()),
                Unary::Reciprocal => map!($T => $T, |x| 1.0 / x),
                Unary::Cbrt => map!($T => $T, |x| x.cbrt()),
                Unary::Exp => map!($T => $T, |x| x.exp()),
                Unary::Exp2 => map!($T => $T, |x| x.exp2()),
                Unary::Expm1 => map!($T => $T, |x| x.exp_m1()),
                Unary::Log => map!($T => $T, |x| x.ln()),
                Unary::Log2 => map!($T => $T, |x| x.log2()),
                Unary::Log10 => map!($T => $T, |x| x.log10()),
                Unary::Log1p => map!($T => $T, |x| x.ln_1p()),
                Unary::Sin => map!($T => $T, |x| x.sin()),
                Unary::Cos => map!($T => $T, |x| x.cos()),
                Unary::Tan => map!($T => $T, |x| x.tan()),
                Unary::Asin => map!($T => $T, |x| x.asin()),
                Unary::Acos => map!($T => $T, |x| x.acos()),
                Unary::Atan => map!($T => $T, |x| x.atan()),
                Unary::Sinh => map!($T => $T, |x| x.sinh()),
                Unary::Cosh => map!($T => $T, |x| x.cosh()),
                Unary::Tanh => map!($T => $T, |x| x.tanh()),
                Unary::Asinh => map!($T => $T, |x| x.asinh()),
                Unary::Acosh => map!($T => $T, |x| x.acosh()),
                Unary::Atanh => map!($T => $T, |x| x.atanh()),
                Unary::Erf => map!($T => $T, |x| erf(f64::from(x)) as $T),
                Unary::Sigmoid => map!($T => $T, |x| 1.0 / (1.0 + (-x).exp())),
                // Both forms hold everywhere; the exponent is never positive, so nothing overflows.
                Unary::LogSigmoid => map!($T => $T, |x| x.min(0.0) - (-x.abs()).exp().ln_1p() + (x - x)),
                Unary::Softplus => map!($T => $T, |x| relu(x) + (-x.abs()).exp().ln_1p()),
                Unary::Relu => map!($T => $T, |x| relu(x)),
                Unary::Silu => map!($T => $T, |x| x / (1.0 + (-x).exp())),
                Unary::Gelu => map!($T => $T, |x| {
                    0.5 * x * (1.0 + erf(f64::from(x * consts::FRAC_1_SQRT_2)) as $T)
                }),
                Unary::GeluTanh => map!($T => $T, |x| {
                    // sqrt(2 / pi)
                    let inner = consts::FRAC_2_SQRT_PI * consts::FRAC_1_SQRT_2 * (x + 0.044715 * x * x * x);
                    0.5 * x * (1.0 + inner.tanh())
                }),
                Unary::Hardswish => map!($T => $T, |x| x * (x + 3.0).max(0.0).min(6.0) / 6.0),
                Unary::Mish => map!($T => $T, |x| x * (relu(x) + (-x.abs()).exp().ln_1p()).tanh()),
                Unary::LeakyRelu(_) => map!($T => $T, |x; p| if x > 0.0 { x } else { x * p as $T }),
                Unary::Elu(_) => map!($T => $T, |x; p| if x > 0.0 { x } else { p as $T * x.exp_m1() }),
                Unary::Ceil => map!($T => $T, |x| x.ceil()),
                Unary::Floor => map!($T => $T, |x| x.floor()),
                Unary::Round => map!($T => $T, |x| x.round_ties_even()),
                Unary::Trunc => map!($T => $T, |x| x.trunc()),
                Unary::IsNan => map!($T => u8, |x| u8::from(x.is_nan())),
                Unary::IsInf => map!($T => u8, |x| u8::from(x.is_infinite())),
                Unary::IsFinite => map!($T => u8, |x| u8::from(x.is_finite())),
                Unary::LogicalNot => map!($T => u8, |x| u8::from(x == 0.0)),
                Unary::BitwiseNot => unreachable!("not for floats"),
            }
        }
    };
}
float!(of_f32, f32);
float!(of_f64, f64);

/// `max(x, 0)`, with NaN for NaN.
#[inline(always)]
fn relu<T: PartialOrd + Default>(x: T) -> T {
    if x <= T::default() { T::default() } else { x }
}

fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return 1.0_f64.copysign(x);
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

macro_rules! int {
    ($name:ident, $T:ident, $signed:expr, $abs:ident, $sign:ident) => {
        fn $name(op: Unary) -> Kernel {
            match op {
                Unary::Neg => map!($T => $T, |x| x.wrapping_neg()),
                Unary::Abs if $signed => map!($T => $T, |x| $abs!(x)),
                Unary::Sign => map!($T => $T, |x| $sign!(x, $T)),
                Unary::Square => map!($T => $T, |x| x.wrapping_mul(x)),
                Unary::Relu if $signed => map!($T => $T, |x| x.max(0)),
                Unary::LogicalNot => map!($T => u8, |x| u8::from(x == 0)),
                Unary::BitwiseNot => map!($T => $T, |x| !x),
                // Integers are finite.
                Unary::IsNan | Unary::IsInf => map!($T => u8, |_x| 0),
                Unary::IsFinite => map!($T => u8, |_x| 1),
                // What is an integer already, or positive.
                Unary::Abs | Unary::Relu | Unary::Ceil | Unary::Floor | Unary::Round | Unary::Trunc => {
                    cast::copy(size_of::<$T>())
                }
                _ => unreachable!("integers are converted to floats first"),
            }
        }
    };
}

macro_rules! signed {
    ($x:ident) => {
        $x.wrapping_abs()
    };
    ($x:ident, $T:ident) => {
        $T::from($x > 0) - $T::from($x < 0)
    };
}

macro_rules! unsigned {
    ($x:ident) => {
        $x
    };
    ($x:ident, $T:ident) => {
        $T::from($x > 0)
    };
}

int!(of_u8, u8, false, unsigned, unsigned);
int!(of_u16, u16, false, unsigned, unsigned);
int!(of_u32, u32, false, unsigned, unsigned);
int!(of_u64, u64, false, unsigned, unsigned);
int!(of_i8, i8, true, signed, signed);
int!(of_i16, i16, true, signed, signed);
int!(of_i32, i32, true, signed, signed);
int!(of_i64, i64, true, signed, signed);
