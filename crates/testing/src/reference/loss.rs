//! Losses.

use super::exact::sum;
use super::softmax::log_softmax;
use crate::Array;
use crate::number::Value;

/// Mean over all rows of `-log_softmax(row)[target]`; the classes are the last axis.
pub fn cross_entropy(logits: &Array, targets: &Array) -> Array {
    let each = cross_entropies(logits, targets);
    let mean = sum(each.to_floats()) / each.count() as f64;
    Array {
        dtype: each.dtype,
        shape: vec![],
        data: vec![Value::Float(mean)],
    }
}

/// `-log_softmax(row)[target]` of each row.
pub fn cross_entropies(logits: &Array, targets: &Array) -> Array {
    let log = log_softmax(logits, -1);
    let classes = *logits.shape.last().expect("an axis of classes");
    Array::from_float_fn(log.dtype, &targets.shape, |i| {
        let target = targets.at(i).int();
        let mut at = i.to_vec();
        at.push(super::index::wrapped(target, classes));
        -log.float(&at)
    })
}

/// Mean of (x - target)² over all elements.
pub fn mse(x: &Array, target: &Array) -> Array {
    let shape = crate::array::broadcast(&x.shape, &target.shape);
    let squares = Array::from_float_fn(x.dtype.promote(target.dtype).to_float(), &shape, |i| {
        let d = x.at_broadcast(i).float() - target.at_broadcast(i).float();
        d * d
    });
    let mean = sum(squares.to_floats()) / squares.count() as f64;
    Array {
        dtype: squares.dtype,
        shape: vec![],
        data: vec![Value::Float(mean)],
    }
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn cross_entropy_is_the_negative_log_likelihood_of_the_target() {
        let third = 3.0_f64.ln();
        let logits = Array::floats(DType::F64, &[2, 2], &[0.0, third, 0.0, 0.0]);
        let targets = Array::ints(DType::I64, &[2], &[1, 0]);
        let got = cross_entropy(&logits, &targets).float(&[]);
        let expected = ((4.0_f64 / 3.0).ln() + 2.0_f64.ln()) / 2.0;
        assert!((got - expected).abs() < 1e-15);
    }

    #[test]
    fn mse_is_the_mean_of_squares() {
        let x = Array::floats(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let t = Array::floats(DType::F32, &[2, 2], &[1.0, 0.0, 3.0, 0.0]);
        assert_eq!(mse(&x, &t).to_floats(), [5.0]);
    }
}
