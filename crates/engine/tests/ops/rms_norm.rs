use bessemer::{DType, Error, Tensor};

use crate::data::{assert_agrees, in_every_float, launching, numbers, small_and_large_rows};

fn reference(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let rows = x.chunks(weight.len());
    let row = |row: &[f64]| {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let row = row.iter().zip(weight);
        row.map(|(v, w)| v / (mean + eps).sqrt() * w)
            .collect::<Vec<_>>()
    };
    rows.flat_map(row).collect()
}

#[test]
fn every_type_matches_the_formula() {
    for (rows, len) in [(1, 1), (3, 7), (5, 64), (2, 1000), (300, 33)] {
        judge(rows, len);
    }
}

#[test]
fn rows_longer_than_a_threadgroup_are_right() {
    // Scalar loads, and vectors of four.
    for len in [4099, 9004] {
        launching("rms_norm_loop", || judge(2, len));
    }
}

fn judge(rows: usize, len: usize) {
    let (x, w) = (small_and_large_rows(1, rows, len), numbers(2, len));
    let expected = reference(&x, &w, 1e-5);
    let weights = in_every_float(&w, &[len]);
    for (t, weight) in in_every_float(&x, &[rows, len]).iter().zip(&weights) {
        let y = t.rms_norm(weight, 1e-5);
        assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
        assert_agrees("rms_norm", len, &y, &expected, None);
    }
}

#[test]
fn strided_views_and_weights_are_read_in_place() {
    let x = numbers(3, 60);
    let (w, down) = (numbers(4, 10), numbers(5, 6));
    let back: Vec<_> = w.iter().rev().copied().collect();
    let columns: Vec<_> = (0..60).map(|i| x[i % 6 * 10 + i / 6]).collect();
    let weights = in_every_float(&back, &[10]);
    for (i, t) in in_every_float(&x, &[6, 10]).iter().enumerate() {
        let y = t.rms_norm(&weights[i].flip(&[0]), 1e-5);
        assert_agrees("rms_norm", 10, &y, &reference(&x, &w, 1e-5), None);
        let y = t.t().rms_norm(&in_every_float(&down, &[6])[i], 1e-5);
        assert_agrees("rms_norm", 6, &y, &reference(&columns, &down, 1e-5), None);
    }
}

#[test]
fn a_row_of_zeros_stays_zero() {
    let y = Tensor::zeros([2, 4], DType::F32).rms_norm(&Tensor::ones([4], DType::F32), 1e-6);
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 8]);
}

#[test]
fn rejects_weights_of_another_length() {
    let x = Tensor::zeros([2, 4], DType::F32);
    let error = x
        .rms_norm(&Tensor::zeros([3], DType::F32), 1e-6)
        .check()
        .unwrap_err();
    assert!(
        matches!(error, Error::ShapeMismatch { op: "rms_norm", .. }),
        "{error}"
    );
    let scalar = Tensor::scalar(1.0_f32);
    assert!(scalar.rms_norm(&scalar, 1e-6).check().is_err());
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, Input, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::reference::norm::rms_norm;

    #[test]
    fn every_type_and_layout_is_right() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let cases = input(&[dtype], &Fill::IN_RANGE, shape(4, 2000));
            check(&format!("rms_norm of {dtype}"), 100, cases, |case| {
                let Some(&n) = case.shape.last() else {
                    return Ok(());
                };
                let w = Input {
                    shape: vec![n],
                    fill: Fill::Normal,
                    ..case.clone()
                };
                let expected = rms_norm(&case.array(), Some(&w.array()), 1e-5);
                agree(
                    "rms_norm",
                    n,
                    &case.tensor().rms_norm(&w.tensor(), 1e-5),
                    &expected,
                    None,
                )
            });
        }
    }
}

#[test]
fn the_decomposition_agrees() {
    let (x, w) = (small_and_large_rows(5, 4, 300), numbers(6, 300));
    let expected = reference(&x, &w, 1e-6);
    let weights = in_every_float(&w, &[300]);
    for (t, w) in in_every_float(&x, &[4, 300]).iter().zip(&weights) {
        assert_agrees("rms_norm", 300, &t.rms_norm(w, 1e-6), &expected, None);
        let formula = t.decompose_rms_norm(w, 1e-6);
        assert_agrees("rms_norm", 300, &formula, &expected, None);
    }
}
