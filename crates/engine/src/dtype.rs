//! Element types and how they combine.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

/// The type of a tensor's elements.
///
/// # Promotion
///
/// Two tensors of different types meet in the type [`DType::promote`] names: the smallest type of the
/// list that holds every value of both, as NumPy 2 does it. Within a kind the wider one wins; an
/// unsigned and a signed integer meet in a signed one with room for both (`u32` and `i32` in `i64`;
/// `u64` and any signed integer in `f64`); an integer and a float meet in a float whose mantissa holds
/// the integer (`i8` and `f16` in `f16`, `i16` and `f16` in `f32`, `i32` and `f32` in `f64`). `bf16`,
/// which NumPy lacks, behaves like `f16` with integers, and the two meet in `f32`. A Rust number beside
/// a tensor is *weak*: it takes the tensor's type, unless its kind is higher (a float beside integers
/// makes `f64`, an integer beside `bool` makes `i64`).
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

/// What sort of number a [`DType`] holds; each kind includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Truth values.
    Bool,
    /// Integers, signed or not.
    Int,
    /// Floating point.
    Float,
}

impl DType {
    /// All of them.
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

    /// Bytes of one element.
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

    /// Truth value, integer or float.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bool => Kind::Bool,
            Self::F16 | Self::BF16 | Self::F32 | Self::F64 => Kind::Float,
            _ => Kind::Int,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float)
    }

    /// Whether this is an integer type; `bool` is not.
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), Kind::Int)
    }

    /// Whether this is an unsigned integer type.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// The type in which elements of `self` and `other` meet; see the type's own documentation.
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

    /// The float type in which functions such as `exp` answer for elements of this type, as in NumPy:
    /// itself for floats, otherwise the smallest that holds the integer.
    pub const fn to_float(self) -> Self {
        match (self.kind(), self.size()) {
            (Kind::Float, _) => self,
            (_, 1) => Self::F16,
            (_, 2) => Self::F32,
            _ => Self::F64,
        }
    }

    /// The type in which sums and products of this type are returned, as in NumPy: integers in the
    /// 64-bit type of their sign, so that small types do not overflow.
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

/// Calls a generic function with the Rust type of a [`DType`]; `bool` is handed over as `u8`, of which
/// kernels know that it is 0 or 1.
///
/// `with_type!(dtype, T => body)` covers all types; `floats`, `ints` (with bool) or `numbers` (without
/// bool) before the dtype narrow it, and need a last arm `else body` for the others.
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
    fn promotion_is_numpys() {
        // What NumPy 2 answers for `np.promote_types`; rows and columns in the order of `names`.
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
    fn bf16_promotes_like_f16_and_meets_it_in_f32() {
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(BF16.promote(F32), F32);
        assert_eq!(U8.promote(BF16), BF16);
        assert_eq!(I16.promote(BF16), F32);
        assert_eq!(I64.promote(BF16), F64);
    }

    #[test]
    fn names_are_read_back() {
        for d in DType::ALL {
            assert_eq!(d.name().parse(), Ok(d));
        }
        assert!("float".parse::<DType>().is_err());
    }
}
