use bessemer::{AttentionOptions, DType, Error, Tensor};

use crate::near::{assert_near, in_every_float, numbers, values};

/// Batch, heads of queries and of keys, queries, keys, dim, dim of values.
#[derive(Clone, Copy, Debug)]
struct Case([usize; 7]);

/// Attention in `f64`, one score after the other.
fn reference(
    Case([batch, heads, key_heads, queries, keys, dim, value_dim]): Case,
    [q, k, v]: [&[f64]; 3],
    options: &AttentionOptions<'_>,
    add: impl Fn(usize, usize, usize, usize) -> f64,
) -> Vec<f64> {
    let mut out = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            for i in 0..queries {
                let row = |j: usize| (b * key_heads + h / (heads / key_heads)) * keys + j;
                let score = |j: usize| {
                    let q = &q[((b * heads + h) * queries + i) * dim..][..dim];
                    let k = &k[row(j) * dim..][..dim];
                    let dot: f64 = q.iter().zip(k).map(|(a, b)| a * b).sum();
                    let mut s = dot * options.scale.unwrap_or(1.0 / (dim as f64).sqrt());
                    if let Some(cap) = options.soft_cap {
                        s = cap * (s / cap).tanh();
                    }
                    let distance = (keys + i) as isize - (queries + j) as isize;
                    let hidden = (options.causal && distance < 0)
                        || options
                            .window
                            .is_some_and(|w| distance >= 0 && distance as usize >= w);
                    if hidden {
                        f64::NEG_INFINITY
                    } else {
                        s + add(b, h, i, j)
                    }
                };
                let scores: Vec<f64> = (0..keys).map(score).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..value_dim {
                    let at = (0..keys).map(|j| weights[j] * v[row(j) * value_dim + d]);
                    let visible = top > f64::NEG_INFINITY;
                    out.push(if visible { at.sum::<f64>() / sum } else { 0.0 });
                }
            }
        }
    }
    out
}

/// Queries, keys and values of a case, as numbers and shapes.
fn inputs(
    Case([batch, heads, key_heads, queries, keys, dim, value_dim]): Case,
) -> [(Vec<f64>, [usize; 4]); 3] {
    let shapes = [
        [batch, heads, queries, dim],
        [batch, key_heads, keys, dim],
        [batch, key_heads, keys, value_dim],
    ];
    [0, 1, 2].map(|i| {
        let x = numbers(i as u64 + 1, shapes[i].iter().product());
        (x.iter().map(|x| x / 2.0).collect(), shapes[i])
    })
}

fn tensors(inputs: &[(Vec<f64>, [usize; 4]); 3]) -> [Tensor; 3] {
    [0, 1, 2].map(|i| Tensor::from_slice(&inputs[i].0, inputs[i].1))
}

const CASES: [Case; 9] = [
    Case([1, 1, 1, 1, 1, 1, 1]),
    Case([2, 4, 4, 1, 9, 8, 8]),
    Case([1, 8, 2, 1, 700, 16, 24]),
    Case([2, 4, 2, 3, 65, 20, 7]),
    Case([1, 2, 1, 7, 130, 33, 16]),
    Case([1, 2, 2, 40, 40, 16, 16]),
    Case([2, 4, 2, 97, 200, 13, 19]),
    Case([1, 6, 3, 100, 64, 32, 48]),
    Case([1, 2, 1, 30, 10, 4, 4]),
];

#[test]
fn attention_is_its_formula_in_every_type() {
    for case in CASES {
        let inputs = inputs(case);
        let [q, k, v] = inputs.each_ref().map(|(x, shape)| in_every_float(x, shape));
        let options = AttentionOptions::default();
        let expected = reference(
            case,
            inputs.each_ref().map(|i| &*i.0),
            &options,
            |_, _, _, _| 0.0,
        );
        for ((q, error), (k, v)) in q.iter().zip(k.iter().zip(&v)) {
            let y = q.attention(&k.0, &v.0, &options);
            assert_eq!(y.dtype(), q.dtype());
            assert_near(&y, &expected, *error);
        }
    }
}

/// Few and many queries, keys in one part and in several, tiles with nothing left over and with a little,
/// rows of the lengths that models have; in one type each, since kernels are compiled for each.
const LARGE_CASES: [(Case, DType); 10] = [
    (Case([1, 8, 2, 1, 1500, 64, 64]), DType::F16),
    (Case([1, 3, 1, 2, 600, 128, 128]), DType::BF16),
    (Case([2, 2, 2, 8, 40, 256, 256]), DType::F32),
    (Case([1, 1, 1, 1, 520, 300, 1]), DType::F32),
    (Case([1, 2, 1, 9, 33, 64, 64]), DType::F32),
    (Case([1, 2, 1, 32, 64, 64, 64]), DType::BF16),
    (Case([2, 2, 2, 65, 127, 80, 128]), DType::F16),
    (Case([1, 1, 1, 40, 70, 128, 100]), DType::F32),
    (Case([1, 1, 1, 33, 65, 256, 250]), DType::F32),
    (Case([1, 2, 1, 12, 20, 300, 260]), DType::F32),
];

#[test]
fn rows_of_every_length_with_few_and_many_keys_are_right() {
    for (n, (case, dtype)) in LARGE_CASES.into_iter().enumerate() {
        let inputs = inputs(case);
        let [q, k, v] = inputs.each_ref().map(|(x, shape)| in_every_float(x, shape));
        // Every kind of limit meets some case.
        let options = AttentionOptions {
            causal: n % 2 == 0,
            window: (n % 3 == 0).then_some(300),
            soft_cap: (n % 4 == 1).then_some(2.0),
            ..AttentionOptions::default()
        };
        let x = inputs.each_ref().map(|i| &*i.0);
        let expected = reference(case, x, &options, |_, _, _, _| 0.0);
        for ((q, error), (k, v)) in q.iter().zip(k.iter().zip(&v)) {
            if [dtype, DType::F64].contains(&q.dtype()) {
                assert_near(&q.attention(&k.0, &v.0, &options), &expected, *error);
            }
        }
    }
}

#[test]
fn causal_windows_caps_and_scales_are_their_formulas() {
    for case in CASES {
        let inputs = inputs(case);
        let [q, k, v] = tensors(&inputs);
        for causal in [false, true] {
            for window in [None, Some(0), Some(1), Some(5), Some(70), Some(usize::MAX)] {
                for (soft_cap, scale) in [(None, None), (Some(2.0), Some(0.7))] {
                    let options = AttentionOptions {
                        causal,
                        window,
                        soft_cap,
                        scale,
                        mask: None,
                    };
                    let x = inputs.each_ref().map(|i| &*i.0);
                    let expected = reference(case, x, &options, |_, _, _, _| 0.0);
                    assert_near(&q.attention(&k, &v, &options), &expected, 1e-12);
                }
            }
        }
    }
}

#[test]
fn masks_are_broadcast_and_hide_or_add() {
    for case in CASES {
        let Case([batch, heads, _, queries, keys, ..]) = case;
        let inputs = inputs(case);
        let [q, k, v] = tensors(&inputs);
        let x = inputs.each_ref().map(|i| &*i.0);
        let see: Vec<bool> = (0..queries * keys)
            .map(|i| i % 7 != 3 && i % 5 != 1)
            .collect();
        let mask = Tensor::from_slice(&see, [queries, keys]);
        let options = AttentionOptions {
            mask: Some(&mask),
            ..AttentionOptions::default()
        };
        let hide = |_: usize, _: usize, i: usize, j: usize| {
            if see[i * keys + j] {
                0.0
            } else {
                f64::NEG_INFINITY
            }
        };
        let expected = reference(case, x, &options, hide);
        assert_near(&q.attention(&k, &v, &options), &expected, 1e-12);
        let bias = numbers(9, batch * heads * keys);
        let mask = Tensor::from_slice(&bias, [batch, heads, 1, keys]);
        let options = AttentionOptions {
            mask: Some(&mask),
            causal: true,
            ..AttentionOptions::default()
        };
        let add = |b: usize, h: usize, _: usize, j: usize| bias[(b * heads + h) * keys + j];
        let expected = reference(case, x, &options, add);
        assert_near(&q.attention(&k, &v, &options), &expected, 1e-12);
    }
}

#[test]
fn a_query_that_sees_nothing_answers_zero() {
    for queries in [1, 40] {
        let q = Tensor::from_vec(numbers(1, queries * 8), [1, 1, queries, 8]);
        let k = Tensor::from_vec(numbers(2, 5 * 8), [1, 1, 5, 8]);
        let mask = Tensor::from_slice(&[false; 5], [5]);
        let options = AttentionOptions {
            mask: Some(&mask),
            ..AttentionOptions::default()
        };
        assert_eq!(
            values(&q.attention(&k, &k, &options)),
            vec![0.0; queries * 8]
        );
        let none = Tensor::zeros([1, 1, 0, 8], DType::F64);
        let y = q.attention(&none, &none, &AttentionOptions::default());
        assert_eq!(values(&y), vec![0.0; queries * 8]);
    }
}

#[test]
fn nan_stays_with_the_queries_that_see_it() {
    for queries in [2, 64] {
        let mut k = numbers(2, 64 * 4);
        k[63 * 4] = f64::NAN;
        let k = Tensor::from_vec(k, [1, 1, 64, 4]);
        let q = Tensor::from_vec(vec![1.0; queries * 4], [1, 1, queries, 4]);
        let v = Tensor::from_vec(numbers(3, 64 * 4), [1, 1, 64, 4]);
        let options = AttentionOptions {
            causal: true,
            ..AttentionOptions::default()
        };
        let y = values(&q.attention(&k, &v, &options));
        let nan: Vec<bool> = y.iter().map(|y| y.is_nan()).collect();
        let last = (queries - 1) * 4;
        assert!(nan[last..].iter().all(|&n| n) && !nan[..last].contains(&true));
    }
}

#[test]
fn views_of_a_cache_and_transposed_heads_are_read_right() {
    let case = Case([2, 4, 2, 30, 50, 16, 16]);
    let [q, k, v] = tensors(&inputs(case));
    let options = AttentionOptions {
        causal: true,
        ..AttentionOptions::default()
    };
    let expected = values(&q.attention(&k, &v, &options));
    let data = k.transpose(1, 2).to_vec::<f64>().unwrap();
    let transposed = Tensor::from_vec(data, [2, 50, 2, 16]).transpose(1, 2);
    assert_eq!(values(&q.attention(&transposed, &v, &options)), expected);
    let turned = Tensor::from_vec(q.t().to_vec::<f64>().unwrap(), [2, 4, 16, 30]).t();
    assert_eq!(values(&turned.attention(&k, &v, &options)), expected);
    let part = q
        .narrow(2, 20, 10)
        .attention(&k.narrow(2, 0, 40), &v.narrow(2, 0, 40), &options);
    let whole = q.attention(&k, &v, &options).narrow(2, 20, 10);
    assert_eq!(part.shape(), whole.shape());
}

#[test]
fn rejects_shapes_that_do_not_fit() {
    let zeros = |shape: [usize; 4]| Tensor::zeros(shape, DType::F32);
    let options = AttentionOptions::default();
    let q = zeros([1, 4, 2, 8]);
    let cases = [
        (zeros([1, 3, 5, 8]), zeros([1, 3, 5, 8])),
        (zeros([1, 4, 5, 7]), zeros([1, 4, 5, 8])),
        (zeros([2, 4, 5, 8]), zeros([2, 4, 5, 8])),
        (zeros([1, 4, 5, 8]), zeros([1, 4, 6, 8])),
        (zeros([1, 0, 5, 8]), zeros([1, 0, 5, 8])),
    ];
    for (k, v) in cases {
        let error = q.attention(&k, &v, &options).check().unwrap_err();
        assert!(
            matches!(
                error,
                Error::ShapeMismatch {
                    op: "attention",
                    ..
                }
            ),
            "{error}"
        );
    }
    let flat = Tensor::zeros([2, 8], DType::F32);
    let error = flat.attention(&flat, &flat, &options).check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadShape {
                op: "attention",
                ..
            }
        ),
        "{error}"
    );
    let mask = Tensor::zeros([3, 3], DType::F32);
    let options = AttentionOptions {
        mask: Some(&mask),
        ..options
    };
    let k = zeros([1, 4, 5, 8]);
    let error = q.attention(&k, &k, &options).check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::ShapeMismatch {
                op: "attention",
                ..
            }
        ),
        "{error}"
    );
    let mask = Tensor::zeros([5], DType::I32);
    let options = AttentionOptions {
        mask: Some(&mask),
        ..options
    };
    let error = q.attention(&k, &k, &options).check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadDType {
                op: "attention",
                ..
            }
        ),
        "{error}"
    );
}

mod against_the_reference {
    use bessemer::{AttentionOptions, DType};
    use bessemer_testing::case::{Fill, Input, Placement, check};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::attention::{Options, attention};

    /// Draws a case from a seed: shapes, masks and options.
    fn judge(dtype: DType, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let (kv_heads, share) = (rng.pick(&[1, 2, 3]), rng.pick(&[1, 1, 2, 4]));
        let (batches, queries) = (rng.pick(&[1, 2]), rng.pick(&[1, 2, 3, 7, 17]));
        let keys = queries + rng.pick(&[0, 0, 1, 5, 30, 65]);
        let (size, out) = (rng.pick(&[1, 3, 8, 16, 33]), rng.pick(&[1, 4, 16, 17]));
        let mut part = |shape: &[usize], dtype, fill| Input {
            dtype,
            shape: shape.to_vec(),
            fill,
            placement: rng.pick(&Placement::ALL),
            seed: rng.bits(),
        };
        let heads = kv_heads * share;
        let q = part(&[batches, heads, queries, size], dtype, Fill::Normal);
        let k = part(&[batches, kv_heads, keys, size], dtype, Fill::Normal);
        let v = part(&[batches, kv_heads, keys, out], dtype, Fill::Normal);
        let additive = part(&[heads, queries, keys], dtype, Fill::Normal);
        let boolean = part(&[batches, 1, queries, keys], DType::Bool, Fill::Small);
        let mask = rng.pick(&[None, None, Some(&additive), Some(&boolean)]);
        let options = Options {
            scale: rng.pick(&[None, Some(0.3)]),
            causal: rng.one_in(2),
            window: rng.pick(&[None, None, Some(1), Some(4), Some(100)]),
            softcap: rng.pick(&[None, None, Some(2.0), Some(30.0)]),
            mask: None,
        };
        let (mask_array, mask_tensor) = (mask.map(Input::array), mask.map(Input::tensor));
        let reference = Options {
            mask: mask_array.as_ref(),
            ..options
        };
        let expected = attention(&q.array(), &k.array(), &v.array(), &reference);
        // A change of a score by e changes a weight by e of itself: values as large as their sizes, and
        // scores as large as the products they are made of.
        let size_of = attention(&q.array(), &k.array(), &v.array().magnitudes(), &reference);
        let given = AttentionOptions {
            scale: options.scale,
            causal: options.causal,
            mask: mask_tensor.as_ref(),
            window: options.window,
            soft_cap: options.softcap,
        };
        let got = q.tensor().attention(&k.tensor(), &v.tensor(), &given);
        agree("attention", keys + size, &got, &expected, Some(&size_of))
            .map_err(|e| format!("{e}\n{q:?} {k:?} {v:?} {options:?} {mask:?}"))
    }

    #[test]
    fn every_type_layout_mask_and_option_is_right() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let seeds = proptest::prelude::any::<u64>();
            check(&format!("attention of {dtype}"), 60, seeds, |&seed| {
                judge(dtype, seed)
            });
        }
    }
}

#[test]
fn the_formula_of_simpler_ops_gives_the_same() {
    for case in CASES {
        let Case([_, _, _, queries, keys, ..]) = case;
        let [q, k, v] = tensors(&inputs(case));
        let bias = Tensor::from_slice(&numbers(9, queries * keys), [queries, keys]);
        let see = bias.gt(-2.0);
        for mask in [None, Some(&bias), Some(&see)] {
            let options = AttentionOptions {
                causal: true,
                window: Some(40),
                soft_cap: Some(3.0),
                scale: None,
                mask,
            };
            let expected = q.decompose_attention(&k, &v, &options);
            assert_near(&q.attention(&k, &v, &options), &values(&expected), 1e-12);
        }
    }
}
