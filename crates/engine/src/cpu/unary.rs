//! Functions of one element on the CPU.

use super::map::{ElementwiseKernel, map};
use super::{cast, fused, math};
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
pub(crate) fn kernel(op: Unary, dtype: DType) -> ElementwiseKernel {
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

/// The float kernel of a row of the function table. Arithmetic is defined here; any other file is one of `cpu/math`.
macro_rules! function {
    ($T:ident, unary neg) => { map!($T => $T, |x| -x) };
    ($T:ident, unary abs) => { map!($T => $T, |x| x.abs()) };
    // NaN is returned unchanged; both zeros give 0.
    ($T:ident, unary sign) => {
        map!($T => $T, |x| if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else if x == 0.0 {
            0.0
        } else {
            x
        })
    };
    ($T:ident, unary square) => { map!($T => $T, |x| x * x) };
    ($T:ident, unary sqrt) => { map!($T => $T, |x| x.sqrt()) };
    ($T:ident, unary rsqrt) => { map!($T => $T, |x| math::power::rsqrt(x)) };
    ($T:ident, unary reciprocal) => { map!($T => $T, |x| 1.0 / x) };
    ($T:ident, unary relu) => { map!($T => $T, |x| relu(x)) };
    ($T:ident, unary hardswish) => { map!($T => $T, |x| x * ((x + 3.0).max(0.0).min(6.0) / 6.0)) };
    ($T:ident, unary leaky_relu slope) => { map!($T => $T, |x; p| if x > 0.0 { x } else { x * p as $T }) };
    ($T:ident, unary ceil) => { map!($T => $T, |x| x.ceil()) };
    ($T:ident, unary floor) => { map!($T => $T, |x| x.floor()) };
    ($T:ident, unary round) => { map!($T => $T, |x| x.round_ties_even()) };
    ($T:ident, unary trunc) => { map!($T => $T, |x| x.trunc()) };
    ($T:ident, unary is_nan) => { map!($T => u8, |x| u8::from(x.is_nan())) };
    ($T:ident, unary is_inf) => { map!($T => u8, |x| u8::from(x.is_infinite())) };
    ($T:ident, unary is_finite) => { map!($T => u8, |x| u8::from(x.is_finite())) };
    ($T:ident, unary logical_not) => { map!($T => u8, |x| u8::from(x == 0.0)) };
    ($T:ident, unary bitwise_not) => { unreachable!("not for floats") };
    ($T:ident, trig $name:ident) => { map!([$T] => [$T], |from, to| math::trig::$name::<I, $T>(from, to)) };
    ($T:ident, $file:ident $name:ident) => { map!(long $T => $T, |x| math::$file::$name::<I, $T>(x)) };
    ($T:ident, $file:ident $name:ident $parameter:ident) => {
        map!(long $T => $T, |x; p| math::$file::$name::<I, $T>(x, p as $T))
    };
}

macro_rules! float {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($parameter:ident = $sample:literal))? $result:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        fn of_f32(op: Unary) -> ElementwiseKernel {
            match op {
                $(Unary::$variant { .. } => function!(f32, $file $name $($parameter)?),)*
            }
        }

        fn of_f64(op: Unary) -> ElementwiseKernel {
            match op {
                $(Unary::$variant { .. } => function!(f64, $file $name $($parameter)?),)*
            }
        }
    };
}

crate::for_each_unary!(float);

/// `max(x, 0)`, with NaN for NaN.
#[inline(always)]
fn relu<T: PartialOrd + Default>(x: T) -> T {
    if x <= T::default() { T::default() } else { x }
}

macro_rules! int {
    ($name:ident, $T:ident, $signed:expr, $abs:ident, $sign:ident) => {
        fn $name(op: Unary) -> ElementwiseKernel {
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
                // Identities: the value is an integer already, or positive.
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
