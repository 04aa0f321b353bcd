use bessemer::{DType, Error, Tensor, explain};

use crate::near::{assert_near, in_every_float, numbers};

#[test]
fn batch_norm_is_its_formula_in_every_type() {
    let (shape, c, spatial) = ([2, 5, 3, 7], 5, 21);
    let x = numbers(1, 2 * c * spatial);
    let (mean, w, b) = (numbers(2, c), numbers(3, c), numbers(4, c));
    let var: Vec<f64> = numbers(5, c).iter().map(|v| v.abs() + 0.5).collect();
    let at = |i: usize| i / spatial % c;
    let plain = |i: usize| (x[i] - mean[at(i)]) / (var[at(i)] + 1e-3).sqrt();
    let full: Vec<f64> = (0..x.len())
        .map(|i| plain(i) * w[at(i)] + b[at(i)])
        .collect();
    let bare: Vec<f64> = (0..x.len()).map(plain).collect();
    let vector = |v: &[f64]| Tensor::from_slice(v, [c]);
    let (mean, var, w, b) = (vector(&mean), vector(&var), vector(&w), vector(&b));
    for (t, error) in in_every_float(&x, &shape) {
        let y = t.batch_norm(&mean, &var, Some(&w), Some(&b), 1e-3);
        assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
        assert_near(&y, &full, 2.0 * error);
        assert_near(
            &t.batch_norm(&mean, &var, None, None, 1e-3),
            &bare,
            2.0 * error,
        );
    }
}

#[test]
fn the_image_is_passed_over_once() {
    let x = Tensor::from_slice(&[1.0_f32; 24], [2, 3, 4]);
    let v = Tensor::from_slice(&[1.0_f32; 3], [3]);
    let y = x.batch_norm(&v, &v, Some(&v), Some(&v), 1e-3);
    let plan = explain(&[&y]).unwrap();
    let passes = plan.steps.iter().filter(|s| s.shape == [2, 3, 4]);
    assert_eq!(passes.count(), 1, "{plan}");
}

#[test]
fn rejects_statistics_of_another_length() {
    let x = Tensor::zeros([2, 3, 4], DType::F32);
    let (three, four) = (
        Tensor::zeros([3], DType::F32),
        Tensor::zeros([4], DType::F32),
    );
    let error = x
        .batch_norm(&three, &four, None, None, 0.1)
        .check()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::ShapeMismatch {
                op: "batch_norm",
                ..
            }
        ),
        "{error}"
    );
    let error = three
        .batch_norm(&three, &three, None, None, 0.1)
        .check()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadShape {
                op: "batch_norm",
                ..
            }
        ),
        "{error}"
    );
}
