//! `argmin`, `argmax`.

use bessemer::{DType, Error, Tensor};
use half::f16;

/// Numbers without a pattern, with duplicates.
fn noise(count: usize) -> Vec<i32> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % 1000) as i32 - 500
    };
    (0..count).map(|_| next()).collect()
}

fn first(row: &[i32], better: impl Fn(i32, i32) -> bool) -> i64 {
    let mut best = 0;
    for (i, &x) in row.iter().enumerate() {
        if better(x, row[best]) {
            best = i;
        }
    }
    best as i64
}

#[test]
fn the_first_extreme_of_each_row_is_found_in_every_type_and_layout() {
    let (outer, len, inner) = (3, 5000, 7);
    let data = noise(outer * len * inner);
    let base = Tensor::from_slice(&data, [outer, len, inner]);
    let column = |o: usize, i: usize| -> Vec<i32> {
        (0..len).map(|l| data[(o * len + l) * inner + i]).collect()
    };
    let mut greatest = Vec::new();
    let mut least = Vec::new();
    for o in 0..outer {
        for i in 0..inner {
            greatest.push(first(&column(o, i), |a, b| a > b));
            least.push(first(&column(o, i), |a, b| a < b));
        }
    }
    for dtype in [
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
    ] {
        let x = base.cast(dtype);
        assert_eq!(
            x.argmax(1, false).to_vec::<i64>().unwrap(),
            greatest,
            "{dtype}"
        );
        assert_eq!(
            x.argmin(-2, true).to_vec::<i64>().unwrap(),
            least,
            "{dtype}"
        );
        let rows = x.permute(&[0, 2, 1]).contiguous();
        assert_eq!(
            rows.argmax(-1, false).to_vec::<i64>().unwrap(),
            greatest,
            "{dtype}"
        );
        assert_eq!(
            rows.argmin(-1, false).to_vec::<i64>().unwrap(),
            least,
            "{dtype}"
        );
        assert_eq!(*x.argmin(1, true).shape(), [outer, 1, inner]);
    }
    let long = noise(400_000);
    let x = Tensor::from_slice(&long, [400_000]);
    assert_eq!(
        x.argmax(0, false).item::<i64>(),
        Ok(first(&long, |a, b| a > b))
    );
    let unsigned = x.cast(DType::U8).cast(DType::I32).to_vec::<i32>().unwrap();
    assert_eq!(
        x.cast(DType::U8).argmin(0, false).item::<i64>(),
        Ok(first(&unsigned, |a, b| a < b))
    );
}

#[test]
fn the_first_nan_wins() {
    let nan = f32::NAN;
    let x = Tensor::from_slice(&[1.0, -nan, f32::INFINITY, nan, -f32::INFINITY, 0.0], [6]);
    assert_eq!(x.argmax(0, false).item::<i64>(), Ok(1));
    assert_eq!(x.argmin(0, false).item::<i64>(), Ok(1));
    let columns = x.reshape([3, 2]);
    assert_eq!(columns.argmax(0, false).to_vec::<i64>().unwrap(), [1, 0]);
    assert_eq!(columns.argmin(0, false).to_vec::<i64>().unwrap(), [2, 0]);
    let half = Tensor::from_slice(&[1.0, f64::NAN, 2.0].map(f16::from_f64), [3]);
    assert_eq!(half.argmin(0, false).item::<i64>(), Ok(1));
}

#[test]
fn ties_of_zeros_and_minimum_values_give_the_first_index() {
    let x = Tensor::from_slice(&[-0.0_f32, 0.0, -0.0], [3]);
    assert_eq!(x.argmax(0, false).item::<i64>(), Ok(0));
    assert_eq!(x.argmin(0, false).item::<i64>(), Ok(0));
    let x = Tensor::from_slice(&[0_u8, 0, 0], [3]);
    assert_eq!(x.argmax(0, false).item::<i64>(), Ok(0));
    let x = Tensor::from_slice(&[255_u8, 255], [2]);
    assert_eq!(x.argmin(0, false).item::<i64>(), Ok(0));
    let x = Tensor::from_slice(&[f32::NEG_INFINITY; 2], [2]);
    assert_eq!(x.argmax(0, false).item::<i64>(), Ok(0));
}

#[test]
fn empty_and_missing_axes_are_errors() {
    let x = Tensor::from_slice(&[0.0_f32; 0], [2, 0]);
    assert!(matches!(
        x.argmax(1, false).eval(),
        Err(Error::BadShape { .. })
    ));
    assert_eq!(x.argmax(0, false).to_vec::<i64>().unwrap(), [0_i64; 0]);
    assert!(matches!(
        x.argmin(2, false).eval(),
        Err(Error::BadAxis { .. })
    ));
    let scalar = Tensor::scalar(1.0_f32);
    assert!(matches!(
        scalar.argmin(0, false).eval(),
        Err(Error::BadAxis { .. })
    ));
}

mod against_the_reference {
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::reduce::{argmax, argmin};

    use crate::axis::{axis_index, in_all_sizes};

    #[test]
    fn the_first_extreme_of_every_type_layout_and_axis_is_found() {
        in_all_sizes("argmin and argmax", 1000, |case, axis, rng| {
            if case.shape[axis_index(case, axis)] == 0 {
                return Ok(());
            }
            let keepdims = rng.one_in(2);
            let (x, t) = (case.array(), case.tensor());
            same(&t.argmin(axis, keepdims), &argmin(&x, axis, keepdims))?;
            same(&t.argmax(axis, keepdims), &argmax(&x, axis, keepdims))
        });
    }
}
