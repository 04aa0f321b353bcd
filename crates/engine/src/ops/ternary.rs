//! Functions of three elements, with broadcasting: `select`, `clamp`, `mul_add`, `lerp`.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::tensor::Operand;
use crate::{DType, Error, Kind, Result, Tensor};

/// The operand and result types of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TernaryTypes {
    /// A boolean, then any type; the result has the latter.
    Condition,
    /// Any type; the result has the same.
    Same,
    /// Numbers; the result has their type.
    Number,
    /// Floats; the result has their type.
    Float,
}

/// Declares [`Ternary`], its names and types, and the methods.
macro_rules! declare {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident($b:ident, $c:ident) $types:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        /// A function of three elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Ternary {
            $($(#[$doc])* $variant,)*
        }

        impl Ternary {
            /// All functions.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The operand and result types.
            pub(crate) const fn types(self) -> TernaryTypes {
                match self {
                    $(Self::$variant => TernaryTypes::$types,)*
                }
            }
        }

        impl Rule for Ternary {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }

            fn measured_as(&self) -> Option<OpClass> {
                Some(OpClass::Elementwise)
            }

            fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
                let dtype = self.result(inputs[0].dtype(), inputs[2].dtype())?;
                let shape = inputs[0].shape().broadcast(self.name(), inputs[1].shape())?;
                Ok((dtype, shape.broadcast(self.name(), inputs[2].shape())?))
            }
        }

        impl Tensor {
            $($(#[$doc])* pub fn $name(
                &self,
                $b: impl Into<Operand>,
                $c: impl Into<Operand>,
            ) -> Self {
                self.ternary(Ternary::$variant, $b.into(), $c.into())
            })*
        }
    };
}

crate::for_each_ternary!(declare);

impl Ternary {
    /// The result type for these types of the first input and of the others, or an error.
    fn result(self, first: DType, rest: DType) -> Result<DType> {
        let refuse = |dtype, expected| {
            Err(Error::BadDType {
                op: self.name(),
                dtype,
                expected,
            })
        };
        match self.types() {
            TernaryTypes::Condition if first != DType::Bool => {
                refuse(first, "the condition must be bool")
            }
            TernaryTypes::Number if rest.kind() == Kind::Bool => refuse(rest, "a number type"),
            TernaryTypes::Float if !rest.is_float() => refuse(rest, "a float type"),
            _ => Ok(rest),
        }
    }
}

impl Tensor {
    fn ternary(&self, op: Ternary, b: Operand, c: Operand) -> Self {
        Self::attempt(|| {
            let name = op.name();
            if op.types() == TernaryTypes::Condition {
                let dtype = b.promote(&c);
                let (b, c) = (b.cast(name, dtype)?, c.cast(name, dtype)?);
                return Ok(Self::apply(op, &[self, &b, &c]));
            }
            let first = Operand::from(self);
            let dtype = DType::promote(first.promote(&b), first.promote(&c));
            let (b, c) = (b.cast(name, dtype)?, c.cast(name, dtype)?);
            Ok(Self::apply(op, &[&self.cast(dtype), &b, &c]))
        })
    }
}
