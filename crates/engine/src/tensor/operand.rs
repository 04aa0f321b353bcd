//! Operands: tensors or scalars.

use std::cell::RefCell;

use crate::{DType, Device, Result, Scalar, Tensor};

/// An argument that is a tensor or a scalar.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor, with its own type.
    Tensor(Tensor),
    /// A scalar, which takes the type of the other operand; see [`DType`].
    Scalar(Scalar),
}

impl Operand {
    /// The type that two operands promote to.
    pub(crate) fn promote(&self, other: &Self) -> DType {
        match (self, other) {
            (Self::Tensor(t), other) | (other, Self::Tensor(t)) => other.promote_with(t.dtype()),
            // Without a tensor, floats default to `f32`.
            (Self::Scalar(a), Self::Scalar(b)) => match a.dtype().promote(b.dtype()) {
                DType::F64 => DType::F32,
                dtype => dtype,
            },
        }
    }

    /// The type that this operand and a tensor of type `dtype` promote to.
    pub(crate) fn promote_with(&self, dtype: DType) -> DType {
        match self {
            Self::Tensor(t) => dtype.promote(t.dtype()),
            Self::Scalar(s) => s.promote(dtype),
        }
    }

    /// Converts to a tensor of a type.
    pub(crate) fn cast(&self, op: &'static str, dtype: DType) -> Result<Tensor> {
        match self {
            Self::Tensor(t) => Ok(t.cast(dtype)),
            Self::Scalar(s) => {
                s.fit(op, dtype)?;
                Ok(cached_scalar(*s, dtype))
            }
        }
    }
}

thread_local! {
    /// Recently used scalar operands: programs use the same ones again and again, and making a node for one takes as
    /// long as a small op.
    static SCALAR_CACHE: RefCell<[Option<Tensor>; 8]> = const { RefCell::new([const { None }; 8]) };
}

/// A scalar that fits a type, as a tensor of rank 0 on the default device; cached if the device benefits.
fn cached_scalar(value: Scalar, dtype: DType) -> Tensor {
    let make = || Tensor::constant(value, dtype);
    let Ok(device) = Device::current() else {
        return make();
    };
    if !device.capabilities().caches_scalars {
        return make();
    }
    // The high bits of a product are the best mixed.
    let bits = value.to_f64().to_bits() ^ dtype as u64;
    let index = bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
    let cached = SCALAR_CACHE.try_with(|cache| {
        let slot = &mut cache.borrow_mut()[index as usize];
        match slot {
            // An evaluated one would keep its memory alive.
            Some(t)
                if (t.dtype(), t.node.constant) == (dtype, Some(value))
                    && *t.device() == device
                    && !t.is_evaluated() =>
            {
                t.clone()
            }
            _ => slot.insert(make()).clone(),
        }
    });
    // Thread-local storage is gone while a thread ends.
    cached.unwrap_or_else(|_| make())
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
    fn from(scalar: T) -> Self {
        Self::Scalar(scalar.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn equal_scalars_share_a_node_until_it_is_evaluated() {
        Device::cpu().scope(|| {
            let zero = cached_scalar(Scalar::Float(0.0), DType::F32);
            for (value, dtype) in [
                (Scalar::Float(-0.0), DType::F32),
                (Scalar::Float(0.0), DType::F64),
                (Scalar::Int(0), DType::F32),
            ] {
                let other = cached_scalar(value, dtype);
                assert!(!Arc::ptr_eq(&zero.node, &other.node));
                assert_eq!(other.node.constant, Some(value));
                assert_eq!(other.dtype(), dtype);
            }
            let again = || cached_scalar(Scalar::Float(2.5), DType::F32);
            let first = again();
            assert!(Arc::ptr_eq(&first.node, &again().node));
            first.eval().unwrap();
            assert!(!Arc::ptr_eq(&first.node, &again().node));
        });
    }

    #[test]
    fn scalar_operands_work_on_the_cpu_and_in_the_scope_of_a_metal_device() {
        let soft = Device::software().unwrap();
        let x = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
        assert_eq!((&x + 0.5).to_vec::<f32>().unwrap(), [1.5, 2.5]);
        let y = soft.scope(|| &x + 0.5);
        assert!(y.device() == &soft);
        assert_eq!(y.to_vec::<f32>().unwrap(), [1.5, 2.5]);
    }
}
