//! Model metadata: keys and values, as in GGUF.

use std::collections::HashMap;
use std::fmt;

use crate::{Error, Result};

/// A value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after its type")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// A list of values of one type, stored as compactly as in the file.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after its type")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Strings),
}

/// Strings in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// End of each string.
    ends: Vec<usize>,
}

impl Strings {
    /// The string at an index.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |i| self.ends[i]);
        Some(&self.text[start..end])
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Iterates over the strings.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    pub(crate) fn reserve(&mut self, count: usize) {
        self.ends.reserve_exact(count);
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let mut out = Self::default();
        iter.into_iter().for_each(|s| out.push(s.as_ref()));
        out
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One element.
    pub fn get(&self, index: usize) -> Option<Value> {
        Some(match self {
            Self::U8(v) => Value::U8(*v.get(index)?),
            Self::I8(v) => Value::I8(*v.get(index)?),
            Self::U16(v) => Value::U16(*v.get(index)?),
            Self::I16(v) => Value::I16(*v.get(index)?),
            Self::U32(v) => Value::U32(*v.get(index)?),
            Self::I32(v) => Value::I32(*v.get(index)?),
            Self::U64(v) => Value::U64(*v.get(index)?),
            Self::I64(v) => Value::I64(*v.get(index)?),
            Self::F32(v) => Value::F32(*v.get(index)?),
            Self::F64(v) => Value::F64(*v.get(index)?),
            Self::Bool(v) => Value::Bool(*v.get(index)?),
            Self::String(v) => Value::String(v.get(index)?.to_owned()),
        })
    }

    /// The type of the elements.
    pub fn element_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
        }
    }
}

impl Value {
    /// The type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
        }
    }

    /// The value of any integer type, if it is not negative.
    pub fn natural(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value of any number type.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            Self::I8(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::I64(v) => Some(v as f64),
            _ => self.natural().map(|v| v as f64),
        }
    }
}

/// Formats a value for humans; long ones are shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS: usize = 60;
        const SHOWN_ITEMS: usize = 6;
        match self {
            Self::U8(v) => write!(f, "{v}"),
            Self::I8(v) => write!(f, "{v}"),
            Self::U16(v) => write!(f, "{v}"),
            Self::I16(v) => write!(f, "{v}"),
            Self::U32(v) => write!(f, "{v}"),
            Self::I32(v) => write!(f, "{v}"),
            Self::U64(v) => write!(f, "{v}"),
            Self::I64(v) => write!(f, "{v}"),
            Self::F32(v) => write!(f, "{v}"),
            Self::F64(v) => write!(f, "{v}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::String(v) => match v.char_indices().nth(SHOWN_CHARS) {
                Some((at, _)) => write!(f, "{:?}…", &v[..at]),
                None => write!(f, "{v:?}"),
            },
            Self::Array(v) => {
                write!(f, "[")?;
                for i in 0..v.len().min(SHOWN_ITEMS) {
                    let comma = if i > 0 { ", " } else { "" };
                    match v.get(i) {
                        Some(value) => write!(f, "{comma}{value}")?,
                        None => break,
                    }
                }
                let more = if v.len() > SHOWN_ITEMS { ", …" } else { "" };
                write!(f, "{more}] ({} of {})", v.len(), v.element_name())
            }
        }
    }
}

/// Model metadata, in file order.
///
/// The keys are GGUF's. Metadata of other containers is translated: `num_hidden_layers` of a `config.json`
/// becomes `llama.block_count`.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

fn wrong(key: &str, value: &Value, expected: &str) -> Error {
    let actual = value.type_name();
    Error::metadata(key, format_args!("{value} ({actual}) is not {expected}"))
}

impl Metadata {
    /// All keys and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        Some(&self.entries[*self.index.get(key)?].1)
    }

    /// Adds a value, unless the key exists.
    pub(crate) fn insert(&mut self, key: String, value: Value) -> Result<()> {
        if self.index.contains_key(&key) {
            return Err(Error::metadata(key, "is defined twice"));
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        Ok(())
    }

    /// Adds or replaces a value.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.index.get(key) {
            Some(&at) => self.entries[at].1 = value,
            None => {
                self.index.insert(key.to_owned(), self.entries.len());
                self.entries.push((key.to_owned(), value));
            }
        }
    }

    /// A string, if the key exists.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, other, "a string")),
        }
    }

    /// A natural number, if the key exists.
    pub fn natural(&self, key: &str) -> Result<Option<u64>> {
        let get = |v: &Value| v.natural().ok_or_else(|| wrong(key, v, "a natural number"));
        self.get(key).map(get).transpose()
    }

    /// A natural number of at most 32 bits, if the key exists.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(n) = self.natural(key)? else {
            return Ok(None);
        };
        // No model has more than 2^32 layers, heads, tokens or positions.
        match u32::try_from(n) {
            Ok(n) => Ok(Some(n as usize)),
            Err(_) => Err(Error::metadata(key, format_args!("{n} is out of range"))),
        }
    }

    /// A finite number, if the key exists.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let get = |v: &Value| match v.number() {
            Some(n) if n.is_finite() => Ok(n),
            _ => Err(wrong(key, v, "a finite number")),
        };
        self.get(key).map(get).transpose()
    }

    /// A boolean, if the key exists.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong(key, other, "true or false")),
        }
    }

    /// A list of strings, if the key exists.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(strings))) => Ok(Some(strings)),
            Some(other) => Err(wrong(key, other, "an array of strings")),
        }
    }

    /// A list of finite numbers of any number type, if the key exists.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let Value::Array(array) = value else {
            return Err(wrong(key, value, "an array of numbers"));
        };
        let number = |i| array.get(i).and_then(|v| v.number());
        let numbers: Option<Vec<f64>> = (0..array.len()).map(number).collect();
        match numbers {
            Some(all) if all.iter().all(|n| n.is_finite()) => Ok(Some(all)),
            _ => Err(wrong(key, value, "an array of finite numbers")),
        }
    }

    /// Rejects a missing value.
    pub fn required<T>(&self, key: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| Error::metadata(key, "is missing"))
    }
}
