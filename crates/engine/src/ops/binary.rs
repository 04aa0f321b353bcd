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
macro_rules! binary {
    ($($(#[$doc:meta])* $variant:ident $name:ident $types:ident;)*) => {
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

binary! {
    /// `a + b`; integers wrap, truth values are or-ed.
    Add add Same;
    /// `a - b`; integers wrap.
    Sub sub Number;
    /// `a * b`; integers wrap, truth values are and-ed.
    Mul mul Same;
    /// `a / b`, of integers too: in `f64`.
    Div div TrueFloat;
    /// `floor(a / b)`; of integers 0 where `b` is 0.
    FloorDiv floor_div Number;
    /// What `floor_div` leaves, with the sign of `b`; of integers 0 where `b` is 0.
    Rem rem Number;
    /// `a` to the power of `b`; of integers wrapping, and 0 for negative `b` unless `a` is 1 or -1.
    Pow pow Number;
    /// The lesser; NaN if one is.
    Minimum minimum Same;
    /// The greater; NaN if one is.
    Maximum maximum Same;
    /// The angle of the point (`b`, `a`).
    Atan2 atan2 Float;
    /// `sqrt(a² + b²)` without overflow on the way.
    Hypot hypot Float;
    /// `a == b`
    Eq eq Compare;
    /// `a != b`
    Ne ne Compare;
    /// `a < b`
    Lt lt Compare;
    /// `a <= b`
    Le le Compare;
    /// `a > b`
    Gt gt Compare;
    /// `a >= b`
    Ge ge Compare;
    /// Whether both are not 0.
    LogicalAnd logical_and Logic;
    /// Whether one is not 0.
    LogicalOr logical_or Logic;
    /// Whether exactly one is not 0.
    LogicalXor logical_xor Logic;
    /// The bits of both.
    BitwiseAnd bitwise_and Bits;
    /// The bits of either.
    BitwiseOr bitwise_or Bits;
    /// The bits of exactly one.
    BitwiseXor bitwise_xor Bits;
    /// Bits moved up; 0 where `b` is the width or more, or negative.
    ShiftLeft shift_left Int;
    /// Bits moved down, the sign filling in; all sign where `b` is the width or more, or negative.
    ShiftRight shift_right Int;
}

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
