//! `prepack` and `matmul_packed`.

use bessemer::{DType, Error, Tensor};
use bessemer_testing::layout::array;

use crate::matmul::judge;

fn numbers(rows: usize, cols: usize, dtype: DType) -> Tensor {
    let n = rows * cols;
    let x = Tensor::from_vec(
        (0..n).map(|i| ((i * 7919) % 23) as f32 - 11.0).collect(),
        [rows, cols],
    );
    x.cast(dtype)
}

fn values(t: &Tensor) -> Vec<f64> {
    t.cast(DType::F64).to_vec().unwrap()
}

#[test]
fn matmul_packed_equals_matmul() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for (m, k, n) in [
            (1, 1, 1),
            (3, 5, 7),
            (17, 33, 65),
            (64, 128, 130),
            (2, 300, 16),
        ] {
            // Small integers: every order of summation gives the same.
            let (a, b) = (numbers(m, k, dtype), numbers(n, k, dtype).t());
            let packed = b.prepack().unwrap();
            let y = a.matmul_packed(&packed);
            assert_eq!(values(&y), values(&a.matmul(&b)), "{dtype} {m} {k} {n}");
            let [left, right] = [&a, &b].map(|t| array(t).unwrap());
            judge(&y, &left, &right).unwrap_or_else(|e| panic!("{dtype} {m} {k} {n}: {e}"));
        }
    }
}

#[test]
fn leading_axes_are_rows() {
    let packed = numbers(4, 3, DType::F32).prepack().unwrap();
    let x = numbers(6, 4, DType::F32);
    let y = x.reshape([2, 3, 4]).matmul_packed(&packed);
    assert_eq!(*y.shape(), [2, 3, 3]);
    assert_eq!(
        values(&y.reshape([6, 3])),
        values(&x.matmul_packed(&packed))
    );
    assert_eq!(*x.index(0, 0).matmul_packed(&packed).shape(), [3]);
}

#[test]
fn empty_factors_give_zeros_or_empty_results() {
    let packed = Tensor::zeros([0, 3], DType::F32).prepack().unwrap();
    let y = Tensor::zeros([2, 0], DType::F32).matmul_packed(&packed);
    assert_eq!(values(&y), [0.0; 6]);
    let packed = Tensor::zeros([3, 0], DType::F32).prepack().unwrap();
    let y = Tensor::zeros([2, 3], DType::F32).matmul_packed(&packed);
    assert_eq!(*y.shape(), [2, 0]);
    y.eval().unwrap();
}

#[test]
fn rejects_mismatched_factors() {
    let error = Tensor::zeros([2, 2], DType::I32).prepack().unwrap_err();
    assert!(
        matches!(error, Error::BadDType { op: "prepack", .. }),
        "{error}"
    );
    let error = Tensor::zeros([2], DType::F32).prepack().unwrap_err();
    assert!(
        matches!(error, Error::BadShape { op: "prepack", .. }),
        "{error}"
    );
    let packed = Tensor::zeros([2, 2], DType::F32).prepack().unwrap();
    let error = Tensor::zeros([3], DType::F32)
        .matmul_packed(&packed)
        .check()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::ShapeMismatch {
                op: "matmul_packed",
                ..
            }
        ),
        "{error}"
    );
    let error = Tensor::zeros([2], DType::F64)
        .matmul_packed(&packed)
        .check()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::WrongType {
                op: "matmul_packed",
                ..
            }
        ),
        "{error}"
    );
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, SIZES, check, input};
    use proptest::prelude::{Just, Strategy};
    use proptest::sample::select;

    use crate::matmul::judge;

    #[test]
    fn every_type_and_layout_is_right() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let size = || select(&SIZES[..]);
            let cases = (size(), size(), size()).prop_flat_map(move |(m, k, n)| {
                (
                    input(&[dtype], &Fill::IN_RANGE, Just(vec![m, k])),
                    input(&[dtype], &Fill::IN_RANGE, Just(vec![k, n])),
                )
            });
            check(&format!("matmul_packed of {dtype}"), 30, cases, |(a, b)| {
                let packed = b.tensor().prepack().map_err(|e| e.to_string())?;
                judge(&a.tensor().matmul_packed(&packed), &a.array(), &b.array())
            });
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_packed_matrix_keeps_its_device() {
    use bessemer::Device;
    let soft = Device::software().unwrap();
    let (x, w) = (numbers(3, 20, DType::F32), numbers(20, 7, DType::F32));
    let values = |t: &Tensor| t.to_vec::<f32>().unwrap();
    let expected = values(&x.matmul(&w));
    let there = w.to(&soft).prepack().unwrap();
    let y = x.matmul_packed(&there);
    assert_eq!(*y.device(), soft);
    assert_eq!(values(&y), expected);
    // A factor that is pinned to the CPU stays there, and so does the product.
    let y = x.to(&Device::cpu()).matmul_packed(&there);
    assert!(y.device().is_cpu());
    assert_eq!(values(&y), expected);
    let here = Device::cpu().scope(|| w.prepack()).unwrap();
    assert_eq!(values(&x.to(&soft).matmul_packed(&here)), expected);
}
