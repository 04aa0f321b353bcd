//! `random::bits`, `uniform`, `normal`, `randint`, `bernoulli`: counter-based random values.

use half::{bf16, f16};

use super::{Meta, Rule};
use crate::random::Key;
use crate::{DType, Error, IntoShape, Result, Scalar, Shape, Tensor};

/// Element `i` is a function of the key, the distribution and `i`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Random {
    pub(crate) key: [u32; 2],
    pub(crate) distribution: Distribution,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// The distribution of random values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Distribution {
    Bits,
    /// `low + u * range`, but at most `last`; all are values of the type.
    Uniform {
        low: Scalar,
        range: Scalar,
        last: Scalar,
    },
    Normal,
    /// `low`, modulo 2^64, plus an integer below `range`; a range of 0 stands for 2^64.
    Integer {
        low: u64,
        range: u64,
    },
    /// True for words below this bound, which is at most 2^32.
    Bernoulli {
        below: u64,
    },
}

impl Distribution {
    const fn name(&self) -> &'static str {
        match self {
            Self::Bits => "random::bits",
            Self::Uniform { .. } => "random::uniform",
            Self::Normal => "random::normal",
            Self::Integer { .. } => "random::randint",
            Self::Bernoulli { .. } => "random::bernoulli",
        }
    }
}

impl Rule for Random {
    fn name(&self) -> &'static str {
        self.distribution.name()
    }

    fn infer(&self, _: &[&Tensor]) -> Result<Meta> {
        Ok((self.dtype, self.shape))
    }
}

fn apply(key: &Key, shape: Shape, dtype: DType, distribution: Distribution) -> Tensor {
    let op = Random {
        key: key.words(),
        distribution,
        dtype,
        shape,
    };
    Tensor::apply(op, &[])
}

fn expect(
    op: &'static str,
    dtype: DType,
    is_supported: bool,
    expected: &'static str,
) -> Result<()> {
    if is_supported {
        Ok(())
    } else {
        Err(Error::BadDType {
            op,
            dtype,
            expected,
        })
    }
}

/// Uniform random bits: every value of an unsigned integer type is equally likely.
///
/// Elements of fewer than 32 bits are the upper bits of a word.
pub fn bits(key: &Key, shape: impl IntoShape, dtype: DType) -> Tensor {
    const OP: &str = "random::bits";
    Tensor::attempt(|| {
        expect(OP, dtype, dtype.is_unsigned(), "u8, u16, u32 or u64")?;
        Ok(apply(key, shape.into_shape(OP)?, dtype, Distribution::Bits))
    })
}

/// Uniformly distributed floats in `[low, high)`.
///
/// `low + u * (high - low)`, computed in the type itself (`f16` and `bf16` in `f32`, rounded once), where
/// `u` is the upper 24 bits of a word times 2^-24 for `f32`, 53 bits of a block times 2^-53 for `f64`, 11
/// bits for `f16` and 8 for `bf16`: with that many bits every `u` is representable, so that 0 to 1 is
/// exact. A value that rounds up to `high` becomes the float before it. Both bounds, and their difference, must
/// be finite in the type and in order; if they are equal, all elements are equal.
///
/// The bits are the same on every backend.
pub fn uniform(key: &Key, shape: impl IntoShape, low: f64, high: f64, dtype: DType) -> Tensor {
    const OP: &str = "random::uniform";
    Tensor::attempt(|| {
        expect(OP, dtype, dtype.is_float(), "a float type")?;
        let shape = shape.into_shape(OP)?;
        let (low, high) = (rounded(low, dtype), rounded(high, dtype));
        // The difference of half-precision bounds is computed in `f32`.
        let range = match dtype {
            DType::F64 => high - low,
            _ => f64::from(high as f32 - low as f32),
        };
        if !(low <= high && range.is_finite()) {
            return Err(Error::Invalid {
                op: OP,
                reason: format!("from {low} to {high} is not a finite range of {dtype}"),
            });
        }
        let last = if low == high {
            high
        } else {
            before(high, dtype)
        };
        let distribution = Distribution::Uniform {
            low: Scalar::Float(low),
            range: Scalar::Float(range),
            last: Scalar::Float(last),
        };
        Ok(apply(key, shape, dtype, distribution))
    })
}

/// Rounds to the nearest value of a float type.
fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).into(),
        DType::BF16 => bf16::from_f64(value).into(),
        DType::F32 => (value as f32).into(),
        _ => value,
    }
}

/// The largest value of a float type below a finite one.
fn before(value: f64, dtype: DType) -> f64 {
    // Sign and magnitude: the bits decrease towards zero and increase away from it.
    let down = |bits: u16| match (bits & 0x7fff, bits >> 15) {
        (0, _) => 0x8001,
        (_, 0) => bits - 1,
        _ => bits + 1,
    };
    match dtype {
        DType::F16 => f16::from_bits(down(f16::from_f64(value).to_bits())).into(),
        DType::BF16 => bf16::from_bits(down(bf16::from_f64(value).to_bits())).into(),
        DType::F32 => (value as f32).next_down().into(),
        _ => value.next_down(),
    }
}

/// Normally distributed floats with mean 0 and variance 1; scale and shift them with `*` and `+`.
///
/// The Box–Muller transform, in pairs: elements `2 j` and `2 j + 1` are `r cos(a)` and `r sin(a)` with
/// `r = sqrt(-2 ln(u))` and `a = 2 π v`. For `f32`, `u` and `v` are the words of block `j`, as `(word + 0.5) / 2^32`
/// and `word / 2^32`; for `f64`, blocks `2 j` and `2 j + 1`, of which `u` has 53 bits. So elements reach 6.7 standard
/// deviations in `f32` and 8.6 in `f64`. `f16` and `bf16` are rounded from `f32`.
///
/// The logarithm, the sine and the cosine are polynomials with a fixed number of terms and without fused
/// multiply-adds: the bits are the same on every processor. Elements are within 4 (`f64`: 8)
/// units in the last place of `r` of their exact values.
pub fn normal(key: &Key, shape: impl IntoShape, dtype: DType) -> Tensor {
    const OP: &str = "random::normal";
    Tensor::attempt(|| {
        expect(OP, dtype, dtype.is_float(), "a float type")?;
        let shape = shape.into_shape(OP)?;
        Ok(apply(key, shape, dtype, Distribution::Normal))
    })
}

/// Uniformly distributed integers in `[low, high)`, of any integer type.
///
/// The upper half of the 128-bit product of a block and `high - low`, plus `low` (Lemire's method without rejection):
/// of all 2^64 blocks, each integer gets `2^64 / (high - low)`, rounded up or down, so that the probabilities of two
/// integers differ by at most 2^-64.
pub fn randint(
    key: &Key,
    shape: impl IntoShape,
    low: impl Into<Scalar>,
    high: impl Into<Scalar>,
    dtype: DType,
) -> Tensor {
    const OP: &str = "random::randint";
    let (low, high) = (low.into(), high.into());
    Tensor::attempt(|| {
        expect(OP, dtype, dtype.is_int(), "an integer type")?;
        let shape = shape.into_shape(OP)?;
        let (Scalar::Int(first), Scalar::Int(end)) = (low, high) else {
            return Err(Error::Invalid {
                op: OP,
                reason: "low and high must be integers".to_owned(),
            });
        };
        if first >= end {
            return Err(Error::Invalid {
                op: OP,
                reason: format!("low, {first}, must be less than high, {end}"),
            });
        }
        low.fit(OP, dtype)?;
        Scalar::Int(end - 1).fit(OP, dtype)?;
        // At most 2^64, which wraps to 0, since both bounds are in the range of a 64-bit type.
        let range = (end - first) as u64;
        let low = first as u64;
        let distribution = Distribution::Integer { low, range };
        Ok(apply(key, shape, dtype, distribution))
    })
}

/// Booleans that are true with probability `p`, from 0 to 1, rounded to a multiple of 2^-32.
///
/// True where a word is below `p * 2^32`. For a different probability per element, compare [`uniform`] values with a
/// tensor.
pub fn bernoulli(key: &Key, p: f64, shape: impl IntoShape) -> Tensor {
    const OP: &str = "random::bernoulli";
    Tensor::attempt(|| {
        let shape = shape.into_shape(OP)?;
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::Invalid {
                op: OP,
                reason: format!("the probability must be from 0 to 1, not {p}"),
            });
        }
        let below = (p * 4_294_967_296.0).round() as u64;
        let distribution = Distribution::Bernoulli { below };
        Ok(apply(key, shape, DType::Bool, distribution))
    })
}
