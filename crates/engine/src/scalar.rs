//! Scalars: Rust values as operands of tensors.

use std::hash::{Hash, Hasher};

use half::{bf16, f16};

use crate::{DType, Error, Kind, Result};

/// A Rust value as an operand, before it takes a type.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

impl Scalar {
    /// The kind of the value.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Float(_) => Kind::Float,
        }
    }

    /// The type of the value on its own.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Bool(_) => DType::Bool,
            Self::Int(_) => DType::I64,
            Self::Float(_) => DType::F64,
        }
    }

    /// The type it promotes to with elements of `other`: theirs, unless its kind is higher.
    pub fn promote(self, other: DType) -> DType {
        if self.kind() > other.kind() {
            self.dtype()
        } else {
            other
        }
    }

    /// Converts to a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Bool(b) => f64::from(u8::from(b)),
            Self::Int(i) => i as f64,
            Self::Float(f) => f,
        }
    }

    /// Converts to an integer, saturating.
    pub fn to_i128(self) -> i128 {
        match self {
            Self::Bool(b) => i128::from(b),
            Self::Int(i) => i,
            Self::Float(f) => f as i128,
        }
    }

    /// Returns an error if an integer is out of range for an integer type: adding 300 to a `u8` tensor is a mistake,
    /// not an addition of 44.
    pub(crate) fn fit(self, op: &'static str, dtype: DType) -> Result<()> {
        let (low, high) = match dtype {
            DType::U8 => (0, i128::from(u8::MAX)),
            DType::U16 => (0, i128::from(u16::MAX)),
            DType::U32 => (0, i128::from(u32::MAX)),
            DType::U64 => (0, i128::from(u64::MAX)),
            DType::I8 => (i128::from(i8::MIN), i128::from(i8::MAX)),
            DType::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
            DType::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            DType::I64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
            _ => return Ok(()),
        };
        match self {
            Self::Int(i) if i < low || i > high => Err(Error::Invalid {
                op,
                reason: format!("{i} is out of range for {dtype}; cast the tensor to a wider type"),
            }),
            _ => Ok(()),
        }
    }

    /// The bytes of this value as an element of a type, at the start of the array; converted as by `as`.
    pub(crate) fn to_bytes(self, dtype: DType) -> [u8; 8] {
        fn put<const N: usize>(bytes: [u8; N]) -> [u8; 8] {
            let mut out = [0; 8];
            out[..N].copy_from_slice(&bytes);
            out
        }
        macro_rules! int {
            ($type:ty) => {
                match self {
                    Self::Float(f) => put((f as $type).to_ne_bytes()),
                    _ => put((self.to_i128() as $type).to_ne_bytes()),
                }
            };
        }
        match dtype {
            DType::Bool => put([u8::from(self.to_f64() != 0.0)]),
            DType::U8 => int!(u8),
            DType::U16 => int!(u16),
            DType::U32 => int!(u32),
            DType::U64 => int!(u64),
            DType::I8 => int!(i8),
            DType::I16 => int!(i16),
            DType::I32 => int!(i32),
            DType::I64 => int!(i64),
            DType::F16 => put(f16::from_f64(self.to_f64()).to_ne_bytes()),
            DType::BF16 => put(bf16::from_f64(self.to_f64()).to_ne_bytes()),
            DType::F32 => put((self.to_f64() as f32).to_ne_bytes()),
            DType::F64 => put(self.to_f64().to_ne_bytes()),
        }
    }
}

// Equality and hashing use the bits, so that equal constants of a graph are found, NaN included.
impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Float(_), _) | (_, Self::Float(_)) => false,
            _ => self.kind() == other.kind() && self.to_i128() == other.to_i128(),
        }
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        match self {
            Self::Float(f) => f.to_bits().hash(state),
            _ => self.to_i128().hash(state),
        }
    }
}

macro_rules! from {
    ($variant:ident as $wide:ty: $($type:ty),*) => {$(
        impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Self::$variant(<$wide>::from(value))
            }
        }
    )*};
}
from!(Bool as bool: bool);
from!(Int as i128: u8, u16, u32, u64, i8, i16, i32, i64);
from!(Float as f64: f16, bf16, f32, f64);

impl From<usize> for Scalar {
    fn from(value: usize) -> Self {
        Self::Int(value as i128)
    }
}
