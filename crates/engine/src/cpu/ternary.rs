//! Functions of three elements on the CPU.

use super::fused;
use super::map::{ElementwiseKernel, map};
use crate::dispatch::{Input, Output};
use crate::ops::fused::Action;
use crate::ops::ternary::Ternary;
use crate::{DType, Result};

/// Runs the op.
pub(crate) fn run(op: &Ternary, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    fused::run_one(Action::Ternary(*op), inputs, output);
    Ok(())
}

/// The kernel of a function for elements of a type. `f16` and `bf16` are computed as `f32`.
pub(crate) fn kernel(op: Ternary, dtype: DType) -> ElementwiseKernel {
    match op {
        // Moves bits, whatever the type.
        Ternary::Select => match dtype.size() {
            1 => map!(u8, u8, |c, a, b| if c != 0 { a } else { b }),
            2 => map!(u8, u16, |c, a, b| if c != 0 { a } else { b }),
            4 => map!(u8, u32, |c, a, b| if c != 0 { a } else { b }),
            _ => map!(u8, u64, |c, a, b| if c != 0 { a } else { b }),
        },
        Ternary::Clamp => match dtype {
            DType::F32 => map!(f32, f32, |x, low, high| clamp_f32(x, low, high)),
            DType::F64 => map!(f64, f64, |x, low, high| clamp_f64(x, low, high)),
            DType::Bool | DType::U8 => map!(u8, u8, |x, low, high| x.max(low).min(high)),
            DType::U16 => map!(u16, u16, |x, low, high| x.max(low).min(high)),
            DType::U32 => map!(u32, u32, |x, low, high| x.max(low).min(high)),
            DType::U64 => map!(u64, u64, |x, low, high| x.max(low).min(high)),
            DType::I8 => map!(i8, i8, |x, low, high| x.max(low).min(high)),
            DType::I16 => map!(i16, i16, |x, low, high| x.max(low).min(high)),
            DType::I32 => map!(i32, i32, |x, low, high| x.max(low).min(high)),
            DType::I64 => map!(i64, i64, |x, low, high| x.max(low).min(high)),
            DType::F16 | DType::BF16 => unreachable!("computed as f32"),
        },
        Ternary::MulAdd => match (dtype, dtype.size()) {
            // Rounded once at every SIMD level, by the library function without an FMA instruction.
            (DType::F32, _) => map!(f32, f32, |a, b, c| a.mul_add(b, c)),
            (DType::F64, _) => map!(f64, f64, |a, b, c| a.mul_add(b, c)),
            (_, 1) => map!(u8, u8, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            (_, 2) => map!(u16, u16, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            (_, 4) => map!(u32, u32, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            _ => map!(u64, u64, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        },
        Ternary::Lerp => match dtype {
            DType::F64 => map!(f64, f64, |a, b, t| a + t * (b - a)),
            _ => map!(f32, f32, |a, b, t| a + t * (b - a)),
        },
    }
}

macro_rules! clamp {
    ($name:ident, $T:ident) => {
        /// Clamps `x`; the result is NaN if any argument is.
        #[inline(always)]
        fn $name(x: $T, low: $T, high: $T) -> $T {
            // Comparisons with NaN are false, so a NaN `x` passes through both selections. The sum of the bounds is
            // NaN if either is.
            let raised = if x < low { low } else { x };
            let clamped = if raised > high { high } else { raised };
            let bounds = low + high;
            if low.is_nan() | high.is_nan() {
                bounds
            } else {
                clamped
            }
        }
    };
}
clamp!(clamp_f32, f32);
clamp!(clamp_f64, f64);
