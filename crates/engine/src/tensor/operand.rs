//! What may stand on the right of an operator: a tensor or a number.

use std::cell::RefCell;

use crate::{DType, Device, Result, Scalar, Tensor};

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
                Ok(number(*n, dtype))
            }
        }
    }
}

thread_local! {
    /// Numbers that met tensors lately: programs meet the same ones again and again, and a node for one takes as long as
    /// one for a small op.
    static LATELY: RefCell<[Option<Tensor>; 8]> = const { RefCell::new([const { None }; 8]) };
}

/// A number that fits a type, as a tensor of rank 0.
fn number(value: Scalar, dtype: DType) -> Tensor {
    let made = || Tensor::constant(value, dtype);
    if !Device::current().is_ok_and(|device| device.is_cpu()) {
        return made();
    }
    // The best bits of a product are the high ones.
    let bits = value.to_f64().to_bits() ^ dtype as u64;
    let place = bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
    let found = LATELY.try_with(|all| {
        let slot = &mut all.borrow_mut()[place as usize];
        match slot {
            // One that was computed would keep its memory.
            Some(t)
                if (t.dtype(), t.node.constant) == (dtype, Some(value)) && !t.is_evaluated() =>
            {
                t.clone()
            }
            _ => slot.insert(made()).clone(),
        }
    });
    // A thread that ends has none any more.
    found.unwrap_or_else(|_| made())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_number_is_one_node_until_it_is_computed() {
        Device::cpu().scope(|| {
            let zero = number(Scalar::Float(0.0), DType::F32);
            for (value, dtype) in [
                (Scalar::Float(-0.0), DType::F32),
                (Scalar::Float(0.0), DType::F64),
                (Scalar::Int(0), DType::F32),
            ] {
                let other = number(value, dtype);
                assert!(!Arc::ptr_eq(&zero.node, &other.node));
                assert_eq!(other.node.constant, Some(value));
                assert_eq!(other.dtype(), dtype);
            }
            let again = || number(Scalar::Float(2.5), DType::F32);
            let first = again();
            assert!(Arc::ptr_eq(&first.node, &again().node));
            first.eval().unwrap();
            assert!(!Arc::ptr_eq(&first.node, &again().node));
        });
    }

    #[test]
    fn a_number_that_meets_tensors_of_a_metal_device_is_there() {
        let soft = Device::software().unwrap();
        let x = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
        assert_eq!((&x + 0.5).to_vec::<f32>().unwrap(), [1.5, 2.5]);
        let y = soft.scope(|| &x + 0.5);
        assert!(y.device() == &soft);
        assert_eq!(y.to_vec::<f32>().unwrap(), [1.5, 2.5]);
    }
}
