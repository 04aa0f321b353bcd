use bessemer::{DType, Error, Tensor};
use bessemer_testing::tolerance::bound;

use crate::data::{
    assert_agrees, in_every_float, launching, numbers, small_and_large_rows, values,
};

/// The norm, and the magnitudes before the mean is subtracted: (|x| + mean |x|) / deviation · |w| + |b|.
fn reference(x: &[f64], weight: &[f64], bias: &[f64], eps: f64) -> [Vec<f64>; 2] {
    let [mut y, mut size] = [Vec::new(), Vec::new()];
    for row in x.chunks(weight.len()) {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let sizes = row.iter().map(|v| v.abs()).sum::<f64>() / n;
        let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (var + eps).sqrt();
        for ((v, w), b) in row.iter().zip(weight).zip(bias) {
            y.push((v - mean) * scale * w + b);
            size.push((v.abs() + sizes) * scale * w.abs() + b.abs());
        }
    }
    [y, size]
}

#[test]
fn every_type_matches_the_formula_with_and_without_parameters() {
    for (rows, len) in [(1, 1), (3, 7), (5, 64), (2, 1000), (300, 33)] {
        judge(rows, len);
    }
}

#[test]
fn rows_longer_than_a_threadgroup_are_right() {
    // Scalar loads, and vectors of four.
    for len in [4099, 9004] {
        launching("layer_norm_loop", || judge(2, len));
    }
}

fn judge(rows: usize, len: usize) {
    let x = small_and_large_rows(1, rows, len);
    let (w, b) = (numbers(2, len), numbers(3, len));
    let (ones, zeros) = (vec![1.0; len], vec![0.0; len]);
    let weights = in_every_float(&w, &[len]);
    let biases = in_every_float(&b, &[len]);
    for (i, t) in in_every_float(&x, &[rows, len]).iter().enumerate() {
        let (wt, bt) = (Some(&weights[i]), Some(&biases[i]));
        let cases = [
            (wt, bt, &w, &b),
            (wt, None, &w, &zeros),
            (None, bt, &ones, &b),
            (None, None, &ones, &zeros),
        ];
        for (wt, bt, w, b) in cases {
            let y = t.layer_norm(wt, bt, 1e-5);
            assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
            let [expected, size] = reference(&x, w, b, 1e-5);
            assert_agrees("layer_norm", len, &y, &expected, Some(&size));
        }
    }
}

#[test]
fn a_large_mean_does_not_lose_the_variance() {
    let x: Vec<f32> = (0..64).map(|i| 1e4 + (i % 2) as f32).collect();
    let y = Tensor::from_slice(&x, [64]).layer_norm(None, None, 0.0);
    let expected: Vec<f64> = (0..64).map(|i| f64::from(i % 2) * 2.0 - 1.0).collect();
    for (y, e) in values(&y).iter().zip(&expected) {
        assert!((y - e).abs() < bound::NORM_OF_LARGE_MEAN, "{y}, not {e}");
    }
}

#[test]
fn nan_affects_only_its_row() {
    let x = Tensor::from_slice(&[f32::NAN, 1.0, 1.0, 3.0], [2, 2]);
    let y = x.layer_norm(None, None, 0.0);
    let expected = [f64::NAN, f64::NAN, -1.0, 1.0];
    assert_agrees("layer_norm", 2, &y, &expected, Some(&[5.0; 4]));
}

#[test]
fn rejects_parameters_of_another_length() {
    let x = Tensor::zeros([2, 4], DType::F32);
    let bad = Tensor::zeros([1, 4], DType::F32);
    let error = x.layer_norm(None, Some(&bad), 1e-6).check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::ShapeMismatch {
                op: "layer_norm",
                ..
            }
        ),
        "{error}"
    );
    assert!(
        Tensor::scalar(1.0_f32)
            .layer_norm(None, None, 1e-6)
            .check()
            .is_err()
    );
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::Array;
    use bessemer_testing::case::{Fill, Input, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::reference::norm::layer_norm;

    #[test]
    fn every_type_and_layout_is_right() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let cases = input(&[dtype], &Fill::IN_RANGE, shape(4, 2000));
            check(&format!("layer_norm of {dtype}"), 100, cases, |case| {
                let Some(&n) = case.shape.last() else {
                    return Ok(());
                };
                let part = |seed: u64| Input {
                    shape: vec![n],
                    fill: Fill::Normal,
                    seed: case.seed ^ seed,
                    ..case.clone()
                };
                let (w, b) = (part(1), part(2));
                let (x, wa, ba) = (case.array(), w.array(), b.array());
                let expected = layer_norm(&x, Some(&wa), Some(&ba), 1e-5);
                let size = magnitude(&x, &wa, &ba);
                let got = case
                    .tensor()
                    .layer_norm(Some(&w.tensor()), Some(&b.tensor()), 1e-5);
                agree("layer_norm", n, &got, &expected, Some(&size))
            });
        }
    }

    /// (|x| + mean |x|) / deviation · |w| + |b|: the magnitudes before the mean is subtracted.
    fn magnitude(x: &Array, w: &Array, b: &Array) -> Array {
        let last = x.rank() - 1;
        Array::from_float_fn(DType::F64, &x.shape, |i| {
            let lane: Vec<_> = x.lane(last, i).iter().map(|v| v.float()).collect();
            let n = lane.len() as f64;
            let mean = lane.iter().sum::<f64>() / n;
            let var = lane.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let sizes = lane.iter().map(|x| x.abs()).sum::<f64>() / n;
            let scale = 1.0 / (var + 1e-5).sqrt();
            (x.float(i).abs() + sizes) * scale * w.float(&i[last..]).abs()
                + b.float(&i[last..]).abs()
        })
    }
}

#[test]
fn the_decomposition_agrees() {
    let (x, w) = (small_and_large_rows(5, 4, 300), numbers(6, 300));
    let (ones, zeros) = (vec![1.0; 300], vec![0.0; 300]);
    let weights = in_every_float(&w, &[300]);
    for (t, wt) in in_every_float(&x, &[4, 300]).iter().zip(&weights) {
        for (wt, w, b) in [(Some(wt), &w, &w), (None, &ones, &zeros)] {
            let [expected, size] = reference(&x, w, b, 1e-6);
            for y in [
                t.layer_norm(wt, wt, 1e-6),
                t.decompose_layer_norm(wt, wt, 1e-6),
            ] {
                assert_agrees("layer_norm", 300, &y, &expected, Some(&size));
            }
        }
    }
}
