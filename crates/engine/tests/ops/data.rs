//! Test data in every float type, and comparison within the table of tolerances.

use bessemer::{DType, Tensor};
use bessemer_testing::layout::{agree, array, tensor};
use bessemer_testing::tolerance::on_metal;
use bessemer_testing::{Array, Value};

/// The float types.
pub(crate) const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// The values 0, 1, 2, ….
pub(crate) fn counted(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::arange(0, count, 1, DType::I32).reshape(dims)
}

/// `count` values between -4 and 4, determined by the seed.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Few enough bits for every float type to represent the value.
        ((state >> 40) % 128) as f64 / 16.0 - 4.0
    };
    (0..count).map(|_| next()).collect()
}

/// Rows of [`numbers`], of which every other one, from the first on, is so small that an eps of 1e-5 is half of its
/// mean square: a norm without eps is wrong by a fifth there.
pub(crate) fn small_and_large_rows(seed: u64, rows: usize, len: usize) -> Vec<f64> {
    let mut x = numbers(seed, rows * len);
    for row in x.chunks_mut(len).step_by(2) {
        row.iter_mut().for_each(|x| *x /= 512.0);
    }
    x
}

/// A tensor of these values in each of [`FLOATS`].
pub(crate) fn in_every_float(data: &[f64], shape: &[usize]) -> [Tensor; 4] {
    FLOATS.map(|dtype| tensor(&Array::floats(dtype, shape, data)))
}

/// The elements of a float tensor.
pub(crate) fn values(x: &Tensor) -> Vec<f64> {
    array(x).unwrap().to_floats()
}

/// Fails if elements differ from the exact values by more than the table allows for the op. `size` is what the bound of
/// a sum is relative to: the op on absolute values; 1, if there is none.
#[track_caller]
pub(crate) fn assert_agrees(
    op: &str,
    terms: usize,
    got: &Tensor,
    expected: &[f64],
    size: Option<&[f64]>,
) {
    let shaped = |dtype, data: &[f64]| Array {
        dtype,
        shape: got.shape().to_vec(),
        data: data.iter().map(|&x| Value::Float(x)).collect(),
    };
    assert_eq!(got.count(), expected.len(), "{got:?}");
    let size = size.map(|size| shaped(DType::F64, size));
    let expected = shaped(got.dtype(), expected);
    if let Err(error) = agree(op, terms, got, &expected, size.as_ref()) {
        panic!("{got:?}: {error}");
    }
    assert_reached_the_device(op, got);
}

/// Fails if a test run on a Metal device did not compute this there. `f64` and ops without a kernel run on the CPU.
#[track_caller]
pub(crate) fn assert_reached_the_device(op: &str, y: &Tensor) {
    if !on_metal() || y.dtype() == DType::F64 {
        return;
    }
    assert!(!y.device().is_cpu(), "{y:?} was computed by the CPU");
    // Tests run in parallel: other ops may have fallen back to the CPU meanwhile.
    let left = y.device().fallbacks();
    assert!(left.iter().all(|f| f.op != op), "left to the CPU: {left:?}");
}

/// Runs a test that must launch a kernel, if the test run is on the software device.
#[track_caller]
pub(crate) fn launching<R>(kernel: &str, test: impl FnOnce() -> R) -> R {
    let launches = || {
        let device = bessemer::Device::current().unwrap();
        device.synchronize().unwrap();
        let executed = bessemer_hal::soft::executed(device.hal()?)?;
        let of = executed.iter().filter(|(name, _)| name.starts_with(kernel));
        Some(of.map(|(_, count)| count).sum::<u64>())
    };
    let before = launches();
    let result = test();
    assert!(
        before.is_none() || launches() > before,
        "{kernel} was not launched"
    );
    result
}
