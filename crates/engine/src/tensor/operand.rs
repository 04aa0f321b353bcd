//! What may stand on the right of an operator: a tensor or a number.

use crate::{DType, Result, Scalar, Tensor};

/// A tensor or a Rust number, where a method takes either.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor, with its own type.
    Tensor(Tensor),
    /// A number, which takes the type of the tensor it meets; see [`DType`].
    Number(Scalar),
}

impl Operand {
    /// The type in which two operands meet.
    pub(crate) fn meet(&self, other: &Self) -> DType {
        match (self, other) {
            (Self::Tensor(a), Self::Tensor(b)) => a.dtype().promote(b.dtype()),
            (Self::Tensor(t), Self::Number(n)) | (Self::Number(n), Self::Tensor(t)) => {
                n.promote(t.dtype())
            }
            // Nothing says which float is meant: the one most code uses.
            (Self::Number(a), Self::Number(b)) => match a.dtype().promote(b.dtype()) {
                DType::F64 => DType::F32,
                dtype => dtype,
            },
        }
    }

    /// As a tensor of a type.
    pub(crate) fn cast(&self, op: &'static str, dtype: DType) -> Result<Tensor> {
        match self {
            Self::Tensor(t) => Ok(t.cast(dtype)),
            Self::Number(n) => {
                n.fit(op, dtype)?;
                Ok(Tensor::constant(*n, dtype))
            }
        }
    }
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Self {
        Self::Tensor(tensor.clone())
    }
}

impl<T: Into<Scalar>> From<T> for Operand {
    fn from(number: T) -> Self {
        Self::Number(number.into())
    }
}
