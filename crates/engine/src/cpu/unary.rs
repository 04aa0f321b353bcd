//! Functions of one element on the CPU.

use super::map::{Kernel, map};
use super::math::{Math, trig};
use super::{cast, fused};
use crate::dispatch::{Input, Output};
use crate::ops::fused::Action;
use crate::ops::unary::Unary;
use crate::{DType, Result};

/// Runs the op.
pub(crate) fn run(op: &Unary, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    fused::run_one(Action::Unary(*op), inputs, output);
    Ok(())
}

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
                Unary::Rsqrt => map!($T => $T, |x| x.rsqrt_on::<I>()),
                Unary::Reciprocal => map!($T => $T, |x| 1.0 / x),
                Unary::Cbrt => map!(long $T => $T, |x| x.cbrt_on::<I>()),
                Unary::Exp => map!(long $T => $T, |x| x.exp_on::<I>()),
                Unary::Exp2 => map!(long $T => $T, |x| x.exp2_on::<I>()),
                Unary::Expm1 => map!(long $T => $T, |x| x.expm1_on::<I>()),
                Unary::Log => map!(long $T => $T, |x| x.log_on::<I>()),
                Unary::Log2 => map!(long $T => $T, |x| x.log2_on::<I>()),
                Unary::Log10 => map!(long $T => $T, |x| x.log10_on::<I>()),
                Unary::Log1p => map!(long $T => $T, |x| x.log1p_on::<I>()),
                Unary::Sin => map!([$T] => [$T], |from, to| trig::sin::<I, $T>(from, to)),
                Unary::Cos => map!([$T] => [$T], |from, to| trig::cos::<I, $T>(from, to)),
                Unary::Tan => map!([$T] => [$T], |from, to| trig::tan::<I, $T>(from, to)),
                Unary::Asin => map!(long $T => $T, |x| x.asin_on::<I>()),
                Unary::Acos => map!(long $T => $T, |x| x.acos_on::<I>()),
                Unary::Atan => map!(long $T => $T, |x| x.atan_on::<I>()),
                Unary::Sinh => map!(long $T => $T, |x| x.sinh_on::<I>()),
                Unary::Cosh => map!(long $T => $T, |x| x.cosh_on::<I>()),
                Unary::Tanh => map!(long $T => $T, |x| x.tanh_on::<I>()),
                Unary::Asinh => map!(long $T => $T, |x| x.asinh_on::<I>()),
                Unary::Acosh => map!(long $T => $T, |x| x.acosh_on::<I>()),
                Unary::Atanh => map!(long $T => $T, |x| x.atanh_on::<I>()),
                Unary::Erf => map!(long $T => $T, |x| x.erf_on::<I>()),
                Unary::Sigmoid => map!(long $T => $T, |x| x.sigmoid_on::<I>()),
                Unary::LogSigmoid => map!(long $T => $T, |x| x.log_sigmoid_on::<I>()),
                Unary::Softplus => map!(long $T => $T, |x| x.softplus_on::<I>()),
                Unary::Relu => map!($T => $T, |x| relu(x)),
                Unary::Silu => map!(long $T => $T, |x| x.silu_on::<I>()),
                Unary::Gelu => map!(long $T => $T, |x| x.gelu_on::<I>()),
                Unary::GeluTanh => map!(long $T => $T, |x| x.gelu_tanh_on::<I>()),
                Unary::Hardswish => map!($T => $T, |x| x * ((x + 3.0).max(0.0).min(6.0) / 6.0)),
                Unary::Mish => map!(long $T => $T, |x| x.mish_on::<I>()),
                Unary::LeakyRelu(_) => map!($T => $T, |x; p| if x > 0.0 { x } else { x * p as $T }),
                Unary::Elu(_) => map!(long $T => $T, |x; p| x.elu_on::<I>(p as $T)),
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
                    cast::copy
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
