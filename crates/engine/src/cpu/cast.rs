//! Conversions on the CPU.

mod truncate;

use half::{bf16, f16};

use self::truncate::{f32_to_i32, f32_to_u32};
pub(super) use self::truncate::{f64_to_i32, f64_to_u32};
use super::fused;
use super::map::{Args, ElementwiseKernel, map};
use super::math::half::Half;
use super::simd::Isa;
use crate::dispatch::{Input, Output};
use crate::dtype::round_to_odd;
use crate::ops::cast::Cast;
use crate::ops::fused::Action;
use crate::{DType, Result};

/// Runs the op.
pub(crate) fn run(_op: &Cast, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    fused::run_one(Action::Cast, inputs, output);
    Ok(())
}

/// Copies elements.
pub(crate) fn copy(args: &Args<'_>, out: &mut [u8]) {
    out.copy_from_slice(&args.a[..out.len()]);
}

/// The maximum number of elements per call of [`convert`].
pub(crate) const CONVERT_BLOCK_LEN: usize = 256;

/// Converts a block, from a type other than `f16` and `bf16`.
pub(crate) fn convert(from: DType, to: DType, a: &[u8], out: &mut [u8]) {
    let args = |a| Args {
        a,
        ..Args::default()
    };
    if !matches!(to, DType::F16 | DType::BF16) {
        return kernel(from, to)(&args(a), out);
    }
    let mut wide = [0_f32; CONVERT_BLOCK_LEN];
    let wide: &mut [u8] = bytemuck::cast_slice_mut(&mut wide[..out.len() / to.size()]);
    narrowing(from)(&args(a), wide);
    narrow(to)(&args(wide), out);
}

/// The kernel that converts between types other than `f16` and `bf16`.
pub(crate) fn kernel(from: DType, to: DType) -> ElementwiseKernel {
    match (from, to) {
        (_, DType::Bool) => match (from, from.size()) {
            (DType::F32, _) => map!(f32 => u8, |x| u8::from(x != 0.0)),
            (DType::F64, _) => map!(f64 => u8, |x| u8::from(x != 0.0)),
            (_, 1) => map!(u8 => u8, |x| u8::from(x != 0)),
            (_, 2) => map!(u16 => u8, |x| u8::from(x != 0)),
            (_, 4) => map!(u32 => u8, |x| u8::from(x != 0)),
            _ => map!(u64 => u8, |x| u8::from(x != 0)),
        },
        // Includes f16 and bf16 once they are widened.
        _ if from == to => copy,
        (DType::F32, DType::F64) => map!(f32 => f64, |x| f64::from(x)),
        (DType::F64, DType::F32) => map!(f64 => f32, |x| x as f32),
        (_, DType::F32) => to_f32(from),
        (_, DType::F64) => to_f64(from),
        (DType::F32, _) => of_f32(to),
        (DType::F64, _) => of_f64(to),
        _ => between_ints(from, to),
    }
}

/// The kernel that converts to `f32` as an intermediate of a narrower float. The result is exact or rounded to odd, so
/// that rounding it again is the same as rounding once.
pub(crate) fn narrowing(from: DType) -> ElementwiseKernel {
    match from {
        DType::U32 => map!(u32 => f32, |x| round_to_odd(f64::from(x))),
        DType::I32 => map!(i32 => f32, |x| round_to_odd(f64::from(x))),
        DType::U64 => map!(u64 => f32, |x| round_to_odd(x as f64)),
        DType::I64 => map!(i64 => f32, |x| round_to_odd(x as f64)),
        DType::F64 => map!(f64 => f32, |x| round_to_odd(x)),
        DType::F32 => copy,
        _ => to_f32(from),
    }
}

fn to_f32(from: DType) -> ElementwiseKernel {
    match from {
        DType::Bool | DType::U8 => map!(u8 => f32, |x| f32::from(x)),
        DType::U16 => map!(u16 => f32, |x| f32::from(x)),
        DType::U32 => map!(u32 => f32, |x| x as f32),
        DType::U64 => map!(u64 => f32, |x| x as f32),
        DType::I8 => map!(i8 => f32, |x| f32::from(x)),
        DType::I16 => map!(i16 => f32, |x| f32::from(x)),
        DType::I32 => map!(i32 => f32, |x| x as f32),
        DType::I64 => map!(i64 => f32, |x| x as f32),
        _ => unreachable!("floats are converted elsewhere"),
    }
}

fn to_f64(from: DType) -> ElementwiseKernel {
    match from {
        DType::Bool | DType::U8 => map!(u8 => f64, |x| f64::from(x)),
        DType::U16 => map!(u16 => f64, |x| f64::from(x)),
        DType::U32 => map!(u32 => f64, |x| f64::from(x)),
        DType::U64 => map!(u64 => f64, |x| x as f64),
        DType::I8 => map!(i8 => f64, |x| f64::from(x)),
        DType::I16 => map!(i16 => f64, |x| f64::from(x)),
        DType::I32 => map!(i32 => f64, |x| f64::from(x)),
        DType::I64 => map!(i64 => f64, |x| x as f64),
        _ => unreachable!("floats are converted elsewhere"),
    }
}

macro_rules! of_float {
    ($name:ident, $T:ident, $i32:ident, $u32:ident) => {
        /// Saturating, NaN to 0.
        fn $name(to: DType) -> ElementwiseKernel {
            match to {
                DType::U8 => map!($T => u8, |x| $i32(x).clamp(0, 255) as u8),
                DType::U16 => map!($T => u16, |x| $i32(x).clamp(0, 65535) as u16),
                DType::U32 => map!($T => u32, |x| $u32(x)),
                DType::U64 => map!($T => u64, |x| x as u64),
                DType::I8 => map!($T => i8, |x| $i32(x).clamp(-128, 127) as i8),
                DType::I16 => map!($T => i16, |x| $i32(x).clamp(-32768, 32767) as i16),
                DType::I32 => map!($T => i32, |x| $i32(x)),
                DType::I64 => map!($T => i64, |x| x as i64),
                _ => copy,
            }
        }
    };
}
of_float!(of_f32, f32, f32_to_i32, f32_to_u32);
of_float!(of_f64, f64, f64_to_i32, f64_to_u32);

/// Keeps the low bits; the sign matters only for widening.
fn between_ints(from: DType, to: DType) -> ElementwiseKernel {
    let signed = from.is_int() && !from.is_unsigned();
    match (from.size(), to.size(), signed) {
        (2, 1, _) => map!(u16 => u8, |x| x as u8),
        (4, 1, _) => map!(u32 => u8, |x| x as u8),
        (8, 1, _) => map!(u64 => u8, |x| x as u8),
        (4, 2, _) => map!(u32 => u16, |x| x as u16),
        (8, 2, _) => map!(u64 => u16, |x| x as u16),
        (8, 4, _) => map!(u64 => u32, |x| x as u32),
        (1, 2, false) => map!(u8 => u16, |x| u16::from(x)),
        (1, 4, false) => map!(u8 => u32, |x| u32::from(x)),
        (1, 8, false) => map!(u8 => u64, |x| u64::from(x)),
        (2, 4, false) => map!(u16 => u32, |x| u32::from(x)),
        (2, 8, false) => map!(u16 => u64, |x| u64::from(x)),
        (4, 8, false) => map!(u32 => u64, |x| u64::from(x)),
        (1, 2, true) => map!(i8 => i16, |x| i16::from(x)),
        (1, 4, true) => map!(i8 => i32, |x| i32::from(x)),
        (1, 8, true) => map!(i8 => i64, |x| i64::from(x)),
        (2, 4, true) => map!(i16 => i32, |x| i32::from(x)),
        (2, 8, true) => map!(i16 => i64, |x| i64::from(x)),
        (4, 8, true) => map!(i32 => i64, |x| i64::from(x)),
        _ => copy,
    }
}

/// From `f16` or `bf16` to `f32`.
pub(crate) fn widen(from: DType) -> ElementwiseKernel {
    match from {
        DType::BF16 => map!([bf16] => [f32], |from, to| Half::to_f32::<I>(from, to)),
        _ => map!([f16] => [f32], |from, to| Half::to_f32::<I>(from, to)),
    }
}

/// From `f32` to `f16` or `bf16`.
pub(crate) fn narrow(to: DType) -> ElementwiseKernel {
    match to {
        DType::BF16 => map!([f32] => [bf16], |from, to| Half::from_f32::<I>(from, to)),
        _ => map!([f32] => [f16], |from, to| Half::from_f32::<I>(from, to)),
    }
}

/// From `f32` to the nearest value of `f16` or `bf16`, as an `f32`.
pub(crate) fn round(to: DType) -> ElementwiseKernel {
    match to {
        DType::BF16 => map!([f32] => [f32], |from, to| round_to::<I, bf16>(from, to)),
        _ => map!([f32] => [f32], |from, to| round_to::<I, f16>(from, to)),
    }
}

#[inline(always)]
fn round_to<I: Isa, H: Half + Default>(from: &[f32], to: &mut [f32]) {
    let mut narrow = [H::default(); 64];
    for (from, to) in from.chunks(64).zip(to.chunks_mut(64)) {
        let narrow = &mut narrow[..from.len()];
        H::from_f32::<I>(from, narrow);
        H::to_f32::<I>(narrow, to);
    }
}
