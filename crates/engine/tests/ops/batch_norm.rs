use bessemer::{DType, Error, Tensor, explain};

use crate::data::{assert_agrees, in_every_float, numbers};

#[test]
fn every_type_matches_the_formula() {
    let (shape, c, spatial) = ([2, 5, 3, 7], 5, 21);
    let x = numbers(1, 2 * c * spatial);
    let (mean, w, b) = (numbers(2, c), numbers(3, c), numbers(4, c));
    // As small as eps, so that a missing eps gives a large error.
    let var: Vec<f64> = (0..c).map(|i| [1.0 / 1024.0, 0.75][i % 2]).collect();
    let at = |i: usize| i / spatial % c;
    let scale = |i: usize| 1.0 / (var[at(i)] + 1e-3).sqrt();
    let plain = |i: usize| (x[i] - mean[at(i)]) * scale(i);
    let large = |i: usize| (x[i].abs() + mean[at(i)].abs()) * scale(i);
    let all = |f: &dyn Fn(usize) -> f64| (0..x.len()).map(f).collect::<Vec<f64>>();
    let full = all(&|i| plain(i) * w[at(i)] + b[at(i)]);
    let full_size = all(&|i| large(i) * w[at(i)].abs() + b[at(i)].abs());
    let (bare, bare_size) = (all(&plain), all(&large));
    let vectors = [&mean, &var, &w, &b].map(|v| in_every_float(v, &[c]));
    for (i, t) in in_every_float(&x, &shape).into_iter().enumerate() {
        let [mean, var, w, b] = vectors.each_ref().map(|v| v[i].clone());
        let y = t.batch_norm(&mean, &var, Some(&w), Some(&b), 1e-3);
        assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
        assert_agrees("batch_norm", 1, &y, &full, Some(&full_size));
        let y = t.batch_norm(&mean, &var, None, None, 1e-3);
        assert_agrees("batch_norm", 1, &y, &bare, Some(&bare_size));
    }
}

#[test]
fn batch_norm_is_one_pass() {
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

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::Array;
    use bessemer_testing::case::{Fill, Input, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::norm::{Batch, batch_norm};

    use crate::axis::another_of;

    #[test]
    fn every_type_and_layout_is_right() {
        for dtype in DType::ALL {
            let cases = input(&[dtype], &Fill::IN_RANGE, shape(4, 1500));
            check(&format!("batch_norm of {dtype}"), 60, cases, judge);
        }
    }

    fn judge(case: &Input) -> Result<(), String> {
        if case.shape.len() < 2 {
            return Ok(());
        }
        let mut rng = Rng::new(case.seed ^ 0xba7c);
        let part = |salt, fill| {
            let vector = Input {
                dtype: case.dtype.to_float(),
                fill,
                ..case.clone()
            };
            another_of(&vector, salt, &case.shape[1..2])
        };
        let (mean, variance) = (part(1, Fill::Normal), part(2, Fill::Positive));
        let weight = rng.one_in(2).then(|| part(3, Fill::Normal));
        let bias = rng.one_in(2).then(|| part(4, Fill::Normal));
        let eps = 1e-3;
        let (x, m, v) = (case.array(), mean.array(), variance.array());
        let (w, b) = (
            weight.as_ref().map(Input::array),
            bias.as_ref().map(Input::array),
        );
        let given = Batch {
            mean: &m,
            variance: &v,
            weight: w.as_ref(),
            bias: b.as_ref(),
        };
        let expected = batch_norm(&x, &given, eps);
        // (|x| + |mean|) / deviation · |w| + |b|.
        let negative = m.map(DType::F64, |v| {
            bessemer_testing::Value::Float(-v.float().abs())
        });
        let (w, b) = (w.map(|w| w.magnitudes()), b.map(|b| b.magnitudes()));
        let sizes = Batch {
            mean: &negative,
            variance: &v,
            weight: w.as_ref(),
            bias: b.as_ref(),
        };
        let size: Array = batch_norm(&x.magnitudes(), &sizes, eps);
        let (weight, bias) = (weight.map(|w| w.tensor()), bias.map(|b| b.tensor()));
        let got = case.tensor().batch_norm(
            &mean.tensor(),
            &variance.tensor(),
            weight.as_ref(),
            bias.as_ref(),
            eps,
        );
        agree("batch_norm", 1, &got, &expected, Some(&size))
    }
}
