use bessemer::{DType, Error, Tensor};

use crate::data::{assert_agrees, in_every_float, launching, numbers, values};

/// Softmax of `[outer, len, inner]` along the middle axis, or its logarithm, and the magnitude that errors are relative
/// to.
fn reference(x: &[f64], len: usize, inner: usize, log: bool) -> [Vec<f64>; 2] {
    let [mut y, mut size] = [vec![0.0; x.len()], vec![0.0; x.len()]];
    for outer in 0..x.len() / (len * inner) {
        for i in 0..inner {
            let at = |k: usize| (outer * len + k) * inner + i;
            let top = (0..len).map(|k| x[at(k)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..len).map(|k| (x[at(k)] - top).exp()).sum();
            for k in 0..len {
                let shifted = x[at(k)] - top;
                let share = shifted.exp() / sum;
                (y[at(k)], size[at(k)]) = if log {
                    // The sum is at least 1, and its error is proportional to it.
                    (shifted - sum.ln(), shifted.abs() + sum.ln() + 1.0)
                } else {
                    // The exponent's error is a relative error of the result.
                    (share, share * shifted.abs())
                };
            }
        }
    }
    [y, size]
}

/// Compares both ops along an axis of a tensor with these values.
#[track_caller]
fn judge(t: &Tensor, x: &[f64], axis: usize) {
    let len = t.shape()[axis];
    let inner = t.shape()[axis + 1..].iter().product();
    let y = t.softmax(axis as isize);
    assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
    let [expected, size] = reference(x, len, inner, false);
    assert_agrees("softmax", len, &y, &expected, Some(&size));
    let y = t.log_softmax(axis as isize - t.rank() as isize);
    let [expected, size] = reference(x, len, inner, true);
    assert_agrees("log_softmax", len, &y, &expected, Some(&size));
}

#[test]
fn every_axis_matches_the_formula() {
    for shape in [
        [3, 5, 7],
        [1, 1, 1],
        [2, 33, 1],
        [40, 2, 65],
        [1, 600, 70],
        [2, 3, 2500],
    ] {
        let x = numbers(1, shape.iter().product());
        for t in in_every_float(&x, &shape) {
            (0..3).for_each(|axis| judge(&t, &x, axis));
        }
    }
}

#[test]
fn rows_longer_than_a_threadgroup_are_right() {
    for (shape, axis) in [([2, 4099], 1), ([4099, 3], 0), ([1, 20_000], 1)] {
        let mut x = numbers(1, shape.iter().product());
        // The maximum is the last element, so that the tail matters.
        x[shape[0] * shape[1] - 1] = 12.0;
        launching("softmax_loop", || {
            for t in in_every_float(&x, &shape) {
                judge(&t, &x, axis);
            }
        });
    }
}

#[test]
fn views_match_contiguous_copies() {
    let x = numbers(2, 6 * 8 * 10);
    for t in in_every_float(&x, &[6, 8, 10]) {
        let views = [
            t.transpose(0, 1),
            t.t(),
            t.slice(2, 1, 9, 1),
            t.slice(0, 5, None, -2),
        ];
        for view in views {
            let copy = values(&view);
            (0..3).for_each(|axis| judge(&view, &copy, axis));
        }
    }
}

#[test]
fn large_numbers_do_not_overflow() {
    let x = Tensor::from_slice(&[1000.0_f32, 1000.0, -1000.0], [3]);
    assert_eq!(x.softmax(0).to_vec::<f32>().unwrap(), [0.5, 0.5, 0.0]);
    let log = x.log_softmax(0).to_vec::<f32>().unwrap();
    assert!((log[2] + 2000.7).abs() < 0.1, "{log:?}");
}

#[test]
fn infinities_and_nan_follow_numpy() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows = [
        ([-inf, -inf], [nan, nan]),
        ([-inf, 1.0], [0.0, 1.0]),
        ([inf, 1.0], [nan, nan]),
        ([nan, 1.0], [nan, nan]),
    ];
    for (row, expected) in rows {
        let expected = expected.map(f64::from);
        let across = Tensor::from_slice(&row, [2]).softmax(0);
        assert_agrees("copy", 1, &across, &expected, None);
        let down = Tensor::from_slice(&[row[0], row[0], row[1], row[1]], [2, 2]).softmax(0);
        assert_agrees("copy", 1, &down.slice(1, None, 1, 1), &expected, None);
    }
}

#[test]
fn integers_give_floats() {
    let x = Tensor::from_slice(&[1_i32, 1], [2]).softmax(0);
    assert_eq!(x.dtype(), DType::F64);
}

#[test]
fn empty_axes_stay_empty() {
    let x = Tensor::zeros([2, 0], DType::F32);
    assert_eq!(x.softmax(1).to_vec::<f32>().unwrap(), [0.0_f32; 0]);
    assert_eq!(x.softmax(0).to_vec::<f32>().unwrap(), [0.0_f32; 0]);
}

#[test]
fn rejects_an_axis_past_the_rank() {
    let error = Tensor::zeros([2, 2], DType::F32)
        .softmax(2)
        .check()
        .unwrap_err();
    let expected = Error::BadAxis {
        op: "softmax",
        axis: 2,
        rank: 2,
    };
    assert_eq!(error, expected);
    assert!(Tensor::scalar(1.0_f32).log_softmax(0).check().is_err());
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::number::Value;
    use bessemer_testing::reference::softmax::{log_softmax, softmax};

    #[test]
    fn every_type_layout_and_axis_is_right() {
        for dtype in DType::ALL {
            let cases = input(&[dtype], &Fill::ALL, shape(4, 1000));
            check(&format!("softmax of {dtype}"), 60, cases, |case| {
                let rank = case.shape.len() as isize;
                if rank == 0 {
                    return Ok(());
                }
                let axis = case.seed as isize % rank;
                let (x, t) = (case.array(), case.tensor());
                let n = x.shape[x.axis(axis)];
                let expected = softmax(&x, axis);
                let size = expected.map(DType::F64, |v| {
                    let e = v.float();
                    Value::Float(if e > 0.0 {
                        e * ((n as f64).ln() - e.ln())
                    } else {
                        0.0
                    })
                });
                agree("softmax", n, &t.softmax(axis), &expected, Some(&size))?;
                // The larger of the maximum magnitude and the logarithm of the sum.
                let expected = log_softmax(&x, axis);
                let size = expected.map(DType::F64, |v| Value::Float(v.float().abs() + 8.0));
                agree(
                    "log_softmax",
                    n,
                    &t.log_softmax(axis),
                    &expected,
                    Some(&size),
                )
            });
        }
    }
}

#[test]
fn the_decomposition_agrees() {
    let x = numbers(5, 4 * 30 * 6);
    for t in in_every_float(&x, &[4, 30, 6]) {
        for (axis, len, inner) in [(0, 4, 180), (1, 30, 6), (2, 6, 1)] {
            let [expected, size] = reference(&x, len, inner, false);
            let y = t.decompose_softmax(axis);
            assert_agrees("softmax", len, &y, &expected, Some(&size));
            let [expected, size] = reference(&x, len, inner, true);
            let y = t.decompose_log_softmax(axis);
            assert_agrees("log_softmax", len, &y, &expected, Some(&size));
        }
    }
}

#[test]
fn minus_infinity_has_zero_weight_in_rows_of_any_length() {
    for len in [6, 5000] {
        let mut row = vec![f32::NEG_INFINITY; len];
        row[len - 2..].fill(1.0);
        let y = Tensor::from_slice(&row, [len]).softmax(0);
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[..len - 2].iter().all(|&y| y == 0.0) && y[len - 2..] == [0.5; 2]);
    }
}
