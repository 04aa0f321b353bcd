use bessemer::{DType, Error, Tensor};

use crate::data::{assert_agrees, in_every_float, numbers};

/// The mean loss of rows of `classes` logits.
fn reference(x: &[f64], classes: usize, targets: &[i64]) -> f64 {
    let loss =
        |(row, &t): (&[f64], &i64)| row.iter().map(|v| v.exp()).sum::<f64>().ln() - row[t as usize];
    let losses = x.chunks(classes).zip(targets).map(loss);
    losses.sum::<f64>() / targets.len() as f64
}

#[test]
fn every_type_matches_the_formula() {
    for (rows, classes) in [(1, 1), (6, 10), (300, 70), (4, 5000), (1, 33_001)] {
        let mut x = numbers(1, rows * classes);
        let mut targets: Vec<i64> = (0..rows).map(|i| (i * 7 % classes) as i64).collect();
        // The last class of the last row has the largest logit and is the target, so that the tail of a long row
        // matters.
        x[rows * classes - 1] = 12.0;
        targets[rows - 1] = classes as i64 - 1;
        let mean = reference(&x, classes, &targets);
        let t = Tensor::from_slice(&targets, [rows]);
        for x in in_every_float(&x, &[rows, classes]) {
            let y = x.cross_entropy(&t);
            assert_eq!((y.rank(), y.dtype()), (0, x.dtype()));
            // The largest logit and the logarithm of the sum.
            let size = 12.0 + (classes as f64).ln();
            assert_agrees("cross_entropy", classes + rows, &y, &[mean], Some(&[size]));
        }
    }
}

#[test]
fn targets_may_have_any_integer_type_and_layout() {
    let x = numbers(2, 2 * 3 * 4);
    let mean = reference(&x, 4, &[0, 1, 2, 3, 0, 1]);
    let alone = reference(&x[..4], 4, &[2]);
    for t in in_every_float(&x, &[2, 3, 4]) {
        let a = t.cross_entropy(&Tensor::from_slice(&[0_u8, 1, 2, 3, 0, 1], [2, 3]));
        let b = t.cross_entropy(&Tensor::from_slice(&[0_i32, -1, 1, 0, 2, -3], [3, 2]).t());
        let row = t.index(0, 0).index(0, 0);
        let one = row.cross_entropy(&Tensor::scalar(2_i64));
        for (y, expected) in [(a, mean), (b, mean), (one, alone)] {
            assert_agrees("cross_entropy", 10, &y, &[expected], Some(&[6.0]));
        }
    }
}

#[test]
fn targets_out_of_range_are_errors() {
    let x = Tensor::zeros([2, 3], DType::F32);
    for bad in [3, -4] {
        let loss = x.cross_entropy(&Tensor::from_slice(&[0_i64, bad], [2]));
        let expected = Error::BadIndex {
            op: "cross_entropy",
            index: bad,
            len: 3,
        };
        assert_eq!(loss.item::<f32>().unwrap_err(), expected);
    }
    let none = Tensor::zeros([2, 0], DType::F32).cross_entropy(&Tensor::zeros([2], DType::I64));
    assert!(matches!(
        none.item::<f32>().unwrap_err(),
        Error::BadIndex { .. }
    ));
}

#[test]
fn rejects_targets_of_another_shape_or_type() {
    let x = Tensor::zeros([2, 3], DType::F32);
    let error = x
        .cross_entropy(&Tensor::zeros([3], DType::I64))
        .check()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::ShapeMismatch {
                op: "cross_entropy",
                ..
            }
        ),
        "{error}"
    );
    let error = x
        .cross_entropy(&Tensor::zeros([2], DType::F32))
        .check()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadDType {
                op: "cross_entropy",
                ..
            }
        ),
        "{error}"
    );
    let rows = Tensor::zeros([0, 3], DType::F32).cross_entropy(&Tensor::zeros([0], DType::I64));
    assert!(rows.item::<f32>().unwrap().is_nan());
}

mod against_the_reference {
    use bessemer_testing::case::Fill;
    use bessemer_testing::layout::agree;
    use bessemer_testing::number::{Value, format};
    use bessemer_testing::reference::loss::{cross_entropies, cross_entropy};
    use bessemer_testing::tolerance::computed_in;

    use crate::axis::{along_an_axis, indices};

    #[test]
    fn losses_of_every_type_and_layout_are_right() {
        along_an_axis("cross_entropy", &Fill::ALL, 1500, |case, _, rng| {
            let (classes, rows) = case.shape.split_last().expect("an axis");
            if *classes == 0 {
                return Ok(());
            }
            let (targets, at) = indices(rng, rows, *classes);
            let x = case.array();
            let expected = cross_entropy(&x, &targets);
            // Each loss is the logarithm of a sum and a difference; sums that overflow may have any result.
            let each = cross_entropies(&x, &targets).to_floats();
            let total: f64 = each.iter().map(|l| l.abs()).sum();
            let out_of_range = total >= format(computed_in(expected.dtype)).max;
            let size = expected.map(bessemer::DType::F64, |v| {
                let within = v.float().abs() + 8.0;
                Value::Float(if out_of_range { f64::INFINITY } else { within })
            });
            let terms = classes + each.len();
            let got = case.tensor().cross_entropy(&at);
            agree("cross_entropy", terms, &got, &expected, Some(&size))
        });
    }
}
