use bessemer::{DType, Error, Tensor};

use crate::near::{assert_near, in_every_float, numbers, values};

/// Softmax of `[outer, len, inner]` along the middle axis.
fn reference(x: &[f64], len: usize, inner: usize, log: bool) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for outer in 0..x.len() / (len * inner) {
        for i in 0..inner {
            let at = |k: usize| (outer * len + k) * inner + i;
            let top = (0..len).map(|k| x[at(k)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..len).map(|k| (x[at(k)] - top).exp()).sum();
            for k in 0..len {
                let shifted = x[at(k)] - top;
                y[at(k)] = if log {
                    shifted - sum.ln()
                } else {
                    shifted.exp() / sum
                };
            }
        }
    }
    y
}

#[test]
fn softmax_is_its_formula_along_every_axis() {
    for shape in [
        [3, 5, 7],
        [1, 1, 1],
        [2, 33, 1],
        [40, 2, 65],
        [1, 600, 70],
        [2, 3, 2500],
    ] {
        let x = numbers(1, shape.iter().product());
        for (axis, &len) in shape.iter().enumerate() {
            let inner = shape[axis + 1..].iter().product();
            for (t, error) in in_every_float(&x, &shape) {
                let axis = axis as isize;
                let y = t.softmax(axis);
                assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
                assert_near(&y, &reference(&x, len, inner, false), error);
                assert_near(
                    &t.log_softmax(axis - 3),
                    &reference(&x, len, inner, true),
                    error,
                );
            }
        }
    }
}

#[test]
fn views_give_what_copies_give() {
    let x = numbers(2, 6 * 8 * 10);
    let t = Tensor::from_slice(&x, [6, 8, 10]);
    let views = [
        t.transpose(0, 1),
        t.t(),
        t.slice(2, 1, 9, 1),
        t.slice(0, 5, None, -2),
    ];
    for v in views {
        let copy = Tensor::from_vec(v.to_vec::<f64>().unwrap(), *v.shape());
        for axis in 0..3 {
            let expected = copy.softmax(axis).to_vec::<f64>().unwrap();
            assert_eq!(v.softmax(axis).to_vec::<f64>().unwrap(), expected);
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
        assert_near(&across, &expected, 0.0);
        let down = Tensor::from_slice(&[row[0], row[0], row[1], row[1]], [2, 2]).softmax(0);
        assert_near(&down.slice(1, None, 1, 1), &expected, 0.0);
    }
}

#[test]
fn integers_answer_in_their_float() {
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
                // Of the largest number and the logarithm of the sum, whichever is larger.
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
fn the_formula_of_simpler_ops_gives_the_same() {
    let x = numbers(5, 4 * 30 * 6);
    for (t, error) in in_every_float(&x, &[4, 30, 6]) {
        for axis in 0..3 {
            assert_near(&t.softmax(axis), &values(&t.decompose_softmax(axis)), error);
            assert_near(
                &t.log_softmax(axis),
                &values(&t.decompose_log_softmax(axis)),
                error,
            );
        }
    }
}

#[test]
fn what_is_minus_infinity_weighs_nothing_in_a_row_of_any_length() {
    for len in [6, 5000] {
        let mut row = vec![f32::NEG_INFINITY; len];
        row[len - 2..].fill(1.0);
        let y = Tensor::from_slice(&row, [len]).softmax(0);
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[..len - 2].iter().all(|&y| y == 0.0) && y[len - 2..] == [0.5; 2]);
    }
}
