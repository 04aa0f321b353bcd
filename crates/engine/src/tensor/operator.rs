//! Operators: `&a + &b`, `a * 2.0`, `1.0 - a`, `-a`, `!a`.

use std::ops;

use crate::ops::binary::Binary;
use crate::{Operand, Scalar, Tensor};

macro_rules! binary {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl<T: Into<Operand>> ops::$trait<T> for Tensor {
            type Output = Tensor;
            fn $method(self, other: T) -> Tensor {
                self.binary(Binary::$op, other.into())
            }
        }

        impl<T: Into<Operand>> ops::$trait<T> for &Tensor {
            type Output = Tensor;
            fn $method(self, other: T) -> Tensor {
                self.binary(Binary::$op, other.into())
            }
        }

        scalar_first!($trait $method $op: bool, u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);
    )*};
}

macro_rules! scalar_first {
    ($trait:ident $method:ident $op:ident: $($scalar:ty),*) => {$(
        impl ops::$trait<Tensor> for $scalar {
            type Output = Tensor;
            fn $method(self, other: Tensor) -> Tensor {
                other.after_scalar(self.into(), Binary::$op)
            }
        }

        impl ops::$trait<&Tensor> for $scalar {
            type Output = Tensor;
            fn $method(self, other: &Tensor) -> Tensor {
                other.after_scalar(self.into(), Binary::$op)
            }
        }
    )*};
}

binary!(
    Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem,
    BitAnd bitand BitwiseAnd, BitOr bitor BitwiseOr, BitXor bitxor BitwiseXor,
    Shl shl ShiftLeft, Shr shr ShiftRight
);

impl Tensor {
    /// `scalar op self`
    fn after_scalar(&self, scalar: Scalar, op: Binary) -> Self {
        Self::attempt(|| {
            let scalar = Operand::Scalar(scalar);
            let first = scalar.cast(crate::ops::Rule::name(&op), scalar.promote(&self.into()))?;
            Ok(first.binary(op, self.into()))
        })
    }
}

impl ops::Neg for Tensor {
    type Output = Tensor;
    fn neg(self) -> Tensor {
        Tensor::neg(&self)
    }
}

impl ops::Neg for &Tensor {
    type Output = Tensor;
    fn neg(self) -> Tensor {
        Tensor::neg(self)
    }
}

impl ops::Not for Tensor {
    type Output = Tensor;
    fn not(self) -> Tensor {
        self.bitwise_not()
    }
}

impl ops::Not for &Tensor {
    type Output = Tensor;
    fn not(self) -> Tensor {
        self.bitwise_not()
    }
}
