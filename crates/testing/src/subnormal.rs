//! Subnormal numbers on Metal devices: one rule for references and comparisons.
//!
//! Arithmetic of `f32` and `bf16` flushes subnormal operands and results to zero, on Apple GPUs and on the software
//! device on every host. `f16` keeps its subnormal numbers, and the CPU keeps those of all types. Ops that only move
//! values keep their bits, although a GPU may flush there too.

use bessemer::DType;

use crate::Array;
use crate::number::{Value, format};
use crate::tolerance::on_metal;

/// Returns `true` if arithmetic of this dtype flushes subnormal numbers on the thread's device.
pub fn flushes(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16) && on_metal()
}

/// The smallest normal number of a dtype.
pub fn min_normal(dtype: DType) -> f64 {
    f64::from(format(dtype).min_exponent).exp2()
}

/// A value of `dtype` after flushing by arithmetic on the thread's device.
pub fn operand(dtype: DType, v: Value) -> Value {
    match v {
        Value::Float(f) if f.abs() < min_normal(dtype) && flushes(dtype) => {
            Value::Float(0.0_f64.copysign(f))
        }
        v => v,
    }
}

/// An array after flushing by arithmetic on the thread's device.
pub fn operands(x: &Array) -> Array {
    x.map(x.dtype, |v| operand(x.dtype, v))
}

/// The treatment of subnormal numbers by an op, if arithmetic flushes them.
enum Handling {
    /// It moves values: subnormal numbers are unchanged, or become zero.
    Moves,
    /// It compares values: subnormal numbers equal zero, and the result is one of the operands, or zero.
    Compares,
    /// It computes: subnormal results become zero.
    Computes,
}

fn handling(op: &str) -> Handling {
    match op {
        "copy" | "neg" | "abs" | "select" | "sort" | "cast" => Handling::Moves,
        // The last three return their operand near zero.
        "minimum" | "maximum" | "clamp" | "relu" | "min" | "max" | "cummax" | "cbrt" | "expm1"
        | "log1p" => Handling::Compares,
        _ => Handling::Computes,
    }
}

/// Judges a result if it or the exact value is so small that flushing matters; `allowed` is the error bound, 0 for
/// exact ops.
pub(crate) fn judge(op: &str, dtype: DType, got: f64, truth: f64, allowed: f64) -> Option<bool> {
    let least = min_normal(dtype);
    if got.abs() >= least || got.is_nan() || truth.is_nan() || !flushes(dtype) {
        return None;
    }
    if truth.abs() >= least {
        return (got == 0.0 && truth.abs() - allowed < least).then_some(true);
    }
    Some(match handling(op) {
        _ if got == 0.0 => true,
        Handling::Moves => got == truth,
        Handling::Compares => true,
        Handling::Computes => false,
    })
}

#[cfg(test)]
mod tests {
    use bessemer::Device;

    use super::*;

    #[test]
    fn only_metal_devices_flush_and_only_f32_and_bf16() {
        let tiny = |dtype| 0.5 * min_normal(dtype);
        let seen = |dtype| operand(dtype, Value::Float(-tiny(dtype)));
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert_eq!(seen(dtype), Value::Float(-tiny(dtype)), "{dtype}");
            assert_eq!(judge("mul", dtype, 0.0, tiny(dtype), 0.0), None);
        }
        Device::software().expect("a software device").scope(|| {
            for dtype in [DType::F16, DType::F64] {
                assert_eq!(seen(dtype), Value::Float(-tiny(dtype)), "{dtype}");
            }
            for dtype in [DType::F32, DType::BF16] {
                let least = min_normal(dtype);
                assert_eq!(seen(dtype), Value::Float(-0.0), "{dtype}");
                assert_eq!(operand(dtype, Value::Float(least)), Value::Float(least));
                for (op, got, truth, right) in [
                    ("mul", 0.0, tiny(dtype), Some(true)),
                    ("mul", tiny(dtype), tiny(dtype), Some(false)),
                    ("mul", 0.0, least, None),
                    ("mul", least, tiny(dtype), None),
                    ("copy", tiny(dtype), tiny(dtype), Some(true)),
                    ("copy", tiny(dtype) / 2.0, tiny(dtype), Some(false)),
                    ("maximum", tiny(dtype) / 2.0, tiny(dtype), Some(true)),
                    ("maximum", 1.0, tiny(dtype), None),
                ] {
                    assert_eq!(
                        judge(op, dtype, got, truth, 0.0),
                        right,
                        "{op} {got} {truth}"
                    );
                }
                assert_eq!(judge("exp", dtype, 0.0, least, least / 8.0), Some(true));
            }
        });
    }
}
