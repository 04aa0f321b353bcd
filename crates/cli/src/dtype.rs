//! Element types of buffers on the command line and in `.npy` files.

use anyhow::{Context as _, Result, bail};
use half::{bf16, f16};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// The type of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DType {
    F32,
    F16,
    BF16,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    Bool,
    /// In files only: Metal has no `double`.
    F64,
}

/// A value between two element types: wide enough for all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

/// Names on the command line; the second is MSL's.
const NAMES: [(DType, &str, &str); 12] = [
    (DType::F32, "f32", "float"),
    (DType::F16, "f16", "half"),
    (DType::BF16, "bf16", "bfloat"),
    (DType::I8, "i8", "char"),
    (DType::U8, "u8", "uchar"),
    (DType::I16, "i16", "short"),
    (DType::U16, "u16", "ushort"),
    (DType::I32, "i32", "int"),
    (DType::U32, "u32", "uint"),
    (DType::I64, "i64", "long"),
    (DType::U64, "u64", "ulong"),
    (DType::Bool, "bool", "bool"),
];

impl DType {
    /// Bytes of one element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// Smallest and largest value of an integer type.
    fn range(self) -> (i128, i128) {
        match self {
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::I64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::Bool => (0, 1),
            Self::F32 | Self::F16 | Self::BF16 | Self::F64 => (i128::MIN, i128::MAX),
        }
    }

    /// Reads a value as a user writes it; an integer outside the type's range is an error.
    pub(crate) fn parse(self, text: &str) -> Result<Number> {
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
            // Parsed as what it will be, so that the text is rounded once.
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
        let (least, most) = self.range();
        if !(least..=most).contains(&value) {
            bail!("{value} does not fit {self}, which goes from {least} to {most}");
        }
        Ok(Number::Int(value))
    }

    /// Writes a value into an element's bytes: floats round to nearest, integers wrap, floats become
    /// integers by truncation and saturation.
    pub(crate) fn store(self, number: Number, target: &mut [u8]) {
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
                    let (least, most) = self.range();
                    (v as i128).clamp(least, most) as u64
                }
            },
        };
        target.copy_from_slice(&bits.to_le_bytes()[..self.size()]);
    }

    /// Reads an element's bytes.
    pub(crate) fn load(self, bytes: &[u8]) -> Number {
        let mut wide = [0; 8];
        wide[..self.size()].copy_from_slice(&bytes[..self.size()]);
        let bits = u64::from_le_bytes(wide);
        match self {
            Self::F64 => Number::Float(f64::from_bits(bits)),
            Self::F32 => Number::Float(f32::from_bits(bits as u32).into()),
            Self::F16 => Number::Float(f16::from_bits(bits as u16).into()),
            Self::BF16 => Number::Float(bf16::from_bits(bits as u16).into()),
            Self::I8 => Number::Int((bits as i8).into()),
            Self::I16 => Number::Int((bits as i16).into()),
            Self::I32 => Number::Int((bits as i32).into()),
            Self::I64 => Number::Int((bits as i64).into()),
            Self::Bool => Number::Int((bits != 0).into()),
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Number::Int(bits.into()),
        }
    }

    /// An element as text: the shortest that reads back as the same value.
    pub(crate) fn format(self, bytes: &[u8]) -> String {
        match (self, self.load(bytes)) {
            (Self::Bool, Number::Int(v)) => (v != 0).to_string(),
            (_, Number::Int(v)) => v.to_string(),
            (Self::F64, Number::Float(v)) => format!("{v:?}"),
            // Every other float type is exact in f32.
            (_, Number::Float(v)) => format!("{:?}", v as f32),
        }
    }

    /// An element as JSON; what JSON has no number for (NaN, infinities) is a string.
    pub(crate) fn to_json(self, bytes: &[u8]) -> Value {
        let text = self.format(bytes);
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(dtype, ..)| dtype == self);
        f.write_str(name.map_or("f64", |(_, name, _)| name))
    }
}

impl FromStr for DType {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if matches!(text, "f64" | "double") {
            bail!("Metal has no {text}; use f32");
        }
        let found = NAMES
            .iter()
            .find(|(_, name, msl)| text == *name || text == *msl);
        let Some((dtype, ..)) = found else {
            let names: Vec<_> = NAMES.iter().map(|(_, name, _)| *name).collect();
            bail!("unknown type `{text}`; known are {}", names.join(", "));
        };
        Ok(*dtype)
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
    fn values_outside_the_type_are_refused_with_its_range() {
        let error = DType::U8.parse("256").unwrap_err();
        assert_eq!(
            error.to_string(),
            "256 does not fit u8, which goes from 0 to 255"
        );
        assert!(DType::Bool.parse("2").is_err());
        assert!(DType::I32.parse("1.5").is_err());
        assert!(DType::F32.parse("one").is_err());
    }

    #[test]
    fn names_are_ours_or_those_of_msl_and_double_is_refused() {
        assert_eq!("half".parse::<DType>().unwrap(), DType::F16);
        assert_eq!("u64".parse::<DType>().unwrap(), DType::U64);
        let error = "double".parse::<DType>().unwrap_err();
        assert_eq!(error.to_string(), "Metal has no double; use f32");
        assert!("f8".parse::<DType>().is_err());
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
    fn json_has_short_numbers_and_strings_for_what_is_no_number() {
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
