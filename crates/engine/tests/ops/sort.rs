//! `sort`.

use bessemer::{DType, Error, Tensor};

use crate::order::{noise, order};

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn the_order_is_ascending_and_stable() {
    for count in [1, 2, 3, 50, 199, 200, 1000, 5000, 40_000, 200_000] {
        let data: Vec<f32> = noise(count).into_iter().map(|x| x as f32).collect();
        let mut indices: Vec<i64> = (0..count as i64).collect();
        indices.sort_by(|&a, &b| order(data[a as usize].into(), data[b as usize].into()));
        let sorted: Vec<f32> = indices.iter().map(|&i| data[i as usize]).collect();
        let x = Tensor::from_slice(&data, [count]);
        assert_eq!(bits(&x.sort(0).to_vec().unwrap()), bits(&sorted), "{count}");
        let wide: Vec<f64> = data.iter().map(|&x| x.into()).collect();
        let x = Tensor::from_slice(&wide, [count]);
        let y: Vec<f32> = x
            .sort(0)
            .to_vec::<f64>()
            .unwrap()
            .iter()
            .map(|&x| x as f32)
            .collect();
        assert!(
            y.iter()
                .zip(&sorted)
                .all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
        );
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
        let y = x.cast(dtype).sort(0).cast(DType::I64);
        assert_eq!(
            y.to_vec::<i64>().unwrap(),
            [-128, -3, 0, 1, 5, 5, 127],
            "{dtype}"
        );
    }
    for dtype in [DType::U8, DType::U16, DType::U32, DType::U64] {
        let y = x.abs().cast(dtype).sort(0).cast(DType::I64);
        assert_eq!(
            y.to_vec::<i64>().unwrap(),
            [0, 1, 3, 5, 5, 127, 128],
            "{dtype}"
        );
    }
    let y = Tensor::from_slice(&[true, false, true], [3]);
    assert_eq!(y.sort(0).to_vec::<bool>().unwrap(), [false, true, true]);
    let y = Tensor::from_slice(&[u64::MAX, 0, 1 << 63], [3]);
    assert_eq!(y.sort(0).to_vec::<u64>().unwrap(), [0, 1 << 63, u64::MAX]);
}

#[test]
fn every_axis_of_every_layout_is_sorted() {
    let x = Tensor::from_slice(&[4, 1, 3, 2, 6, 5], [2, 3]);
    assert_eq!(x.sort(1).to_vec::<i32>().unwrap(), [1, 3, 4, 2, 5, 6]);
    assert_eq!(x.sort(0).to_vec::<i32>().unwrap(), [2, 1, 3, 4, 6, 5]);
    assert_eq!(x.t().sort(0).to_vec::<i32>().unwrap(), [1, 2, 3, 5, 4, 6]);
    let data: Vec<f32> = noise(40 * 300).into_iter().map(|x| x as f32).collect();
    let x = Tensor::from_slice(&data, [40, 300]);
    let columns = x.sort(0).to_vec::<f32>().unwrap();
    let rows = x.t().contiguous().sort(1).t().to_vec::<f32>().unwrap();
    assert_eq!(bits(&columns), bits(&rows));
}

#[test]
fn empty_axes_stay_empty_and_missing_axes_are_errors() {
    let x = Tensor::from_slice(&[0.0_f32; 0], [0, 3]);
    assert_eq!(*x.sort(0).shape(), [0, 3]);
    assert!(x.sort(0).eval().is_ok());
    assert!(matches!(x.sort(2).eval(), Err(Error::BadAxis { .. })));
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, Input};
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::sort::sort;

    use crate::axis::in_all_sizes;

    #[test]
    fn every_type_layout_and_axis_is_sorted() {
        in_all_sizes("sort", 700, |case, axis, _| {
            same(&case.tensor().sort(axis), &sort(&case.array(), axis))
        });
    }

    #[test]
    fn long_rows_and_columns_of_every_type_are_sorted() {
        for dtype in DType::ALL {
            for (shape, fill) in [([2, 1500], Fill::Special), ([2000, 2], Fill::Wide)] {
                for axis in [0, 1] {
                    let x = Input::new(dtype, &shape, fill, 7);
                    same(&x.tensor().sort(axis), &sort(&x.array(), axis))
                        .unwrap_or_else(|e| panic!("axis {axis} of {x:?}: {e}"));
                }
            }
        }
    }
}
