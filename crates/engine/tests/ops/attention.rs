use bessemer::{AttentionOptions, DType, Error, Tensor};

use crate::data::{assert_agrees, in_every_float, numbers, values};

/// Batch, query heads, key heads, queries, keys, dim, value dim.
#[derive(Clone, Copy, Debug)]
struct Case([usize; 7]);

/// Attention in `f64`, by simple loops.
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

/// Attention, attention of absolute values, and the number of terms of its sums: a change of a score by e is a relative
/// change of e in a weight.
struct Truth {
    expected: Vec<f64>,
    size: Vec<f64>,
    terms: usize,
}

impl Truth {
    fn new(
        case: Case,
        inputs: &[(Vec<f64>, [usize; 4]); 3],
        options: &AttentionOptions<'_>,
        add: impl Fn(usize, usize, usize, usize) -> f64,
    ) -> Self {
        let [q, k, v] = inputs.each_ref().map(|i| &*i.0);
        let sizes: Vec<f64> = v.iter().map(|v| v.abs()).collect();
        let Case([.., keys, dim, _]) = case;
        Self {
            expected: reference(case, [q, k, v], options, &add),
            size: reference(case, [q, k, &sizes], options, &add),
            terms: keys + dim,
        }
    }

    #[track_caller]
    fn judge(&self, y: &Tensor) {
        assert_agrees("attention", self.terms, y, &self.expected, Some(&self.size));
    }
}

/// A mask that adds nothing.
fn nothing(_: usize, _: usize, _: usize, _: usize) -> f64 {
    0.0
}

/// Queries, keys and values of a case, as values and shapes.
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

/// Queries, keys and values in every float type.
fn tensors(inputs: &[(Vec<f64>, [usize; 4]); 3]) -> [[Tensor; 3]; 4] {
    let [q, k, v] = inputs.each_ref().map(|(x, shape)| in_every_float(x, shape));
    std::array::from_fn(|i| [q[i].clone(), k[i].clone(), v[i].clone()])
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
fn every_type_matches_the_formula() {
    for case in CASES {
        let inputs = inputs(case);
        let options = AttentionOptions::default();
        let truth = Truth::new(case, &inputs, &options, nothing);
        for [q, k, v] in tensors(&inputs) {
            let y = q.attention(&k, &v, &options);
            assert_eq!(y.dtype(), q.dtype());
            truth.judge(&y);
        }
    }
}

/// Few and many queries, keys in one split and in several, tiles with and without a remainder, head dimensions of real
/// models; each in one type, since kernels are compiled for each.
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
fn every_tile_and_split_is_right() {
    for (n, (case, dtype)) in LARGE_CASES.into_iter().enumerate() {
        let inputs = inputs(case);
        // Every option occurs in some case.
        let options = AttentionOptions {
            causal: n % 2 == 0,
            window: (n % 3 == 0).then_some(300),
            soft_cap: (n % 4 == 1).then_some(2.0),
            ..AttentionOptions::default()
        };
        let truth = Truth::new(case, &inputs, &options, nothing);
        for [q, k, v] in tensors(&inputs) {
            if [dtype, DType::F64].contains(&q.dtype()) {
                truth.judge(&q.attention(&k, &v, &options));
            }
        }
    }
}

#[test]
fn causal_masks_windows_soft_caps_and_scales_match_the_formula() {
    for case in CASES {
        let inputs = inputs(case);
        let all = tensors(&inputs);
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
                    let truth = Truth::new(case, &inputs, &options, nothing);
                    for [q, k, v] in &all {
                        truth.judge(&q.attention(k, v, &options));
                    }
                }
            }
        }
    }
}

#[test]
fn boolean_and_additive_masks_broadcast() {
    for case in CASES {
        let Case([batch, heads, _, queries, keys, ..]) = case;
        let inputs = inputs(case);
        let see: Vec<bool> = (0..queries * keys)
            .map(|i| i % 7 != 3 && i % 5 != 1)
            .collect();
        let hide = |_: usize, _: usize, i: usize, j: usize| {
            if see[i * keys + j] {
                0.0
            } else {
                f64::NEG_INFINITY
            }
        };
        let mask = Tensor::from_slice(&see, [queries, keys]);
        let options = AttentionOptions {
            mask: Some(&mask),
            ..AttentionOptions::default()
        };
        let truth = Truth::new(case, &inputs, &options, hide);
        for [q, k, v] in tensors(&inputs) {
            truth.judge(&q.attention(&k, &v, &options));
        }
        let bias = numbers(9, batch * heads * keys);
        let add = |b: usize, h: usize, _: usize, j: usize| bias[(b * heads + h) * keys + j];
        let causal = AttentionOptions {
            causal: true,
            ..AttentionOptions::default()
        };
        let truth = Truth::new(case, &inputs, &causal, add);
        let masks = in_every_float(&bias, &[batch, heads, 1, keys]);
        for ([q, k, v], mask) in tensors(&inputs).iter().zip(&masks) {
            let options = AttentionOptions {
                mask: Some(mask),
                ..causal
            };
            truth.judge(&q.attention(k, v, &options));
        }
    }
}

#[test]
fn a_fully_masked_query_gives_zero() {
    for queries in [1, 40] {
        let qs = in_every_float(&numbers(1, queries * 8), &[1, 1, queries, 8]);
        let ks = in_every_float(&numbers(2, 5 * 8), &[1, 1, 5, 8]);
        let mask = Tensor::from_slice(&[false; 5], [5]);
        let options = AttentionOptions {
            mask: Some(&mask),
            ..AttentionOptions::default()
        };
        let zeros = vec![0.0; queries * 8];
        for (q, k) in qs.iter().zip(&ks) {
            assert_agrees("copy", 1, &q.attention(k, k, &options), &zeros, None);
            let none = Tensor::zeros([1, 1, 0, 8], q.dtype());
            let y = q.attention(&none, &none, &AttentionOptions::default());
            assert_eq!(values(&y), zeros);
        }
    }
}

#[test]
fn heads_of_dimension_zero_weigh_all_keys_equally() {
    // Views of empty memory, whose strides lead past its end.
    let empty = |shape: [usize; 4]| Tensor::from_vec(Vec::<f32>::new(), shape);
    let q = empty([2, 0, 3, 6]).permute(&[0, 3, 2, 1]);
    let k = empty([2, 0, 3, 2]).permute(&[0, 2, 3, 1]);
    let v = Tensor::ones([2, 3, 2, 5], DType::F32);
    let y = q.attention(&k, &v, &AttentionOptions::default());
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0; 2 * 6 * 3 * 5]);
}

#[test]
fn nan_affects_only_queries_that_attend_to_it() {
    let causal = AttentionOptions {
        causal: true,
        ..AttentionOptions::default()
    };
    for queries in [2, 64] {
        let case = Case([1, 1, 1, queries, 64, 4, 4]);
        let mut inputs = inputs(case);
        let truth = Truth::new(case, &inputs, &causal, nothing);
        inputs[1].0[63 * 4] = f64::NAN;
        let last = (queries - 1) * 4;
        for [q, k, v] in tensors(&inputs) {
            let y = q.attention(&k, &v, &causal);
            assert!(values(&y)[last..].iter().all(|y| y.is_nan()), "{y:?}");
            // All others are unaffected.
            let others = Truth {
                expected: truth.expected[..last].to_vec(),
                size: truth.size[..last].to_vec(),
                terms: truth.terms,
            };
            others.judge(&y.narrow(2, 0, queries - 1));
        }
    }
}

#[test]
fn cache_views_and_transposed_heads_are_read_in_place() {
    let case = Case([2, 4, 2, 30, 50, 16, 16]);
    let inputs = inputs(case);
    let options = AttentionOptions {
        causal: true,
        ..AttentionOptions::default()
    };
    let truth = Truth::new(case, &inputs, &options, nothing);
    for [q, k, v] in tensors(&inputs) {
        let transposed = k.transpose(1, 2).contiguous().transpose(1, 2);
        truth.judge(&q.attention(&transposed, &v, &options));
        let strided = q.t().contiguous().t();
        truth.judge(&strided.attention(&k, &v, &options));
        // A cache with spare capacity: positions past its length must not be read.
        let room = Tensor::full([2, 2, 14, 16], f64::NAN, q.dtype());
        let cache = |x: &Tensor| Tensor::concat(&[x, &room], 2).narrow(2, 0, 50);
        truth.judge(&q.attention(&cache(&k), &cache(&v), &options));
        // The last queries alone attend to the same keys: a causal mask is aligned at the end.
        let part = q.narrow(2, 20, 10).attention(&k, &v, &options);
        let rows = |x: &[f64]| -> Vec<f64> {
            let heads = x.chunks(30 * 16);
            heads.flat_map(|x| x[20 * 16..].to_vec()).collect()
        };
        let last = Truth {
            expected: rows(&truth.expected),
            size: rows(&truth.size),
            terms: truth.terms,
        };
        last.judge(&part);
    }
}

#[test]
fn scores_are_never_materialised() {
    use bessemer_hal::noop;
    // Few queries and many: one launch, or two with split keys, and no memory for scores.
    for (queries, keys) in [(1, 20_000), (700, 3000)] {
        let device = bessemer::Device::on(noop::device(bessemer_hal::Family::Apple7));
        let x = |rows| {
            let x = Tensor::zeros([1, 8, rows, 64], DType::F32).to(&device);
            let x = x.contiguous();
            x.eval().unwrap();
            x
        };
        let (q, k) = (x(queries), x(keys));
        device.synchronize().unwrap();
        let hal = device.hal().unwrap();
        noop::clear(hal);
        device.reset_peak();
        let before = device.memory().peak;
        q.attention(&k, &k, &AttentionOptions::default())
            .eval()
            .unwrap();
        device.synchronize().unwrap();
        let scores = 8 * queries * keys * 4;
        let used = device.memory().peak - before;
        // The result, and for few queries a partial result per 256 keys: 66 values instead of 256 scores.
        assert!(used * 3 < scores, "{used} B beside {scores} B of scores");
        let events = noop::record(hal).unwrap().events;
        let launches = events
            .iter()
            .filter(|e| matches!(e, noop::Event::Dispatch { .. }));
        assert!(launches.count() <= 2, "{events:?}");
    }
}

#[test]
fn rejects_mismatched_shapes() {
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
    use bessemer_testing::case::{Fill, Input, LayoutKind, check};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::attention::{Options, attention};

    /// The kind of mask.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Mask {
        None,
        Additive,
        Boolean,
    }

    /// The enumerated options of a case; the rest comes from a seed.
    #[derive(Clone, Copy, Debug)]
    struct Choice {
        dtype: DType,
        mask: Mask,
        causal: bool,
        window: Option<usize>,
        softcap: Option<f64>,
        queries: usize,
        layout: LayoutKind,
    }

    fn judge(choice: Choice, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let Choice { dtype, queries, .. } = choice;
        let (kv_heads, share) = (rng.pick(&[1, 2, 3]), rng.pick(&[1, 1, 2, 4]));
        let batches = rng.pick(&[1, 2]);
        let keys = queries + rng.pick(&[0, 0, 1, 5, 30, 65]);
        let (size, out) = (rng.pick(&[1, 3, 8, 16, 33]), rng.pick(&[1, 4, 16, 17]));
        // One of the inputs has the layout of the case, the others any.
        let chosen = rng.below(4);
        let mut number = 0;
        let mut part = |shape: &[usize], dtype, fill| {
            number += 1;
            let any = rng.pick(&LayoutKind::ALL);
            let layout = if number - 1 == chosen {
                choice.layout
            } else {
                any
            };
            Input {
                dtype,
                shape: shape.to_vec(),
                fill,
                layout,
                seed: rng.bits(),
            }
        };
        let heads = kv_heads * share;
        let q = part(&[batches, heads, queries, size], dtype, Fill::Normal);
        let k = part(&[batches, kv_heads, keys, size], dtype, Fill::Normal);
        let v = part(&[batches, kv_heads, keys, out], dtype, Fill::Normal);
        let mask = match choice.mask {
            Mask::None => None,
            Mask::Additive => Some(part(&[heads, queries, keys], dtype, Fill::Normal)),
            Mask::Boolean => Some(part(&[batches, 1, queries, keys], DType::Bool, Fill::Small)),
        };
        let options = Options {
            scale: rng.pick(&[None, Some(0.3)]),
            causal: choice.causal,
            window: choice.window,
            softcap: choice.softcap,
            mask: None,
        };
        let (mask_array, mask_tensor) = (
            mask.as_ref().map(Input::array),
            mask.as_ref().map(Input::tensor),
        );
        let reference = Options {
            mask: mask_array.as_ref(),
            ..options
        };
        let expected = attention(&q.array(), &k.array(), &v.array(), &reference);
        // A change of a score by e is a relative change of e in a weight: the bound is of the values' magnitudes, times
        // the magnitudes of the products in a score.
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
            .map_err(|e| format!("{e}\n{choice:?} {q:?} {k:?} {v:?} {options:?} {mask:?}"))
    }

    /// Every mask with every window, causal or not, for few queries (a separate kernel) and many; layouts and soft caps
    /// alternate, so that each occurs with every mask.
    fn choices(dtype: DType) -> impl Iterator<Item = Choice> {
        let masks = [Mask::None, Mask::Additive, Mask::Boolean];
        let windows = [None, Some(1), Some(4), Some(100)];
        let all = masks.into_iter().flat_map(move |mask| {
            windows.into_iter().flat_map(move |window| {
                [(false, 3), (true, 1), (true, 17), (false, 12)]
                    .map(move |(causal, queries)| (mask, window, causal, queries))
            })
        });
        all.enumerate()
            .map(move |(i, (mask, window, causal, queries))| Choice {
                dtype,
                mask,
                causal,
                window,
                // The 16 cases of a mask have each of the 8 layouts twice, and each of the 3 soft caps.
                softcap: [None, Some(2.0), Some(30.0)][i % 3],
                queries,
                layout: LayoutKind::ALL[i % LayoutKind::ALL.len()],
            })
    }

    #[test]
    fn every_mask_window_layout_and_type_occurs_and_is_right() {
        for dtype in crate::data::FLOATS {
            for (seed, choice) in choices(dtype).enumerate() {
                judge(choice, seed as u64 * 977 + 5).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }

    #[test]
    fn every_type_layout_mask_and_option_is_right() {
        for dtype in crate::data::FLOATS {
            let seeds = proptest::prelude::any::<u64>();
            check(&format!("attention of {dtype}"), 60, seeds, |&seed| {
                let mut rng = Rng::new(!seed);
                let all: Vec<Choice> = choices(dtype).collect();
                judge(rng.pick(&all), seed)
            });
        }
    }
}

#[test]
fn the_decomposition_agrees() {
    for case in CASES {
        let Case([_, _, _, queries, keys, ..]) = case;
        let inputs = inputs(case);
        let bias = numbers(9, queries * keys);
        let add = |_: usize, _: usize, i: usize, j: usize| bias[i * keys + j];
        let hide = |b, h, i, j| {
            if add(b, h, i, j) > -2.0 {
                0.0
            } else {
                f64::NEG_INFINITY
            }
        };
        let options = AttentionOptions {
            causal: true,
            window: Some(40),
            soft_cap: Some(3.0),
            scale: None,
            mask: None,
        };
        let truths = [
            Truth::new(case, &inputs, &options, nothing),
            Truth::new(case, &inputs, &options, add),
            Truth::new(case, &inputs, &options, hide),
        ];
        let masks = in_every_float(&bias, &[queries, keys]);
        for ([q, k, v], bias) in tensors(&inputs).iter().zip(&masks) {
            let see = bias.gt(-2.0);
            for (mask, truth) in [None, Some(bias), Some(&see)].into_iter().zip(&truths) {
                let options = AttentionOptions { mask, ..options };
                truth.judge(&q.attention(k, v, &options));
                truth.judge(&q.decompose_attention(k, v, &options));
            }
        }
    }
}
