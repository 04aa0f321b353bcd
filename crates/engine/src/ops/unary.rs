//! Functions of one element: `exp`, `relu`, `is_nan`, ….

use std::hash::{Hash, Hasher};

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::{DType, Error, Kind, Result, Tensor};

/// The result type of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryResult {
    /// The type of the input.
    Same,
    /// The type of the input, which must not be `bool`.
    Number,
    /// A float: [`DType::to_float`] of the input's type.
    Float,
    /// `bool`.
    Bool,
}

/// Declares [`Unary`] with its names and result types, and the methods.
macro_rules! declare {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($parameter:ident = $sample:literal))? $result:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        /// A function of one element.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Unary {
            $($(#[$doc])* $variant $((declare!(@type $parameter)))?,)*
        }

        impl Unary {
            /// All functions, with parameters of 0.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant $((declare!(@zero $parameter)))?,)*];

            /// The result type.
            pub(crate) const fn result(self) -> UnaryResult {
                match self {
                    $(Self::$variant { .. } => UnaryResult::$result,)*
                }
            }

            /// The parameter, if the function has one.
            pub(crate) const fn parameter(self) -> Option<f64> {
                match self {
                    $(Self::$variant $(($parameter))? => declare!(@option $($parameter)?),)*
                }
            }

            /// The function with a parameter of 0: kernels receive the parameter as an argument.
            pub(crate) const fn bare(self) -> Self {
                match self {
                    $(Self::$variant { .. } => Self::$variant $((declare!(@zero $parameter)))?,)*
                }
            }

            /// The name of the file that defines the function.
            pub(crate) const fn file(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($file),)*
                }
            }
        }

        impl Rule for Unary {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($name),)*
                }
            }

            fn measured_as(&self) -> Option<OpClass> {
                Some(OpClass::Elementwise)
            }

            fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
                let x = inputs[0].dtype();
                Ok((self.check(x)?, *inputs[0].shape()))
            }
        }

        impl Tensor {
            $($(#[$doc])* pub fn $name(&self $(, $parameter: f64)?) -> Self {
                self.unary(Unary::$variant $(($parameter))?)
            })*
        }
    };
    (@type $parameter:ident) => { f64 };
    (@zero $parameter:ident) => { 0.0 };
    (@option) => { None };
    (@option $parameter:ident) => { Some($parameter) };
}

crate::for_each_unary!(declare);

impl Unary {
    /// The result type for an input type, or an error.
    fn check(self, x: DType) -> Result<DType> {
        let refuse = |expected| Error::BadDType {
            op: self.name(),
            dtype: x,
            expected,
        };
        if matches!(self, Self::BitwiseNot) && x.is_float() {
            return Err(refuse("an integer type or bool"));
        }
        match self.result() {
            UnaryResult::Number if x.kind() == Kind::Bool => Err(refuse("a number type")),
            UnaryResult::Same | UnaryResult::Number => Ok(x),
            UnaryResult::Float => Ok(x.to_float()),
            UnaryResult::Bool => Ok(DType::Bool),
        }
    }

    fn key(self) -> (std::mem::Discriminant<Self>, Option<u64>) {
        (
            std::mem::discriminant(&self),
            self.parameter().map(f64::to_bits),
        )
    }
}

impl PartialEq for Unary {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Unary {}

impl Hash for Unary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Tensor {
    /// Applies a function, after conversion to the type it computes in.
    fn unary(&self, op: Unary) -> Self {
        match op.result() {
            UnaryResult::Float if !self.dtype().is_float() => {
                Self::apply(op, &[&self.cast(self.dtype().to_float())])
            }
            _ => Self::apply(op, &[self]),
        }
    }
}
