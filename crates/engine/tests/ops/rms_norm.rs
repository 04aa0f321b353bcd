use bessemer::{DType, Error, Tensor};

use crate::near::{assert_near, in_every_float, numbers, values};

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
fn rms_norm_is_its_formula() {
    for (rows, len) in [(1, 1), (3, 7), (5, 64), (2, 1000), (300, 33), (2, 4099)] {
        let x = numbers(1, rows * len);
        let w = numbers(2, len);
        let weights = in_every_float(&w, &[len]);
        for ((t, error), (same, _)) in in_every_float(&x, &[rows, len]).iter().zip(&weights) {
            let expected = reference(&x, &w, 1e-5);
            let y = t.rms_norm(same, 1e-5);
            assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
            assert_near(&y, &expected, *error);
        }
    }
}

#[test]
fn views_and_weights_with_gaps_are_read_right() {
    let x = numbers(3, 60);
    let w = numbers(4, 10);
    let t = Tensor::from_slice(&x, [6, 10]);
    let back: Vec<_> = w.iter().rev().copied().collect();
    let weight = Tensor::from_slice(&back, [10]).flip(&[0]);
    assert_near(&t.rms_norm(&weight, 0.0), &reference(&x, &w, 0.0), 1e-13);
    let flat = t.t().to_vec::<f64>().unwrap();
    let ones = Tensor::ones([6], DType::F64);
    assert_near(
        &t.t().rms_norm(&ones, 0.0),
        &reference(&flat, &[1.0; 6], 0.0),
        1e-13,
    );
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
            let cases = input(&[dtype], &Fill::TAME, shape(4, 2000));
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
fn the_formula_of_simpler_ops_gives_the_same() {
    let w = Tensor::from_slice(&numbers(6, 300), [300]);
    for (t, error) in in_every_float(&numbers(5, 4 * 300), &[4, 300]) {
        let formula = t.decompose_rms_norm(&w, 1e-6);
        assert_near(&t.rms_norm(&w, 1e-6), &values(&formula), error);
    }
}
