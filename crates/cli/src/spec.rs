//! Syntax of kernel arguments on the command line.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use bessemer::DType;
use bessemer::npy::Array;
use bessemer::program::Register;
use bessemer_hal::{ConstantValue, Size};
use half::f16;

use crate::dtype::{self, Elements as _, Number};

/// A value bound to an index: `INDEX=VALUE`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Indexed<T> {
    pub(crate) index: u32,
    pub(crate) value: T,
}

impl<T: FromStr<Err = anyhow::Error>> FromStr for Indexed<T> {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (index, value) = split_binding(text)?;
        Ok(Self {
            index: parse_index(index)?,
            value: value.parse()?,
        })
    }
}

fn split_binding(text: &str) -> Result<(&str, &str)> {
    text.split_once('=')
        .with_context(|| format!("`{text}` has no `=`: expected INDEX=VALUE"))
}

fn parse_index(text: &str) -> Result<u32> {
    text.trim()
        .parse()
        .ok()
        .with_context(|| format!("`{text}` is not an index"))
}

/// Source of the contents of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BufferSpec {
    /// A `.npy` file, or raw bytes in a file of any other name; values of a `.npy` file are converted
    /// to the type, raw bytes are interpreted as it.
    File { path: PathBuf, dtype: Option<DType> },
    /// Generated values.
    Values {
        dtype: DType,
        shape: Vec<usize>,
        values: Generator,
    },
    /// Literal values in a kernel test.
    Literal(Array),
}

/// Generator of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Generator {
    Fill(Number),
    Iota,
    Random(u64),
}

const GENERATOR_NAMES: &str = "zeros, ones, iota, random, fill";

impl FromStr for BufferSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let [name, arguments @ ..] = &parts[..] else {
            bail!("empty buffer");
        };
        let generated = match (*name, arguments) {
            ("zeros", [dtype, shape]) => Some((dtype, shape, "zeros", None)),
            ("ones", [dtype, shape]) => Some((dtype, shape, "ones", None)),
            ("iota", [dtype, shape]) => Some((dtype, shape, "iota", None)),
            ("random", [dtype, shape]) => Some((dtype, shape, "random", None)),
            ("random", [dtype, shape, seed]) => Some((dtype, shape, "random", Some(seed))),
            ("fill", [dtype, shape, value]) => Some((dtype, shape, "fill", Some(value))),
            ("zeros" | "ones" | "iota", [_, ..]) => {
                bail!("`{text}` is not of the form {name}:TYPE:COUNT")
            }
            ("random", [_, ..]) => bail!("`{text}` is not of the form random:TYPE:COUNT[:SEED]"),
            ("fill", [_, ..]) => bail!("`{text}` is not of the form fill:TYPE:COUNT:VALUE"),
            _ => None,
        };
        if let Some((dtype, shape, generator, parameter)) = generated {
            let dtype = dtype::any_named(dtype)?;
            let values = match (generator, parameter) {
                ("ones", _) => Generator::Fill(Number::Int(1)),
                ("iota", _) => Generator::Iota,
                ("fill", Some(value)) => Generator::Fill(dtype.parse(value)?),
                ("random", Some(seed)) => Generator::Random(
                    seed.parse()
                        .with_context(|| format!("`{seed}` is not a seed"))?,
                ),
                ("random", None) => Generator::Random(0),
                _ => Generator::Fill(Number::Int(0)),
            };
            return Ok(Self::Values {
                dtype,
                shape: parse_shape(shape)?,
                values,
            });
        }
        if parts.len() >= 3 && dtype::any_named(parts[1]).is_ok() {
            bail!("unknown values `{name}`; known are {GENERATOR_NAMES}");
        }
        if text.is_empty() {
            bail!("no file name");
        }
        // A type after the file name; anything else after a colon belongs to the name.
        if let Some((path, dtype)) = text.rsplit_once(':')
            && let Ok(dtype) = dtype::any_named(dtype)
            && !path.is_empty()
        {
            return Ok(Self::File {
                path: path.into(),
                dtype: Some(dtype),
            });
        }
        Ok(Self::File {
            path: text.into(),
            dtype: None,
        })
    }
}

/// `1024` or `4x256`.
fn parse_shape(text: &str) -> Result<Vec<usize>> {
    text.split('x')
        .map(|dim| {
            dim.parse()
                .ok()
                .with_context(|| format!("`{text}` is not a number of elements"))
        })
        .collect()
}

impl Generator {
    /// Fills a buffer of whole elements.
    pub(crate) fn fill(self, dtype: DType, target: &mut [u8]) {
        let mut random = match self {
            Self::Random(seed) => SplitMix(seed),
            _ => SplitMix(0),
        };
        for (index, element) in target.chunks_exact_mut(dtype.size()).enumerate() {
            let number = match self {
                Self::Fill(number) => number,
                Self::Iota => Number::Int(index as i128),
                Self::Random(_) => random.number(dtype),
            };
            dtype.store(number, element);
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood): small, and every seed is equally good.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns floats in [-1, 1), integers in 0..100, which every type can represent.
    fn number(&mut self, dtype: DType) -> Number {
        let bits = self.next();
        if dtype.is_float() {
            Number::Float((bits >> 40) as f64 / f64::from(1 << 23) - 1.0)
        } else if dtype == DType::Bool {
            Number::Int((bits >> 63).into())
        } else {
            Number::Int(((bits >> 32) % 100).into())
        }
    }
}

/// Inline bytes: `u32:64`, `f32:1,2,3`, `u32:64,f32:0.5`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BytesSpec(pub(crate) Vec<u8>);

impl FromStr for BytesSpec {
    type Err = anyhow::Error;

    /// Lays values out as a C structure.
    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = Vec::new();
        let mut dtype = None;
        let mut alignment = 1;
        for item in text.split(',') {
            let value = match item.split_once(':') {
                Some((name, value)) => {
                    dtype = Some(dtype::named(name.trim())?);
                    value
                }
                None => item,
            };
            let Some(dtype) = dtype else {
                bail!("`{text}` has no type: expected TYPE:VALUE, such as u32:64");
            };
            let number = dtype.parse(value)?;
            alignment = alignment.max(dtype.size());
            bytes.resize(bytes.len().next_multiple_of(dtype.size()), 0);
            let start = bytes.len();
            bytes.resize(start + dtype.size(), 0);
            dtype.store(number, &mut bytes[start..]);
        }
        bytes.resize(bytes.len().next_multiple_of(alignment), 0);
        Ok(Self(bytes))
    }
}

/// A function constant: `0=bool:true`, or `use_mask=bool:true` by its name in the source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConstantSpec {
    pub(crate) key: ConstantKey,
    pub(crate) value: ConstantValue,
}

/// How a function constant is addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConstantKey {
    Index(u32),
    Name(String),
}

impl FromStr for ConstantSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (key, value) = split_binding(text)?;
        let Some((dtype, value)) = value.split_once(':') else {
            bail!("`{value}` has no type: expected TYPE:VALUE, such as bool:true");
        };
        let dtype = dtype::named(dtype)?;
        let key = match key.parse() {
            Ok(index) => ConstantKey::Index(index),
            Err(_) if key.is_empty() => bail!("`{text}` has no index before `=`"),
            Err(_) => ConstantKey::Name(key.to_owned()),
        };
        Ok(Self {
            key,
            value: constant(dtype, dtype.parse(value)?)?,
        })
    }
}

fn constant(dtype: DType, number: Number) -> Result<ConstantValue> {
    let mut bytes = [0; 8];
    dtype.store(number, &mut bytes[..dtype.size()]);
    let bits = u64::from_le_bytes(bytes);
    Ok(match dtype {
        DType::Bool => ConstantValue::Bool(bits != 0),
        DType::I8 => ConstantValue::I8(bits as i8),
        DType::U8 => ConstantValue::U8(bits as u8),
        DType::I16 => ConstantValue::I16(bits as i16),
        DType::U16 => ConstantValue::U16(bits as u16),
        DType::I32 => ConstantValue::I32(bits as i32),
        DType::U32 => ConstantValue::U32(bits as u32),
        DType::I64 => ConstantValue::I64(bits as i64),
        DType::U64 => ConstantValue::U64(bits),
        DType::F16 => ConstantValue::F16(f16::from_bits(bits as u16)),
        DType::F32 => ConstantValue::F32(f32::from_bits(bits as u32)),
        _ => bail!("a function constant cannot be of type {dtype}"),
    })
}

/// A register with the value it starts with: `r4=1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegisterSpec {
    pub(crate) register: Register,
    pub(crate) value: u64,
}

impl FromStr for RegisterSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((register, value)) = text.split_once('=') else {
            bail!("`{text}` has no `=`: expected REGISTER=VALUE, such as r4=1000");
        };
        let register = parse_register(register)?;
        let number = DType::U64.parse(value)?;
        let Number::Int(value) = number else {
            bail!("`{value}` is not a whole number");
        };
        Ok(Self {
            register,
            value: value as u64,
        })
    }
}

/// `r0` to `r251`: the others hold the position of the lane.
fn parse_register(text: &str) -> Result<Register> {
    let number = text.trim().strip_prefix('r').and_then(|n| n.parse().ok());
    match number.map(Register) {
        Some(register) if register < Register::LANE_IDX_X => Ok(register),
        _ => bail!("`{text}` is not a register that a launch can set: r0 to r251"),
    }
}

/// Output file of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutSpec(pub(crate) PathBuf);

impl FromStr for OutSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            bail!("no file name");
        }
        Ok(Self(text.into()))
    }
}

/// A number of bytes: `256`, `16K`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) usize);

impl FromStr for ByteCount {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (digits, unit) = match text.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1024),
            None => (text, 1),
        };
        let count = digits.parse::<usize>().ok();
        let Some(count) = count.and_then(|c| c.checked_mul(unit)) else {
            bail!("`{text}` is not a number of bytes");
        };
        Ok(Self(count))
    }
}

/// Values to print: `1` or `1:100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrintSpec {
    pub(crate) index: u32,
    pub(crate) count: usize,
}

/// Default number of values to print.
const DEFAULT_PRINTED_VALUES: usize = 16;

impl FromStr for PrintSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (index, count) = match text.split_once(':') {
            Some((index, count)) => (
                index,
                count
                    .parse()
                    .ok()
                    .with_context(|| format!("`{count}` is not a number of values"))?,
            ),
            None => (text, DEFAULT_PRINTED_VALUES),
        };
        Ok(Self {
            index: parse_index(index)?,
            count,
        })
    }
}

/// A macro for the preprocessor: `NAME` or `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Define(pub(crate) String, pub(crate) String);

impl FromStr for Define {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (head, value) = text.split_once('=').unwrap_or((text, "1"));
        let (name, parameters) = match head.split_once('(') {
            Some((name, rest)) => (name, Some(rest)),
            None => (head, None),
        };
        if !is_identifier(name) {
            bail!("`{name}` is not the name of a macro");
        }
        if let Some(parameters) = parameters {
            let list = parameters.strip_suffix(')');
            let is_list = |list: &str| {
                list.trim().is_empty()
                    || list
                        .split(',')
                        .map(str::trim)
                        .all(|name| name == "..." || is_identifier(name))
            };
            if !list.is_some_and(is_list) {
                bail!("`({parameters}` is not a parameter list of macro `{name}`");
            }
        }
        Ok(Self(head.to_owned(), value.to_owned()))
    }
}

fn is_identifier(text: &str) -> bool {
    let mut letters = text.chars();
    let first = letters.next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `64`, `64,2` or `64,2,1`; a missing dimension is 1.
pub(crate) fn parse_size(text: &str) -> Result<Size> {
    let dims: Vec<usize> = text
        .split([',', 'x'])
        .map(|dim| {
            dim.trim()
                .parse()
                .ok()
                .with_context(|| format!("`{text}` is not a size: expected X, X,Y or X,Y,Z"))
        })
        .collect::<Result<_>>()?;
    match dims[..] {
        [x] => Ok(Size::x(x)),
        [x, y] => Ok(Size::xy(x, y)),
        [x, y, z] => Ok(Size::new(x, y, z)),
        _ => bail!("`{text}` has more than three dimensions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: FromStr<Err = anyhow::Error> + std::fmt::Debug>(text: &str) -> String {
        format!("{:#}", text.parse::<T>().unwrap_err())
    }

    #[test]
    fn buffers_are_loaded_or_generated() {
        let file = |path: &str, dtype| BufferSpec::File {
            path: path.into(),
            dtype,
        };
        let generated = |dtype, shape: &[usize], values| BufferSpec::Values {
            dtype,
            shape: shape.to_vec(),
            values,
        };
        let cases = [
            ("in.npy", file("in.npy", None)),
            ("in.npy:bf16", file("in.npy", Some(DType::BF16))),
            ("C:/x.bin", file("C:/x.bin", None)),
            ("zeros", file("zeros", None)),
            (
                "zeros:f32:1024",
                generated(DType::F32, &[1024], Generator::Fill(Number::Int(0))),
            ),
            (
                "ones:half:4x8",
                generated(DType::F16, &[4, 8], Generator::Fill(Number::Int(1))),
            ),
            ("iota:u32:3", generated(DType::U32, &[3], Generator::Iota)),
            (
                "random:f32:3:7",
                generated(DType::F32, &[3], Generator::Random(7)),
            ),
            (
                "fill:f32:3:-0.5",
                generated(DType::F32, &[3], Generator::Fill(Number::Float(-0.5))),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<BufferSpec>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_in_buffers_are_explained() {
        let cases = [
            (
                "zeros:f32",
                "`zeros:f32` is not of the form zeros:TYPE:COUNT",
            ),
            (
                "zeroes:f32:4",
                "unknown values `zeroes`; known are zeros, ones, iota, random, fill",
            ),
            (
                "zeros:f65:4",
                "unknown type `f65`; known are bool, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32",
            ),
            ("zeros:f32:many", "`many` is not a number of elements"),
            (
                "fill:u8:4:300",
                "300 does not fit u8: the range is 0 to 255",
            ),
            ("", "no file name"),
        ];
        for (text, expected) in cases {
            assert_eq!(message::<BufferSpec>(text), expected, "{text}");
        }
        assert_eq!(
            message::<Indexed<BufferSpec>>("in.npy"),
            "`in.npy` has no `=`: expected INDEX=VALUE"
        );
        assert_eq!(
            message::<Indexed<BufferSpec>>("x=in.npy"),
            "`x` is not an index"
        );
    }

    #[test]
    fn generators_match_their_names() {
        let make = |generator: Generator, dtype: DType, count: usize| {
            let mut target = vec![0xff; count * dtype.size()];
            generator.fill(dtype, &mut target);
            let values = target.chunks_exact(dtype.size());
            values.map(|v| dtype.format(v)).collect::<Vec<_>>()
        };
        assert_eq!(make(Generator::Iota, DType::F16, 3), ["0.0", "1.0", "2.0"]);
        assert_eq!(make(Generator::Iota, DType::U8, 257)[256], "0");
        let random = make(Generator::Random(1), DType::F32, 100);
        assert_eq!(random, make(Generator::Random(1), DType::F32, 100));
        assert_ne!(random, make(Generator::Random(2), DType::F32, 100));
        for value in random {
            assert!((-1.0..1.0).contains(&value.parse::<f32>().unwrap()));
        }
        for value in make(Generator::Random(1), DType::I8, 100) {
            assert!((0..100).contains(&value.parse::<i8>().unwrap()));
        }
    }

    #[test]
    fn bytes_are_laid_out_as_a_structure() {
        let bytes = |text: &str| text.parse::<BytesSpec>().unwrap().0;
        assert_eq!(bytes("u32:64"), [64, 0, 0, 0]);
        assert_eq!(bytes("u16:1,2,3"), [1, 0, 2, 0, 3, 0]);
        assert_eq!(
            bytes("u8:1,u32:2,u8:3"),
            [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]
        );
        assert!(message::<BytesSpec>("64").contains("has no type"));
        assert!(message::<BytesSpec>("u32:").contains("is not a value"));
    }

    #[test]
    fn constants_are_addressed_by_index_or_name() {
        let spec: ConstantSpec = "3=bool:true".parse().unwrap();
        assert_eq!(spec.key, ConstantKey::Index(3));
        assert_eq!(spec.value, ConstantValue::Bool(true));
        let spec: ConstantSpec = "width=i16:-2".parse().unwrap();
        assert_eq!(spec.key, ConstantKey::Name("width".into()));
        assert_eq!(spec.value, ConstantValue::I16(-2));
        assert!(message::<ConstantSpec>("0=bf16:1").contains("cannot be of type bf16"));
        assert!(message::<ConstantSpec>("0=true").contains("has no type"));
    }

    #[test]
    fn registers_have_a_number_and_a_value() {
        let spec: RegisterSpec = "r4=0x10".parse().unwrap();
        assert_eq!((spec.register, spec.value), (Register(4), 16));
        assert_eq!(
            "r0=18446744073709551615"
                .parse::<RegisterSpec>()
                .unwrap()
                .value,
            u64::MAX
        );
        for (text, expected) in [
            ("r4", "has no `=`"),
            ("r4=-1", "does not fit u64"),
            ("r4=x", "is not a value of type u64"),
            ("r252=0", "is not a register that a launch can set"),
            ("p1=0", "is not a register"),
            ("r256=0", "is not a register"),
        ] {
            assert!(message::<RegisterSpec>(text).contains(expected), "{text}");
        }
    }

    #[test]
    fn sizes_have_one_to_three_dimensions() {
        assert_eq!(parse_size("64").unwrap(), Size::x(64));
        assert_eq!(parse_size("64,2").unwrap(), Size::xy(64, 2));
        assert_eq!(parse_size("4x3x2").unwrap(), Size::new(4, 3, 2));
        assert!(parse_size("1,2,3,4").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("").is_err());
    }

    #[test]
    fn small_specs_are_read() {
        assert_eq!("16K".parse::<ByteCount>().unwrap(), ByteCount(16384));
        assert!("16M".parse::<ByteCount>().is_err());
        let print: PrintSpec = "1:3".parse().unwrap();
        assert_eq!(print, PrintSpec { index: 1, count: 3 });
        assert_eq!(
            "1".parse::<PrintSpec>().unwrap().count,
            DEFAULT_PRINTED_VALUES
        );
        assert_eq!(
            "A=b=c".parse::<Define>().unwrap(),
            Define("A".into(), "b=c".into())
        );
        assert_eq!(
            "A".parse::<Define>().unwrap(),
            Define("A".into(), "1".into())
        );
        assert!("-A".parse::<Define>().is_err());
        for (text, head, value) in [
            ("f(x)=x", "f(x)", "x"),
            ("f(a, b)=a=b", "f(a, b)", "a=b"),
            ("f(...)=__VA_ARGS__", "f(...)", "__VA_ARGS__"),
            ("f()", "f()", "1"),
        ] {
            assert_eq!(
                text.parse::<Define>().unwrap(),
                Define(head.into(), value.into())
            );
        }
        for text in ["f(x=x", "f(1)=x", "f(x)y=1", "(x)=x"] {
            assert!(text.parse::<Define>().is_err(), "{text}");
        }
    }
}
