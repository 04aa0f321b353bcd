//! Element types and type promotion.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

/// The type of a tensor's elements.
///
/// # Promotion
///
/// Two tensors of different types are promoted to the type that [`DType::promote`] returns: the smallest one that
/// represents every value of both, as in NumPy 2. Within a kind the wider type wins. An unsigned and a signed integer
/// promote to a signed integer that represents both (`u32` and `i32` to `i64`; `u64` and any signed integer to `f64`),
/// an integer and a float to a float whose mantissa represents the integer (`i8` and `f16` to `f16`, `i16` and `f16` to
/// `f32`, `i32` and `f32` to `f64`). `bf16`, which NumPy lacks, behaves like `f16` with integers; `bf16` and `f16`
/// promote to `f32`. A scalar operand is *weak*: it takes the tensor's type, unless its kind is higher (a float with an
/// integer tensor gives `f64`, an integer with a `bool` tensor `i64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// `bool`, one byte, 0 or 1.
    Bool,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// [`half::f16`], IEEE binary16.
    F16,
    /// [`half::bf16`], the upper half of an `f32`.
    BF16,
    /// `f32`
    F32,
    /// `f64`; on the CPU only, since Metal has none.
    F64,
}

/// The kind of a [`DType`]; each kind includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Booleans.
    Bool,
    /// Integers, signed or not.
    Int,
    /// Floating point.
    Float,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 13] = [
        Self::Bool,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
    ];

    /// Size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name, which is also the suffix of kernel names: `f32`, `bool`, ….
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Boolean, integer or float.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bool => Kind::Bool,
            Self::F16 | Self::BF16 | Self::F32 | Self::F64 => Kind::Float,
            _ => Kind::Int,
        }
    }

    /// Returns `true` for floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float)
    }

    /// Returns `true` for integer types; `bool` is not one.
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), Kind::Int)
    }

    /// Returns `true` for unsigned integer types.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// The type that `self` and `other` promote to; see [`DType`].
    pub const fn promote(self, other: Self) -> Self {
        use DType::{BF16, F16, F32, F64, I16, I32, I64};
        let (low, high) = if self as u8 <= other as u8 {
            (self, other)
        } else {
            (other, self)
        };
        if low as u8 == high as u8 || matches!(low, Self::Bool) {
            return high;
        }
        match (low.kind(), high.kind()) {
            (Kind::Float, _) => match (low, high) {
                (F16, BF16) => F32,
                _ => high,
            },
            (_, Kind::Float) => match (low.size(), high) {
                (1, _) => high,
                (2, F16 | BF16 | F32) => F32,
                _ => F64,
            },
            _ if low.is_unsigned() == high.is_unsigned() => high,
            // `low` is unsigned, `high` signed: the order of the variants.
            _ if low.size() < high.size() => high,
            _ => match low.size() {
                1 => I16,
                2 => I32,
                4 => I64,
                _ => F64,
            },
        }
    }

    /// The result type of functions such as `exp` on elements of this type, as in NumPy: itself for floats, otherwise
    /// the smallest float that represents the integer.
    pub const fn to_float(self) -> Self {
        match (self.kind(), self.size()) {
            (Kind::Float, _) => self,
            (_, 1) => Self::F16,
            (_, 2) => Self::F32,
            _ => Self::F64,
        }
    }

    /// The result type of sums and products of this type, as in NumPy: 64-bit integers of the same signedness for
    /// integers, so that small types do not overflow.
    pub const fn to_sum(self) -> Self {
        match self.kind() {
            Kind::Float => self,
            Kind::Int if self.is_unsigned() => Self::U64,
            _ => Self::I64,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = crate::Error;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| crate::Error::Invalid {
                op: "dtype",
                reason: format!(
                    "`{s}` is not a dtype; there are {}",
                    Self::ALL.map(Self::name).join(", ")
                ),
            })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be an element of a tensor.
pub trait Element:
    sealed::Sealed
    + bytemuck::NoUninit
    + bytemuck::CheckedBitPattern
    + Send
    + Sync
    + PartialOrd
    + fmt::Debug
    + fmt::Display
    + Default
{
    /// Its [`DType`].
    const DTYPE: DType;
}

macro_rules! element {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

element!(bool => Bool, u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32,
    i64 => I64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

/// Rounds `x` to odd: an inexact value becomes the one of its two `f32` neighbours whose last bit is 1, which is never
/// a tie between two narrower floats.
#[inline(always)]
pub(crate) fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    let towards_zero = bits.wrapping_sub(u32::from(back.abs() > x.abs()));
    f32::from_bits(if back == x { bits } else { towards_zero | 1 })
}

/// Evaluates an expression with the Rust type of a [`DType`]; `bool` becomes `u8`, which kernels know to be 0 or 1.
///
/// `with_type!(dtype, T => body)` covers all types. `floats`, `ints` (with bool) or `numbers` (without bool) before the
/// dtype restrict it, and require a last arm `else body` for the other types.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::dtype::with_type!(@match $dtype, $T, $body;
            Bool u8, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64,
            F16 half::f16, BF16 half::bf16, F32 f32, F64 f64;)
    };
    (floats $dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        $crate::dtype::with_type!(@match $dtype, $T, $body;
            F16 half::f16, BF16 half::bf16, F32 f32, F64 f64; _ => $other,)
    };
    (ints $dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        $crate::dtype::with_type!(@match $dtype, $T, $body;
            Bool u8, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64; _ => $other,)
    };
    (numbers $dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        $crate::dtype::with_type!(@match $dtype, $T, $body;
            U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64,
            F16 half::f16, BF16 half::bf16, F32 f32, F64 f64; _ => $other,)
    };
    (@match $dtype:expr, $T:ident, $body:expr; $($variant:ident $type:ty),*; $($rest:tt)*) => {
        match $dtype {
            $($crate::DType::$variant => { type $T = $type; $body })*
            $($rest)*
        }
    };
}
pub(crate) use with_type;

#[cfg(test)]
mod tests {
    use super::DType::{self, *};

    #[test]
    fn promotes_as_numpy_does() {
        // Results of NumPy 2's `np.promote_types`; rows and columns in the order of `names`.
        let names = [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, F32, F64];
        let table = [
            [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, F32, F64],
            [U8, U8, U16, U32, U64, I16, I16, I32, I64, F16, F32, F64],
            [U16, U16, U16, U32, U64, I32, I32, I32, I64, F32, F32, F64],
            [U32, U32, U32, U32, U64, I64, I64, I64, I64, F64, F64, F64],
            [U64, U64, U64, U64, U64, F64, F64, F64, F64, F64, F64, F64],
            [I8, I16, I32, I64, F64, I8, I16, I32, I64, F16, F32, F64],
            [I16, I16, I32, I64, F64, I16, I16, I32, I64, F32, F32, F64],
            [I32, I32, I32, I64, F64, I32, I32, I32, I64, F64, F64, F64],
            [I64, I64, I64, I64, F64, I64, I64, I64, I64, F64, F64, F64],
            [F16, F16, F32, F64, F64, F16, F32, F64, F64, F16, F32, F64],
            [F32, F32, F32, F64, F64, F32, F32, F64, F64, F32, F32, F64],
            [F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64],
        ];
        for (a, row) in names.into_iter().zip(table) {
            for (b, expected) in names.into_iter().zip(row) {
                assert_eq!(a.promote(b), expected, "{a} with {b}");
            }
        }
    }

    #[test]
    fn bf16_promotes_like_f16_and_to_f32_with_it() {
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(BF16.promote(F32), F32);
        assert_eq!(U8.promote(BF16), BF16);
        assert_eq!(I16.promote(BF16), F32);
        assert_eq!(I64.promote(BF16), F64);
    }

    #[test]
    fn names_parse_to_their_dtype() {
        for d in DType::ALL {
            assert_eq!(d.name().parse(), Ok(d));
        }
        assert!("float".parse::<DType>().is_err());
    }
}
