//! `argsort`.

use bessemer::{DType, Error, Tensor};
use half::{bf16, f16};

use crate::order::{noise, order};

#[test]
fn the_order_is_ascending_and_stable() {
    for count in [1, 2, 3, 50, 199, 200, 1000, 5000, 40_000, 200_000] {
        let data: Vec<f32> = noise(count).into_iter().map(|x| x as f32).collect();
        let mut indices: Vec<i64> = (0..count as i64).collect();
        indices.sort_by(|&a, &b| order(data[a as usize].into(), data[b as usize].into()));
        let x = Tensor::from_slice(&data, [count]);
        assert_eq!(x.argsort(0).to_vec::<i64>().unwrap(), indices, "{count}");
        let wide: Vec<f64> = data.iter().map(|&x| x.into()).collect();
        let x = Tensor::from_slice(&wide, [count]);
        assert_eq!(x.argsort(0).to_vec::<i64>().unwrap(), indices, "{count}");
    }
}

#[test]
fn every_type_is_sorted() {
    let data = [5_i64, -3, 0, 127, -128, 1, 5];
    let x = Tensor::from_slice(&data, [7]);
    for dtype in [
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ] {
        let y = x.cast(dtype).argsort(0);
        assert_eq!(y.to_vec::<i64>().unwrap(), [4, 1, 2, 5, 0, 6, 3], "{dtype}");
    }
    let y = Tensor::from_slice(&[true, false, true], [3]);
    assert_eq!(y.argsort(0).to_vec::<i64>().unwrap(), [1, 0, 2]);
    let y = Tensor::from_slice(
        &[f16::NAN, f16::from_f64(-1.0), f16::NEG_ZERO, f16::ZERO],
        [4],
    );
    assert_eq!(y.argsort(0).to_vec::<i64>().unwrap(), [1, 2, 3, 0]);
    let y = Tensor::from_slice(&[bf16::INFINITY, bf16::NAN, bf16::NEG_INFINITY], [3]);
    assert_eq!(y.argsort(0).to_vec::<i64>().unwrap(), [2, 0, 1]);
    let x = Tensor::from_slice(&[4, 1, 3, 2, 6, 5], [2, 3]);
    assert_eq!(
        x.t().argsort(-1).to_vec::<i64>().unwrap(),
        [1, 0, 0, 1, 0, 1]
    );
}

#[test]
fn empty_axes_stay_empty_and_missing_axes_are_errors() {
    let x = Tensor::from_slice(&[0.0_f32; 0], [0, 3]);
    assert!(x.argsort(1).eval().is_ok());
    assert!(matches!(
        Tensor::scalar(1).argsort(0).eval(),
        Err(Error::BadAxis { .. })
    ));
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, Input};
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::sort::argsort;

    use crate::axis::in_all_sizes;

    #[test]
    fn every_type_layout_and_axis_is_right() {
        in_all_sizes("argsort", 700, |case, axis, _| {
            same(&case.tensor().argsort(axis), &argsort(&case.array(), axis))
        });
    }

    #[test]
    fn long_rows_and_columns_of_every_type_are_right() {
        for dtype in DType::ALL {
            for (shape, fill) in [([2, 1500], Fill::Special), ([2000, 2], Fill::Wide)] {
                for axis in [0, 1] {
                    let x = Input::new(dtype, &shape, fill, 7);
                    same(&x.tensor().argsort(axis), &argsort(&x.array(), axis))
                        .unwrap_or_else(|e| panic!("axis {axis} of {x:?}: {e}"));
                }
            }
        }
    }
}
