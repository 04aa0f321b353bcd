//! Subnormal numbers on Metal devices: the one rule, for references and comparisons.
//!
//! Arithmetic of `f32` and `bf16` takes a subnormal operand for zero and makes zero of a subnormal result, as Apple GPUs
//! do and as the software device does on every host. `f16` keeps its subnormal numbers, and so does the CPU those of all
//! types. What only moves numbers keeps their bits; a GPU may flush there too.

use bessemer::DType;

use crate::Array;
use crate::number::{Value, format};
use crate::tolerance::on_metal;

/// Whether arithmetic of this type flushes subnormal numbers on the thread's device.
pub fn flushes(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16) && on_metal()
}

/// The smallest normal number of a type.
pub fn least_normal(dtype: DType) -> f64 {
    f64::from(format(dtype).min_exponent).exp2()
}

/// A number of type `dtype` as arithmetic on the thread's device sees it.
pub fn operand(dtype: DType, v: Value) -> Value {
    match v {
        Value::Float(f) if f.abs() < least_normal(dtype) && flushes(dtype) => {
            Value::Float(0.0_f64.copysign(f))
        }
        v => v,
    }
}

/// An array as arithmetic on the thread's device sees it.
pub fn operands(x: &Array) -> Array {
    x.map(x.dtype, |v| operand(x.dtype, v))
}

/// What an op does with subnormal numbers where arithmetic flushes them.
enum Handling {
    /// It moves them: they stay as they are, or become zero.
    Moves,
    /// It compares them: all of them are equal to zero, and it answers with one of its operands, or with zero.
    Compares,
    /// It computes: there are none.
    Computes,
}

fn handling(op: &str) -> Handling {
    match op {
        "copy" | "neg" | "abs" | "select" | "sort" | "cast" => Handling::Moves,
        // The last three answer with their operand near zero.
        "minimum" | "maximum" | "clamp" | "relu" | "min" | "max" | "cummax" | "cbrt" | "expm1"
        | "log1p" => Handling::Compares,
        _ => Handling::Computes,
    }
}

/// Whether an answer is right, if it or the truth is so small that flushing decides; `allowed` is how far apart they may
/// be, 0 for exact ops.
pub(crate) fn judge(op: &str, dtype: DType, got: f64, truth: f64, allowed: f64) -> Option<bool> {
    let least = least_normal(dtype);
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
    use super::*;
    use bessemer::Device;

    #[test]
    fn only_a_metal_device_flushes_and_only_single_precision_and_bfloat() {
        let tiny = |dtype| 0.5 * least_normal(dtype);
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
                let least = least_normal(dtype);
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
