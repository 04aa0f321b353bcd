//! Parsing and formatting the elements of buffers.

use anyhow::{Context as _, Result, bail};
use bessemer::DType;
use bessemer::npy::Array;
use half::{bf16, f16};
use serde_json::Value;

/// A value of any element type: wide enough for all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

/// Looks up a type that Metal has, by the engine's name or MSL's.
pub(crate) fn named(text: &str) -> Result<DType> {
    match any_named(text)? {
        DType::F64 => bail!("Metal has no {text}; use f32"),
        dtype => Ok(dtype),
    }
}

/// Looks up a type by the engine's name or MSL's, including f64.
pub(crate) fn any_named(text: &str) -> Result<DType> {
    let dtype = match text {
        "double" => DType::F64,
        "float" => DType::F32,
        "half" => DType::F16,
        "bfloat" => DType::BF16,
        "char" => DType::I8,
        "uchar" => DType::U8,
        "short" => DType::I16,
        "ushort" => DType::U16,
        "int" => DType::I32,
        "uint" => DType::U32,
        "long" => DType::I64,
        "ulong" => DType::U64,
        _ => match text.parse() {
            Ok(dtype) => dtype,
            Err(_) => {
                let known = DType::ALL.into_iter().filter(|&d| d != DType::F64);
                let names: Vec<_> = known.map(DType::name).collect();
                bail!("unknown type `{text}`; known are {}", names.join(", "));
            }
        },
    };
    Ok(dtype)
}

/// Converts an array to another type.
pub(crate) fn convert(array: Array, dtype: DType) -> Array {
    if dtype == array.dtype {
        return array;
    }
    let elements = array.data.chunks_exact(array.dtype.size());
    let mut data = vec![0; elements.len() * dtype.size()];
    for (source, target) in elements.zip(data.chunks_exact_mut(dtype.size())) {
        dtype.store(array.dtype.load(source), target);
    }
    Array {
        dtype,
        shape: array.shape,
        data,
    }
}

/// Bytes of an array, or `None` if they exceed the address space.
pub(crate) fn byte_count(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(dtype.size(), |product, dim| product.checked_mul(*dim))
}

/// Smallest and largest value of an integer type.
fn range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size();
    if dtype == DType::Bool {
        (0, 1)
    } else if dtype.is_unsigned() {
        (0, (1 << bits) - 1)
    } else {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    }
}

/// Operations on the elements of a type.
pub(crate) trait Elements: Sized {
    /// Parses a value from the command line; an integer outside the type's range is an error.
    fn parse(self, text: &str) -> Result<Number>;

    /// Writes a value to an element's bytes: floats are rounded to nearest, integers wrap, floats are converted to
    /// integers by truncation and saturation.
    fn store(self, number: Number, target: &mut [u8]);

    /// Reads an element's bytes.
    fn load(self, bytes: &[u8]) -> Number;

    /// Formats an element as the shortest text that parses to the same value.
    fn format(self, bytes: &[u8]) -> String;

    /// Converts an element to JSON; values that JSON cannot express as numbers (NaN, infinities) become strings.
    fn to_json(self, bytes: &[u8]) -> Value;
}

impl Elements for DType {
    fn parse(self, text: &str) -> Result<Number> {
        let text = text.trim();
        let integer = || -> Option<i128> {
            let (negative, digits) = match text.strip_prefix('-') {
                Some(rest) => (true, rest),
                None => (false, text),
            };
            let hex = digits
                .strip_prefix("0x")
                .or_else(|| digits.strip_prefix("0X"));
            let value = match hex {
                Some(hex) => i128::from(u64::from_str_radix(hex, 16).ok()?),
                None => digits.parse::<u128>().ok()?.try_into().ok()?,
            };
            Some(if negative { -value } else { value })
        };
        match (self, text) {
            (Self::Bool, "true") => return Ok(Number::Int(1)),
            (Self::Bool, "false") => return Ok(Number::Int(0)),
            // Parsed in the target type, so that the value is rounded only once.
            (Self::F32, _) => {
                let value: f32 = text
                    .parse()
                    .with_context(|| format!("`{text}` is not a number"))?;
                return Ok(Number::Float(value.into()));
            }
            _ if self.is_float() => {
                return Ok(Number::Float(
                    text.parse()
                        .with_context(|| format!("`{text}` is not a number"))?,
                ));
            }
            _ => {}
        }
        let Some(value) = integer() else {
            bail!("`{text}` is not a value of type {self}");
        };
        let (min, max) = range(self);
        if !(min..=max).contains(&value) {
            bail!("{value} does not fit {self}: the range is {min} to {max}");
        }
        Ok(Number::Int(value))
    }

    fn store(self, number: Number, target: &mut [u8]) {
        let float = match number {
            Number::Int(v) => v as f64,
            Number::Float(v) => v,
        };
        let bits: u64 = match self {
            Self::F64 => float.to_bits(),
            Self::F32 => (float as f32).to_bits().into(),
            Self::F16 => f16::from_f64(float).to_bits().into(),
            Self::BF16 => bf16::from_f64(float).to_bits().into(),
            Self::Bool => u64::from(match number {
                Number::Int(v) => v != 0,
                Number::Float(v) => v != 0.0,
            }),
            _ => match number {
                Number::Int(v) => v as u64,
                Number::Float(v) => {
                    let (min, max) = range(self);
                    (v as i128).clamp(min, max) as u64
                }
            },
        };
        target.copy_from_slice(&bits.to_le_bytes()[..self.size()]);
    }

    fn load(self, bytes: &[u8]) -> Number {
        let mut wide = [0; 8];
        wide[..self.size()].copy_from_slice(&bytes[..self.size()]);
        let bits = u64::from_le_bytes(wide);
        match self {
            Self::F64 => Number::Float(f64::from_bits(bits)),
            Self::F32 => Number::Float(f32::from_bits(bits as u32).into()),
            Self::F16 => Number::Float(f16::from_bits(bits as u16).into()),
            Self::BF16 => Number::Float(bf16::from_bits(bits as u16).into()),
            Self::Bool => Number::Int((bits != 0).into()),
            _ if self.is_unsigned() => Number::Int(bits.into()),
            _ => {
                // Sign-extended from the element's width.
                let unused = 64 - 8 * self.size() as u32;
                Number::Int((((bits << unused) as i64) >> unused).into())
            }
        }
    }

    fn format(self, bytes: &[u8]) -> String {
        match (self, self.load(bytes)) {
            (Self::Bool, Number::Int(v)) => (v != 0).to_string(),
            (_, Number::Int(v)) => v.to_string(),
            (Self::F64, Number::Float(v)) => format!("{v:?}"),
            // Every other float type is exact in f32.
            (_, Number::Float(v)) => format!("{:?}", v as f32),
        }
    }

    fn to_json(self, bytes: &[u8]) -> Value {
        let text = self.format(bytes);
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: DType, text: &str) -> Vec<u8> {
        let mut target = vec![0; dtype.size()];
        dtype.store(dtype.parse(text).unwrap(), &mut target);
        target
    }

    #[test]
    fn every_type_reads_back_what_it_wrote() {
        struct Case(DType, &'static str, &'static str);
        let cases = [
            Case(DType::F32, "0.1", "0.1"),
            Case(DType::F32, "-inf", "-inf"),
            Case(DType::F32, "1e30", "1e30"),
            Case(DType::F16, "0.1", "0.099975586"),
            Case(DType::BF16, "3.14159", "3.140625"),
            Case(DType::I8, "-128", "-128"),
            Case(DType::U8, "0xff", "255"),
            Case(DType::I16, "-0x10", "-16"),
            Case(DType::U16, "65535", "65535"),
            Case(DType::I32, "-2147483648", "-2147483648"),
            Case(DType::U32, "4294967295", "4294967295"),
            Case(DType::I64, "-9223372036854775808", "-9223372036854775808"),
            Case(DType::U64, "18446744073709551615", "18446744073709551615"),
            Case(DType::Bool, "true", "true"),
            Case(DType::Bool, "0", "false"),
        ];
        for Case(dtype, text, expected) in cases {
            assert_eq!(dtype.format(&bytes(dtype, text)), expected, "{dtype}");
        }
    }

    #[test]
    fn values_outside_the_type_are_rejected_with_its_range() {
        let error = DType::U8.parse("256").unwrap_err();
        assert_eq!(
            error.to_string(),
            "256 does not fit u8: the range is 0 to 255"
        );
        assert!(DType::Bool.parse("2").is_err());
        assert!(DType::I32.parse("1.5").is_err());
        assert!(DType::F32.parse("one").is_err());
    }

    #[test]
    fn names_are_the_engine_s_or_those_of_msl_and_double_is_rejected() {
        assert_eq!(named("half").unwrap(), DType::F16);
        assert_eq!(named("u64").unwrap(), DType::U64);
        let error = named("double").unwrap_err();
        assert_eq!(error.to_string(), "Metal has no double; use f32");
        assert_eq!(any_named("double").unwrap(), DType::F64);
        let error = named("f8").unwrap_err().to_string();
        assert!(error.starts_with("unknown type `f8`; known are bool, u8, "));
        assert!(!error.contains("f64"));
    }

    #[test]
    fn floats_become_integers_by_truncation_and_saturation() {
        let mut target = [0];
        DType::I8.store(Number::Float(-1.9), &mut target);
        assert_eq!(DType::I8.format(&target), "-1");
        DType::I8.store(Number::Float(1e9), &mut target);
        assert_eq!(DType::I8.format(&target), "127");
    }

    #[test]
    fn float32_represents_bfloat16_exactly() {
        let array = Array {
            dtype: DType::BF16,
            shape: vec![1],
            data: vec![0x49, 0x40],
        };
        let wide = convert(array.clone(), DType::F32);
        assert_eq!(wide.data, 3.140625_f32.to_le_bytes());
        assert_eq!(convert(wide, DType::BF16), array);
    }

    #[test]
    fn json_has_short_numbers_and_strings_for_nan() {
        assert_eq!(
            DType::F32.to_json(&0.1_f32.to_le_bytes()).to_string(),
            "0.1"
        );
        assert_eq!(
            DType::F32.to_json(&f32::NAN.to_le_bytes()).to_string(),
            "\"NaN\""
        );
        assert_eq!(DType::Bool.to_json(&[1]), Value::Bool(true));
    }
}
