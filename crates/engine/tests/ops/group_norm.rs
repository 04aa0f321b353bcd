use bessemer::{DType, Error, Tensor};

use crate::near::{assert_near, in_every_float, numbers, values};

#[test]
fn group_norm_is_its_formula_in_every_type() {
    for (shape, groups) in [
        ([2, 6, 5], 3),
        ([1, 4, 1], 4),
        ([3, 8, 67], 1),
        ([2, 2, 700], 2),
    ] {
        let [n, c, spatial] = shape;
        let x = numbers(1, n * c * spatial);
        let (w, b) = (numbers(2, c), numbers(3, c));
        let len = c / groups * spatial;
        let mut expected = vec![0.0; x.len()];
        for (g, row) in x.chunks(len).enumerate() {
            let mean = row.iter().sum::<f64>() / len as f64;
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64;
            for (i, v) in row.iter().enumerate() {
                let channel = g % groups * (c / groups) + i / spatial;
                expected[g * len + i] = (v - mean) / (var + 1e-5).sqrt() * w[channel] + b[channel];
            }
        }
        let (w, b) = (Tensor::from_slice(&w, [c]), Tensor::from_slice(&b, [c]));
        for (t, error) in in_every_float(&x, &shape) {
            let y = t.group_norm(groups, Some(&w), Some(&b), 1e-5);
            assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
            assert_near(&y, &expected, 3.0 * error);
            let plain = t.group_norm(groups, None, None, 1e-5);
            let formula = t.decompose_group_norm(groups, None, None, 1e-5);
            assert_near(&plain, &values(&formula), 2.0 * error);
        }
    }
}

#[test]
fn views_are_read_right() {
    let t = Tensor::from_slice(&numbers(1, 2 * 6 * 4), [2, 4, 6]).t();
    let copy = Tensor::from_vec(t.to_vec::<f64>().unwrap(), [2, 6, 4]);
    let run = |t: &Tensor| values(&t.group_norm(2, None, None, 0.1));
    assert_eq!(run(&t), run(&copy));
}

#[test]
fn rejects_groups_and_parameters_that_do_not_fit() {
    let x = Tensor::zeros([2, 6, 4], DType::F32);
    for groups in [0, 4, 12] {
        let error = x.group_norm(groups, None, None, 0.1).check().unwrap_err();
        assert!(
            matches!(
                error,
                Error::BadShape {
                    op: "group_norm",
                    ..
                }
            ),
            "{error}"
        );
    }
    let w = Tensor::zeros([4], DType::F32);
    let error = x.group_norm(2, Some(&w), None, 0.1).check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::ShapeMismatch {
                op: "group_norm",
                ..
            }
        ),
        "{error}"
    );
    let none = Tensor::zeros([0, 6, 4], DType::F32).group_norm(2, None, None, 0.1);
    assert_eq!(none.to_vec::<f32>().unwrap(), [0_f32; 0]);
}
