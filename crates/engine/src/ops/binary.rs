//! Functions of two elements, with broadcasting: arithmetic, comparisons, logic, bits.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::tensor::Operand;
use crate::{DType, Error, Kind, Result, Tensor};

/// The operand and result types of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryTypes {
    /// Numbers; the result has their type.
    Number,
    /// Any type; the result has the same.
    Same,
    /// Floats; integers are converted to `f64` first.
    TrueFloat,
    /// Floats; integers are converted with [`DType::to_float`] first.
    Float,
    /// Any type; the result is boolean.
    Compare,
    /// Booleans; other types are compared with 0 first.
    Logic,
    /// Integers and booleans; the result has their type.
    Bits,
    /// Integers; the result has their type.
    Int,
}

/// Declares [`Binary`], its names and types, and the methods.
macro_rules! declare {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $types:ident $file:ident $($bound:ident($($number:literal),+))*;
    )*) => {
        /// A function of two elements of one type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Binary {
            $($(#[$doc])* $variant,)*
        }

        impl Binary {
            /// All functions.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The operand and result types.
            pub(crate) const fn types(self) -> BinaryTypes {
                match self {
                    $(Self::$variant => BinaryTypes::$types,)*
                }
            }

            /// The name of the file that defines the function for floats.
            pub(crate) const fn file(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($file),)*
                }
            }
        }

        impl Rule for Binary {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }

            fn measured_as(&self) -> Option<OpClass> {
                Some(OpClass::Elementwise)
            }

            fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
                let shape = inputs[0].shape().broadcast(self.name(), inputs[1].shape())?;
                Ok((self.result(inputs[0].dtype())?, shape))
            }
        }

        impl Tensor {
            $($(#[$doc])* pub fn $name(&self, other: impl Into<Operand>) -> Self {
                self.binary(Binary::$variant, other.into())
            })*
        }
    };
}

crate::for_each_binary!(declare);

impl Binary {
    /// The type that inputs are converted to, given the type that they promote to.
    fn operand(self, promoted: DType) -> DType {
        match self.types() {
            BinaryTypes::TrueFloat if !promoted.is_float() => DType::F64,
            BinaryTypes::Float => promoted.to_float(),
            BinaryTypes::Logic => DType::Bool,
            _ => promoted,
        }
    }

    /// The result type for inputs of this type, or an error.
    fn result(self, x: DType) -> Result<DType> {
        let refuse = |expected| {
            Err(Error::BadDType {
                op: self.name(),
                dtype: x,
                expected,
            })
        };
        match (self.types(), x.kind()) {
            (BinaryTypes::Number, Kind::Bool) => refuse("a number type"),
            (BinaryTypes::Bits, Kind::Float) => refuse("an integer type or bool"),
            (BinaryTypes::Int, Kind::Float | Kind::Bool) => refuse("an integer type"),
            (BinaryTypes::Compare | BinaryTypes::Logic, _) => Ok(DType::Bool),
            _ => Ok(x),
        }
    }
}

impl Tensor {
    pub(crate) fn binary(&self, op: Binary, other: Operand) -> Self {
        let name = op.name();
        let operand = op.operand(other.promote_with(self.dtype()));
        let other = match other {
            Operand::Tensor(other) if (self.dtype(), other.dtype()) == (operand, operand) => {
                return Self::apply_to(op, self, other);
            }
            other => other,
        };
        Self::attempt(|| {
            let other = other.cast(name, operand)?;
            Ok(Self::apply_to(op, &self.cast(operand), other))
        })
    }
}
