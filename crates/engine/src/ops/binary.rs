//! Functions of two elements, with broadcasting: arithmetic, comparisons, logic, bits.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::tensor::Operand;
use crate::{DType, Error, Kind, Result, Tensor};

/// The types a function takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Types {
    /// Numbers, to their own type.
    Number,
    /// Anything, to its own type.
    Same,
    /// Floats; integers are converted to `f64` first.
    TrueFloat,
    /// Floats; integers are converted to the float that holds them.
    Float,
    /// Anything, to truth values.
    Compare,
    /// Truth values; anything else is compared with 0 first.
    Logic,
    /// Integers and truth values, to their own type.
    Bits,
    /// Integers, to their own type.
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
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The types it takes and gives.
            pub(crate) const fn types(self) -> Types {
                match self {
                    $(Self::$variant => Types::$types,)*
                }
            }

            /// The name of the file that has the function of floats.
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
    /// The type that inputs of types whose promotion is `met` are converted to.
    fn operand(self, met: DType) -> DType {
        match self.types() {
            Types::TrueFloat if !met.is_float() => DType::F64,
            Types::Float => met.to_float(),
            Types::Logic => DType::Bool,
            _ => met,
        }
    }

    /// The result type for inputs of one type, or why there is none.
    fn result(self, x: DType) -> Result<DType> {
        let refuse = |expected| {
            Err(Error::BadDType {
                op: self.name(),
                dtype: x,
                expected,
            })
        };
        match (self.types(), x.kind()) {
            (Types::Number, Kind::Bool) => refuse("a number type"),
            (Types::Bits, Kind::Float) => refuse("integers and truth values have bits"),
            (Types::Int, Kind::Float | Kind::Bool) => refuse("an integer type"),
            (Types::Compare | Types::Logic, _) => Ok(DType::Bool),
            _ => Ok(x),
        }
    }
}

impl Tensor {
    pub(crate) fn binary(&self, op: Binary, other: Operand) -> Self {
        let name = op.name();
        let met = match &other {
            Operand::Tensor(t) => self.dtype().promote(t.dtype()),
            Operand::Number(n) => n.promote(self.dtype()),
        };
        let operand = op.operand(met);
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
