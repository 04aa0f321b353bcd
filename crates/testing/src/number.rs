//! Exact values of any element type, and the rounding and wrapping of each type.

use bessemer::{DType, Kind};

/// One value. An `f64` represents floats of every type exactly, and an `i128` all integers; booleans are the integers 0
/// and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer or a boolean.
    Int(i128),
    /// A floating-point number.
    Float(f64),
}

impl Value {
    /// The value as an `f64`; integers past 2^53 round.
    pub fn float(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Float(f) => f,
        }
    }

    /// The value as an integer: floats are truncated, NaN is 0.
    pub fn int(self) -> i128 {
        match self {
            Self::Int(i) => i,
            Self::Float(f) => f as i128,
        }
    }

    /// Returns `true` if the value is nonzero.
    pub fn is_nonzero(self) -> bool {
        match self {
            Self::Int(i) => i != 0,
            Self::Float(f) => f != 0.0,
        }
    }

    /// Returns `true` for NaN.
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Float(f) if f.is_nan())
    }

    /// The value as an element of `dtype`: floats round to nearest even, integers wrap, and conversions of floats to
    /// integers saturate.
    pub fn cast(self, dtype: DType) -> Self {
        match (dtype.kind(), self) {
            (Kind::Bool, v) => Self::Int(v.is_nonzero().into()),
            (Kind::Float, v) => Self::Float(round(dtype, v)),
            (Kind::Int, Self::Int(i)) => Self::Int(wrap(dtype, i)),
            (Kind::Int, Self::Float(f)) => {
                let (low, high) = range(dtype);
                Self::Int((f as i128).clamp(low, high))
            }
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Int(b.into())
    }
}

/// The smallest and largest value of an integer type or `bool`.
pub fn range(dtype: DType) -> (i128, i128) {
    if dtype.kind() == Kind::Bool {
        return (0, 1);
    }
    let bits = 8 * dtype.size() as u32;
    if dtype.is_unsigned() {
        (0, (1 << bits) - 1)
    } else {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    }
}

/// Wraps an integer to the bits of an integer type.
pub fn wrap(dtype: DType, i: i128) -> i128 {
    let spare = 128 - 8 * dtype.size() as u32;
    if dtype.is_unsigned() {
        ((i as u128) << spare >> spare) as i128
    } else {
        i << spare >> spare
    }
}

/// The parameters of a float type.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Bits of the significand, including the hidden bit.
    pub bits: i32,
    /// Exponent of the smallest normal number.
    pub min_exponent: i32,
    /// The largest finite number.
    pub max: f64,
}

/// The parameters of a float type; those of `f64` for all other types.
pub fn format(dtype: DType) -> Format {
    let (bits, min_exponent, max) = match dtype {
        DType::F16 => (11, -14, 65504.0),
        DType::BF16 => (8, -126, 255.0 * pow2(120)),
        DType::F32 => (24, -126, f32::MAX.into()),
        _ => (53, -1022, f64::MAX),
    };
    Format {
        bits,
        min_exponent,
        max,
    }
}

/// 2 to the power `e`, exactly, down to the smallest subnormal.
fn pow2(e: i32) -> f64 {
    if e >= -1022 {
        f64::from_bits(((e + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (e + 1074))
    }
}

/// The distance between neighbouring values of a float type around `x`, which must be finite.
pub fn ulp(dtype: DType, x: f64) -> f64 {
    let f = format(dtype);
    let biased = (x.abs().to_bits() >> 52) as i32;
    let exponent = (biased - 1023).max(f.min_exponent);
    pow2(exponent - f.bits + 1)
}

/// The machine epsilon: the distance of neighbours in `[1, 2)`, twice the maximum relative error of one rounding.
pub fn epsilon(dtype: DType) -> f64 {
    ulp(dtype, 1.0)
}

/// The nearest value of a float type, ties to even; infinity past the largest one.
pub fn round(dtype: DType, v: Value) -> f64 {
    let x = match v {
        // Rounding an integer to `f64` first and then to a narrower type would round twice.
        Value::Int(i) if i.unsigned_abs() >= 1 << 53 && dtype != DType::F64 => sticky(i),
        v => v.float(),
    };
    if dtype == DType::F64 || !x.is_finite() || x == 0.0 {
        return x;
    }
    let step = ulp(dtype, x);
    // The step is a power of two: the division is exact, and so is the product unless it overflows.
    let rounded = (x / step).round_ties_even() * step;
    if rounded.abs() > format(dtype).max {
        f64::INFINITY.copysign(x)
    } else {
        rounded
    }
}

/// Round to odd: an `f64` that rounds to fewer bits like the integer, truncated to 53 bits, with the last bit set if
/// any bit was lost.
fn sticky(i: i128) -> f64 {
    let m = i.unsigned_abs();
    let cut = (128 - m.leading_zeros()).saturating_sub(53);
    let kept = m >> cut;
    let lost = u128::from(kept << cut != m);
    let x = ((kept | lost) << cut) as f64;
    if i < 0 { -x } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_agrees_with_rust_and_half() {
        let mut x = 1.0e-48_f64;
        while x < 1e40 {
            for v in [x, -x] {
                assert_eq!(round(DType::F32, Value::Float(v)), f64::from(v as f32));
                let single = v as f32;
                assert_eq!(
                    round(DType::F16, Value::Float(single.into())),
                    half::f16::from_f32(single).to_f64()
                );
                assert_eq!(
                    round(DType::BF16, Value::Float(single.into())),
                    half::bf16::from_f32(single).to_f64()
                );
            }
            x *= 1.000_37 + x.fract() * 1e-9;
            x *= 1.01;
        }
    }

    #[test]
    fn ties_and_edges_of_f16_round_to_even() {
        let f16 = |x| round(DType::F16, Value::Float(x));
        assert_eq!(f16(2049.0), 2048.0);
        assert_eq!(f16(2051.0), 2052.0);
        assert_eq!(f16(2049.0 + 1e-9), 2050.0);
        assert_eq!(f16(65519.99), 65504.0);
        assert_eq!(f16(65520.0), f64::INFINITY);
        assert_eq!(f16(pow2(-25)), 0.0);
        assert_eq!(f16(1.5 * pow2(-25)), pow2(-24));
    }

    #[test]
    fn large_integers_round_once() {
        // 2^62 + 2^38 + 1: to 53 bits first, the odd bit is lost and the tie goes down.
        let i = (1 << 62) + (1 << 38) + 1;
        assert_eq!(round(DType::F32, Value::Int(i)), f64::from(i as i64 as f32));
        assert_eq!(
            round(DType::F32, Value::Int(-i)),
            f64::from(-i as i64 as f32)
        );
    }

    #[test]
    fn casts_match_rusts_as() {
        let cast = |v, d| Value::cast(v, d);
        for f in [300.7, -300.7, f64::NAN, f64::INFINITY, -1e30, 1e19, -0.5] {
            let v = Value::Float(f);
            assert_eq!(cast(v, DType::U8), Value::Int((f as u8).into()));
            assert_eq!(cast(v, DType::I8), Value::Int((f as i8).into()));
            assert_eq!(cast(v, DType::U64), Value::Int((f as u64).into()));
            assert_eq!(cast(v, DType::I64), Value::Int((f as i64).into()));
        }
        for i in [300_i64, -300, i64::MIN, i64::MAX, 255, 128] {
            let v = Value::Int(i.into());
            assert_eq!(cast(v, DType::U8), Value::Int((i as u8).into()));
            assert_eq!(cast(v, DType::I16), Value::Int((i as i16).into()));
            assert_eq!(cast(v, DType::U64), Value::Int((i as u64).into()));
            assert_eq!(cast(v, DType::Bool), Value::Int(1));
        }
        assert_eq!(cast(Value::Float(f64::NAN), DType::Bool), Value::Int(1));
    }

    #[test]
    fn ulp_is_the_distance_to_the_next_value() {
        for x in [1.0_f32, 1.5, 3.0e-39, 1.2e-38, 7.7e30] {
            let next = f32::from_bits(x.to_bits() + 1);
            assert_eq!(ulp(DType::F32, x.into()), f64::from(next) - f64::from(x));
        }
        assert_eq!(ulp(DType::F64, 0.0), f64::from_bits(1));
    }
}
