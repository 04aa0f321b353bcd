use bessemer::{DType, Tensor};
use bessemer_testing::Array;
use bessemer_testing::layout::{agree, same};

#[test]
fn integers_count_up_and_down() {
    for dtype in [
        DType::I8,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
    ] {
        let up: Vec<_> = (-5..100).step_by(3).map(f64::from).collect();
        let expected = Array::floats(dtype, &[up.len()], &up);
        same(&Tensor::arange(-5, 100, 3, dtype), &expected).unwrap();
        let down: Vec<_> = (1..=50).rev().map(f64::from).collect();
        let expected = Array::floats(dtype, &[50], &down);
        same(&Tensor::arange(50, 0, -1, dtype), &expected).unwrap();
    }
    same(
        &Tensor::arange(3, 3, 1, DType::U8),
        &Array::ints(DType::U8, &[0], &[]),
    )
    .unwrap();
}

#[test]
fn float_steps_do_not_accumulate_errors() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let truth: Vec<_> = (0..1001).map(|i| f64::from(i) / 1000.0).collect();
        let mut expected = Array::floats(DType::F64, &[1001], &truth);
        expected.dtype = dtype;
        let y = Tensor::linspace(0.0, 1.0, 1001, dtype);
        agree("linspace", 1, &y, &expected, None).unwrap();
    }
}
