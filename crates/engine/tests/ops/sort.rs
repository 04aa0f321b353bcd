//! `sort`, `argsort`, `topk`.

use std::cmp::Ordering;

use bessemer::{DType, Error, Tensor};
use half::{bf16, f16};

/// Numbers without a pattern, some of them special, some equal.
fn noise(count: usize) -> Vec<f64> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 50 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            4 => -0.0,
            5 => -f64::NAN,
            6..20 => (state >> 20 & 15) as f64 - 8.0,
            _ => (state >> 11) as f64 / (1_u64 << 48) as f64 - 16.0,
        }
    };
    (0..count).map(|_| next()).collect()
}

/// The order of sorting: NaN last.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn elements_come_in_order_equal_ones_as_they_were() {
    for count in [1, 2, 3, 50, 199, 200, 1000, 5000, 40_000, 200_000] {
        let data: Vec<f32> = noise(count).into_iter().map(|x| x as f32).collect();
        let mut indices: Vec<i64> = (0..count as i64).collect();
        indices.sort_by(|&a, &b| order(data[a as usize].into(), data[b as usize].into()));
        let sorted: Vec<f32> = indices.iter().map(|&i| data[i as usize]).collect();
        let x = Tensor::from_slice(&data, [count]);
        assert_eq!(bits(&x.sort(0).to_vec().unwrap()), bits(&sorted), "{count}");
        assert_eq!(x.argsort(0).to_vec::<i64>().unwrap(), indices, "{count}");
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
        let y = x.cast(dtype).sort(0).cast(DType::I64);
        assert_eq!(
            y.to_vec::<i64>().unwrap(),
            [-128, -3, 0, 1, 5, 5, 127],
            "{dtype}"
        );
        let y = x.cast(dtype).argsort(0);
        assert_eq!(y.to_vec::<i64>().unwrap(), [4, 1, 2, 5, 0, 6, 3], "{dtype}");
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
    assert_eq!(y.argsort(0).to_vec::<i64>().unwrap(), [1, 0, 2]);
    let y = Tensor::from_slice(
        &[f16::NAN, f16::from_f64(-1.0), f16::NEG_ZERO, f16::ZERO],
        [4],
    );
    assert_eq!(y.argsort(0).to_vec::<i64>().unwrap(), [1, 2, 3, 0]);
    let y = Tensor::from_slice(&[u64::MAX, 0, 1 << 63], [3]);
    assert_eq!(y.sort(0).to_vec::<u64>().unwrap(), [0, 1 << 63, u64::MAX]);
    let y = Tensor::from_slice(&[bf16::INFINITY, bf16::NAN, bf16::NEG_INFINITY], [3]);
    assert_eq!(y.argsort(0).to_vec::<i64>().unwrap(), [2, 0, 1]);
}

#[test]
fn every_axis_of_every_layout_is_sorted() {
    let x = Tensor::from_slice(&[4, 1, 3, 2, 6, 5], [2, 3]);
    assert_eq!(x.sort(1).to_vec::<i32>().unwrap(), [1, 3, 4, 2, 5, 6]);
    assert_eq!(x.sort(0).to_vec::<i32>().unwrap(), [2, 1, 3, 4, 6, 5]);
    assert_eq!(x.t().sort(0).to_vec::<i32>().unwrap(), [1, 2, 3, 5, 4, 6]);
    assert_eq!(
        x.t().argsort(-1).to_vec::<i64>().unwrap(),
        [1, 0, 0, 1, 0, 1]
    );
    let data: Vec<f32> = noise(40 * 300).into_iter().map(|x| x as f32).collect();
    let x = Tensor::from_slice(&data, [40, 300]);
    let columns = x.sort(0).to_vec::<f32>().unwrap();
    let rows = x.t().contiguous().sort(1).t().to_vec::<f32>().unwrap();
    assert_eq!(bits(&columns), bits(&rows));
}

#[test]
fn the_greatest_and_least_come_in_order_ties_by_the_first_index() {
    for count in [1, 5, 300, 5000] {
        // As few digits as the smaller type has, so that the same are equal in both.
        let data: Vec<f64> = noise(count)
            .into_iter()
            .map(|x| f64::from(x as f32))
            .collect();
        for k in [1, 3.min(count), count / 2 + 1, count] {
            for largest in [true, false] {
                let mut indices: Vec<i64> = (0..count as i64).collect();
                indices.sort_by(|&a, &b| {
                    let order = order(data[a as usize], data[b as usize]);
                    if largest { order.reverse() } else { order }
                });
                let narrow: Vec<f32> = data.iter().map(|&x| x as f32).collect();
                for x in [
                    Tensor::from_slice(&data, [count]),
                    Tensor::from_slice(&narrow, [count]),
                ] {
                    let (values, at) = x.topk(k, 0, largest);
                    assert_eq!(at.to_vec::<i64>().unwrap(), indices[..k], "{k} of {count}");
                    let values = values.cast(DType::F32).to_vec::<f32>().unwrap();
                    for (v, &i) in values.iter().zip(&indices) {
                        let x = narrow[i as usize];
                        assert!(*v == x || (v.is_nan() && x.is_nan()));
                    }
                }
            }
        }
    }
    let x = Tensor::from_slice(&[1_u8, 9, 4, 8, 3, 9], [3, 2]);
    let (values, at) = x.topk(2, 0, true);
    assert_eq!(values.to_vec::<u8>().unwrap(), [4, 9, 3, 9]);
    assert_eq!(at.to_vec::<i64>().unwrap(), [1, 0, 2, 2]);
}

#[test]
fn nothing_is_sorted_and_nonsense_is_an_error() {
    let x = Tensor::from_slice(&[0.0_f32; 0], [0, 3]);
    assert_eq!(*x.sort(0).shape(), [0, 3]);
    assert!(x.sort(0).eval().is_ok() && x.argsort(1).eval().is_ok());
    assert!(matches!(x.sort(2).eval(), Err(Error::BadAxis { .. })));
    assert!(matches!(
        Tensor::scalar(1).argsort(0).eval(),
        Err(Error::BadAxis { .. })
    ));
    let x = Tensor::from_slice(&[1, 2, 3], [3]);
    let (values, indices) = x.topk(4, 0, true);
    assert!(matches!(values.eval(), Err(Error::BadShape { .. })));
    assert!(matches!(indices.eval(), Err(Error::BadShape { .. })));
    let (values, indices) = x.topk(0, 0, true);
    assert_eq!(values.to_vec::<i32>().unwrap(), [0; 0]);
    assert_eq!(*indices.shape(), [0]);
    assert!(matches!(
        x.topk(usize::MAX, 0, true).0.eval(),
        Err(Error::BadShape { .. })
    ));
    assert!(matches!(
        x.topk(1, 1, true).0.eval(),
        Err(Error::BadAxis { .. })
    ));
}
