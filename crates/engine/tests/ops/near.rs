//! Numbers to test with, and what counts as equal.

use bessemer::{DType, Tensor};
use half::{bf16, f16};

/// The numbers from 0 on, in order.
pub(crate) fn counted(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::arange(0, count, 1, DType::I32).reshape(dims)
}

/// `count` numbers between -4 and 4, the same for the same seed.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Few enough bits for every float type to hold the number.
        ((state >> 40) % 128) as f64 / 16.0 - 4.0
    };
    (0..count).map(|_| next()).collect()
}

/// A tensor of these numbers in each float type, with the relative error to expect.
pub(crate) fn in_every_float(data: &[f64], shape: &[usize]) -> Vec<(Tensor, f64)> {
    let f16s: Vec<_> = data.iter().map(|&v| f16::from_f64(v)).collect();
    let bf16s: Vec<_> = data.iter().map(|&v| bf16::from_f64(v)).collect();
    let f32s: Vec<_> = data.iter().map(|&v| v as f32).collect();
    vec![
        (Tensor::from_slice(&f16s, shape), 1e-3),
        (Tensor::from_slice(&bf16s, shape), 8e-3),
        (Tensor::from_slice(&f32s, shape), 4e-6),
        (Tensor::from_slice(data, shape), 1e-13),
    ]
}

/// The elements of a float tensor.
pub(crate) fn values(x: &Tensor) -> Vec<f64> {
    match x.dtype() {
        DType::F16 => x
            .to_vec::<f16>()
            .unwrap()
            .iter()
            .map(|v| v.to_f64())
            .collect(),
        DType::BF16 => x
            .to_vec::<bf16>()
            .unwrap()
            .iter()
            .map(|v| v.to_f64())
            .collect(),
        DType::F32 => x
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .map(|&v| v.into())
            .collect(),
        _ => x.to_vec::<f64>().unwrap(),
    }
}

/// Fails where elements differ by more than `error`, relative to the larger of 1 and what is expected.
#[track_caller]
pub(crate) fn assert_near(actual: &Tensor, expected: &[f64], error: f64) {
    let actual_values = values(actual);
    assert_eq!(actual_values.len(), expected.len(), "{actual:?}");
    for (i, (&a, &e)) in actual_values.iter().zip(expected).enumerate() {
        let same = a == e || (a.is_nan() && e.is_nan());
        assert!(
            same || (a - e).abs() <= error * e.abs().max(1.0),
            "{actual:?}: element {i} is {a}, expected {e}"
        );
    }
}
