use bessemer::{DType, Error, Tensor};

use crate::data::{assert_agrees, in_every_float, launching, numbers, small_and_large_rows};

/// The norm of each group of `[n, c, spatial]`, and the magnitudes before the mean is subtracted.
fn reference(
    x: &[f64],
    [_, c, spatial]: [usize; 3],
    groups: usize,
    w: &[f64],
    b: &[f64],
) -> [Vec<f64>; 2] {
    let len = c / groups * spatial;
    let [mut y, mut size] = [Vec::new(), Vec::new()];
    for (g, row) in x.chunks(len).enumerate() {
        let mean = row.iter().sum::<f64>() / len as f64;
        let sizes = row.iter().map(|v| v.abs()).sum::<f64>() / len as f64;
        let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64;
        let scale = 1.0 / (var + EPS).sqrt();
        for (i, v) in row.iter().enumerate() {
            let channel = g % groups * (c / groups) + i / spatial;
            y.push((v - mean) * scale * w[channel] + b[channel]);
            size.push((v.abs() + sizes) * scale * w[channel].abs() + b[channel].abs());
        }
    }
    [y, size]
}

const EPS: f64 = 1e-5;

fn judge(shape: [usize; 3], groups: usize) {
    let [n, c, spatial] = shape;
    let len = c / groups * spatial;
    let x = small_and_large_rows(1, n * groups, len);
    let (w, b) = (numbers(2, c), numbers(3, c));
    let given = reference(&x, shape, groups, &w, &b);
    let plain = reference(&x, shape, groups, &vec![1.0; c], &vec![0.0; c]);
    let (weights, biases) = (in_every_float(&w, &[c]), in_every_float(&b, &[c]));
    for (i, t) in in_every_float(&x, &shape).iter().enumerate() {
        let (w, b) = (Some(&weights[i]), Some(&biases[i]));
        for (w, b, [expected, size]) in [(w, b, &given), (None, None, &plain)] {
            let y = t.group_norm(groups, w, b, EPS);
            assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
            assert_agrees("group_norm", len, &y, expected, Some(size));
            let formula = t.decompose_group_norm(groups, w, b, EPS);
            assert_agrees("group_norm", len, &formula, expected, Some(size));
        }
    }
}

#[test]
fn every_type_matches_the_formula() {
    for (shape, groups) in [
        ([2, 6, 5], 3),
        ([1, 4, 1], 4),
        ([3, 8, 67], 1),
        ([2, 2, 700], 2),
    ] {
        judge(shape, groups);
    }
}

#[test]
fn groups_longer_than_a_threadgroup_are_right() {
    for (shape, groups) in [([1, 6, 1401], 2), ([2, 4, 2252], 2)] {
        launching("group_norm_loop", || judge(shape, groups));
    }
}

#[test]
fn views_are_read_in_place() {
    let x = numbers(1, 2 * 4 * 6);
    let permuted: Vec<f64> = (0..48)
        .map(|i| x[i / 24 * 24 + i % 4 * 6 + i / 4 % 6])
        .collect();
    let [expected, size] = reference(&permuted, [2, 6, 4], 2, &[1.0; 6], &[0.0; 6]);
    for t in in_every_float(&x, &[2, 4, 6]) {
        let y = t.t().group_norm(2, None, None, EPS);
        assert_agrees("group_norm", 12, &y, &expected, Some(&size));
    }
}

#[test]
fn rejects_mismatched_groups_and_parameters() {
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

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::Array;
    use bessemer_testing::case::{Fill, Input, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::norm::group_norm;

    use crate::axis::another_of;

    #[test]
    fn every_type_layout_and_number_of_groups_is_right() {
        for dtype in DType::ALL {
            let cases = input(&[dtype], &Fill::IN_RANGE, shape(4, 1500));
            check(&format!("group_norm of {dtype}"), 60, cases, judge);
        }
    }

    fn judge(case: &Input) -> Result<(), String> {
        if case.shape.len() < 2 {
            return Ok(());
        }
        let mut rng = Rng::new(case.seed ^ 0x6e0);
        let channels = case.shape[1];
        let fitting: Vec<_> = (1..=channels.max(1))
            .filter(|g| channels.is_multiple_of(*g))
            .collect();
        let groups = rng.pick(&fitting);
        let vectors = Input {
            dtype: case.dtype.to_float(),
            fill: Fill::Normal,
            ..case.clone()
        };
        let part = |salt| another_of(&vectors, salt, &[channels]);
        let w = rng.one_in(2).then(|| part(1));
        let b = rng.one_in(2).then(|| part(2));
        let eps = 1e-5;
        let (x, wa, ba) = (
            case.array(),
            w.as_ref().map(Input::array),
            b.as_ref().map(Input::array),
        );
        let expected = group_norm(&x, groups, wa.as_ref(), ba.as_ref(), eps);
        let size = magnitude(&x, groups, wa.as_ref(), ba.as_ref(), eps);
        let (w, b) = (w.map(|w| w.tensor()), b.map(|b| b.tensor()));
        let got = case
            .tensor()
            .group_norm(groups, w.as_ref(), b.as_ref(), eps);
        let terms = channels / groups * case.shape[2..].iter().product::<usize>();
        agree("group_norm", terms, &got, &expected, Some(&size))
    }

    /// (|x| + mean |x|) / deviation · |w| + |b|: the magnitudes before the mean of the group is subtracted.
    fn magnitude(
        x: &Array,
        groups: usize,
        w: Option<&Array>,
        b: Option<&Array>,
        eps: f64,
    ) -> Array {
        let members = |i: &[usize]| {
            let each = x.shape[1] / groups;
            let first = i[1] / each * each;
            let mut all = Vec::new();
            for j in bessemer_testing::array::indices(&x.shape[2..]) {
                for c in first..first + each {
                    all.push(x.float(&[&[i[0], c], &j[..]].concat()));
                }
            }
            all
        };
        let mut known = std::collections::HashMap::new();
        Array::from_float_fn(DType::F64, &x.shape, |i| {
            let group = (i[0], i[1] / (x.shape[1] / groups));
            let (sizes, scale) = *known.entry(group).or_insert_with(|| {
                let all = members(i);
                let n = all.len() as f64;
                let mean = all.iter().sum::<f64>() / n;
                let var = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
                let sizes = all.iter().map(|x| x.abs()).sum::<f64>() / n;
                (sizes, 1.0 / (var + eps).sqrt())
            });
            let w = w.map_or(1.0, |w| w.float(&i[1..2]).abs());
            let b = b.map_or(0.0, |b| b.float(&i[1..2]).abs());
            (x.float(i).abs() + sizes) * scale * w + b
        })
    }
}
