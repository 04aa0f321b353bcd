//! Functions of two elements on the CPU.

use super::cast::{f64_to_i32, f64_to_u32};
use super::divmod::divmod;
use super::map::{ElementwiseKernel, map};
use super::{fused, math};
use crate::dispatch::{Input, Output};
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::{DType, Result};

/// Runs the op.
pub(crate) fn run(op: &Binary, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    fused::run_one(Action::Binary(*op), inputs, output);
    Ok(())
}

/// The kernel of a function for elements of a type. `f16` and `bf16` are computed as `f32`.
pub(crate) fn kernel(op: Binary, dtype: DType) -> ElementwiseKernel {
    // Functions that do not depend on the sign are compiled for unsigned integers only.
    let dtype = match op {
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Eq
        | Binary::Ne
        | Binary::BitwiseAnd
        | Binary::BitwiseOr
        | Binary::BitwiseXor
        | Binary::ShiftLeft => match dtype {
            DType::I8 => DType::U8,
            DType::I16 => DType::U16,
            DType::I32 => DType::U32,
            DType::I64 => DType::U64,
            other => other,
        },
        _ => dtype,
    };
    match dtype {
        DType::F32 => of_f32(op),
        DType::F64 => of_f64(op),
        DType::Bool => of_bool(op),
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

/// Booleans are 0 or 1.
fn of_bool(op: Binary) -> ElementwiseKernel {
    match op {
        Binary::Add | Binary::LogicalOr => of_u8(Binary::BitwiseOr),
        Binary::Mul | Binary::LogicalAnd => of_u8(Binary::BitwiseAnd),
        Binary::LogicalXor => of_u8(Binary::BitwiseXor),
        _ => of_u8(op),
    }
}

macro_rules! float {
    ($name:ident, $T:ident) => {
        fn $name(op: Binary) -> ElementwiseKernel {
            match op {
                Binary::Add => map!($T => $T, |a, b| a + b),
                Binary::Sub => map!($T => $T, |a, b| a - b),
                Binary::Mul => map!($T => $T, |a, b| a * b),
                Binary::Div => map!($T => $T, |a, b| a / b),
                Binary::FloorDiv => divmod::<$T, false>,
                Binary::Rem => divmod::<$T, true>,
                Binary::Pow => map!(long $T => $T, |a, b| math::power::pow::<I, $T>(a, b)),
                // With a NaN on the right, the comparison is false and selects it.
                Binary::Minimum => map!($T => $T, |a, b| if a < b || a.is_nan() { a } else { b }),
                Binary::Maximum => map!($T => $T, |a, b| if a > b || a.is_nan() { a } else { b }),
                Binary::Atan2 => map!(long $T => $T, |a, b| math::inverse_trig::atan2::<I, $T>(a, b)),
                Binary::Hypot => map!(long $T => $T, |a, b| math::power::hypot::<I, $T>(a, b)),
                Binary::Eq => map!($T => u8, |a, b| u8::from(a == b)),
                Binary::Ne => map!($T => u8, |a, b| u8::from(a != b)),
                Binary::Lt => map!($T => u8, |a, b| u8::from(a < b)),
                Binary::Le => map!($T => u8, |a, b| u8::from(a <= b)),
                Binary::Gt => map!($T => u8, |a, b| u8::from(a > b)),
                Binary::Ge => map!($T => u8, |a, b| u8::from(a >= b)),
                Binary::LogicalAnd
                | Binary::LogicalOr
                | Binary::LogicalXor
                | Binary::BitwiseAnd
                | Binary::BitwiseOr
                | Binary::BitwiseXor
                | Binary::ShiftLeft
                | Binary::ShiftRight => unreachable!("not for floats"),
            }
        }
    };
}
float!(of_f32, f32);
float!(of_f64, f64);

macro_rules! int {
    ($name:ident, $T:ident, $U:ident, $sign:ident, $div:ident) => {
        fn $name(op: Binary) -> ElementwiseKernel {
            match op {
                Binary::Add => map!($U => $U, |a, b| a.wrapping_add(b)),
                Binary::Sub => map!($U => $U, |a, b| a.wrapping_sub(b)),
                Binary::Mul => map!($U => $U, |a, b| a.wrapping_mul(b)),
                Binary::FloorDiv => $div!(div $sign $T),
                Binary::Rem => $div!(rem $sign $T),
                Binary::Pow => map!($T => $T, |a, b| $sign!(pow $T, a, b)),
                Binary::Minimum => map!($T => $T, |a, b| a.min(b)),
                Binary::Maximum => map!($T => $T, |a, b| a.max(b)),
                Binary::Eq => map!($U => u8, |a, b| u8::from(a == b)),
                Binary::Ne => map!($U => u8, |a, b| u8::from(a != b)),
                Binary::Lt => map!($T => u8, |a, b| u8::from(a < b)),
                Binary::Le => map!($T => u8, |a, b| u8::from(a <= b)),
                Binary::Gt => map!($T => u8, |a, b| u8::from(a > b)),
                Binary::Ge => map!($T => u8, |a, b| u8::from(a >= b)),
                Binary::BitwiseAnd => map!($U => $U, |a, b| a & b),
                Binary::BitwiseOr => map!($U => $U, |a, b| a | b),
                Binary::BitwiseXor => map!($U => $U, |a, b| a ^ b),
                // A negative count is a huge unsigned number.
                Binary::ShiftLeft => map!($U => $U, |a, b| {
                    let moved = a.wrapping_shl(b as u32);
                    if b < $U::BITS as $U { moved } else { 0 }
                }),
                Binary::ShiftRight => map!($T => $T, |a, b| $sign!(shift $T, $U, a, b)),
                Binary::Div
                | Binary::Atan2
                | Binary::Hypot
                | Binary::LogicalAnd
                | Binary::LogicalOr
                | Binary::LogicalXor => unreachable!("not for integers"),
            }
        }
    };
}

/// Division of integers of at most 32 bits: there are no vector instructions for it, but `f64` represents the
/// operands exactly. A quotient that is not an integer is at least `1 / b` away from one; rounding changes it by at
/// most `2^-53 * a / b`, which is less.
macro_rules! by_float {
    (div $sign:ident $T:ident) => {
        map!($T => $T, |a, b| by_float!(div $sign $T, a, b))
    };
    (rem $sign:ident $T:ident) => {
        map!($T => $T, |a, b| by_float!(rem $sign $T, a, b))
    };
    (div $sign:ident $T:ident, $a:ident, $b:ident) => {{
        let quotient = (f64::from($a) / f64::from($b)).floor();
        // Division by 0 gives 0; the minimum divided by -1 wraps.
        let quotient = if $b == 0 { 0.0 } else { quotient };
        quotient_as!($sign quotient) as $T
    }};
    (rem $sign:ident $T:ident, $a:ident, $b:ident) => {{
        let quotient = by_float!(div $sign $T, $a, $b);
        let remainder = $a.wrapping_sub(quotient.wrapping_mul($b));
        if $b == 0 { 0 } else { remainder }
    }};
}

/// Converts a quotient of at most 32 bits to an integer, wrapping.
macro_rules! quotient_as {
    (signed $q:ident) => {
        // Only 2³¹ is out of range; a saturating conversion would not wrap.
        if $q == 2_147_483_648.0 {
            i32::MIN
        } else {
            f64_to_i32($q)
        }
    };
    (unsigned $q:ident) => {
        f64_to_u32($q)
    };
}

/// Division of 64-bit integers.
macro_rules! by_chunks {
    (div $sign:ident $T:ident) => {
        divmod::<$T, false>
    };
    (rem $sign:ident $T:ident) => {
        divmod::<$T, true>
    };
}

/// `a` to the power of `b`, wrapping, for `b >= 0`: exponentiation by squaring.
macro_rules! power {
    ($T:ident, $a:ident, $b:ident) => {{
        let (mut base, mut exponent, mut product): ($T, $T, $T) = ($a, $b, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                product = product.wrapping_mul(base);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        product
    }};
}
macro_rules! unsigned {
    (pow $T:ident, $a:ident, $b:ident) => {
        power!($T, $a, $b)
    };
    (shift $T:ident, $U:ident, $a:ident, $b:ident) => {{
        let moved = $a.wrapping_shr($b as u32);
        if $b < $T::BITS as $T { moved } else { 0 }
    }};
}

macro_rules! signed {
    (pow $T:ident, $a:ident, $b:ident) => {
        if $b >= 0 {
            power!($T, $a, $b)
        } else {
            match $a {
                1 => 1,
                -1 => 1 - 2 * ($b & 1),
                _ => 0,
            }
        }
    };
    (shift $T:ident, $U:ident, $a:ident, $b:ident) => {
        $a.wrapping_shr(($b as $U).min($T::BITS as $U - 1) as u32)
    };
}

int!(of_u8, u8, u8, unsigned, by_float);
int!(of_u16, u16, u16, unsigned, by_float);
int!(of_u32, u32, u32, unsigned, by_float);
int!(of_u64, u64, u64, unsigned, by_chunks);
int!(of_i8, i8, u8, signed, by_float);
int!(of_i16, i16, u16, signed, by_float);
int!(of_i32, i32, u32, signed, by_float);
int!(of_i64, i64, u64, signed, by_chunks);
