use bessemer::{DType, Error, RopeOptions, RopeScaling, RopeStyle, RopeTable, Tensor};
use bessemer_testing::tolerance::bound;

use crate::data::{assert_agrees, in_every_float, numbers, values};

/// Rotates `[rows, dim]` with these positions and frequencies.
fn reference(x: &[f64], dim: usize, at: &[f64], f: &[f64], style: RopeStyle) -> Vec<f64> {
    let mut y = x.to_vec();
    for (r, row) in y.chunks_mut(dim).enumerate() {
        for i in 0..f.len() {
            let (a, b) = match style {
                RopeStyle::HalfSplit => (i, i + f.len()),
                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            };
            let (sin, cos) = (at[r] * f[i]).sin_cos();
            (row[a], row[b]) = (row[a] * cos - row[b] * sin, row[b] * cos + row[a] * sin);
        }
    }
    y
}

/// Compares rotated values of magnitude up to 4 with exact ones: neither of a pair exceeds the sum of both. `reach` is
/// the largest angle.
#[track_caller]
fn judge(y: &Tensor, expected: &[f64], reach: usize) {
    assert_agrees("rope", reach, y, expected, Some(&vec![8.0; expected.len()]));
}

fn plain(dims: usize) -> Vec<f64> {
    let frequency = |i: usize| 10000_f64.powf(-(2.0 * i as f64) / dims as f64);
    (0..dims / 2).map(frequency).collect()
}

#[test]
fn rope_rotates_pairs_by_position() {
    let (batch, heads, seq, dim) = (2, 3, 5, 16);
    let x = numbers(1, batch * heads * seq * dim);
    for style in [RopeStyle::HalfSplit, RopeStyle::Interleaved] {
        for dims in [16, 6] {
            let options = RopeOptions {
                style,
                dims: Some(dims),
                ..RopeOptions::default()
            };
            let at: Vec<f64> = (0..batch * heads * seq)
                .map(|r| (7 + r % seq) as f64)
                .collect();
            let expected = reference(&x, dim, &at, &plain(dims), style);
            for t in in_every_float(&x, &[batch, heads, seq, dim]) {
                let y = t.rope(&options, 7);
                assert_eq!((y.shape(), y.dtype()), (t.shape(), t.dtype()));
                judge(&y, &expected, 12);
            }
        }
    }
}

#[test]
fn positions_may_be_shared_or_per_batch_element() {
    let x = numbers(2, 2 * 3 * 4 * 8);
    let options = RopeOptions::default();
    let all = [5.0_f32, 0.0, 100_000.0, 3.0];
    let each = [5.0_f32, 0.0, 1.0, 3.0, 9.0, 10.0, 11.0, 12.5];
    let of_all: Vec<f64> = (0..24).map(|r| all[r % 4].into()).collect();
    let of_each: Vec<f64> = (0..24).map(|r| each[r / 12 * 4 + r % 4].into()).collect();
    let cases = [
        (Tensor::from_slice(&all, [4]), of_all, 100_000),
        (Tensor::from_slice(&each, [2, 4]), of_each, 13),
    ];
    for (positions, at, reach) in cases {
        let expected = reference(&x, 8, &at, &plain(8), RopeStyle::HalfSplit);
        for t in in_every_float(&x, &[2, 3, 4, 8]) {
            judge(&t.rope(&options, positions.clone()), &expected, reach);
        }
    }
}

#[test]
fn fractional_positions_and_frequencies_above_one_revolution_are_right() {
    let x = numbers(7, 2 * 3 * 4);
    let frequencies = [7.5, -0.25];
    let table = Tensor::from_slice(&frequencies, [2]);
    let table = RopeTable::new(&table, RopeStyle::HalfSplit, 1.0).unwrap();
    let at = [0.5, -3.0, 1000.25];
    let rows: Vec<f64> = (0..6).map(|r| at[r % 3]).collect();
    let expected = reference(&x, 4, &rows, &frequencies, RopeStyle::HalfSplit);
    for t in in_every_float(&x, &[2, 3, 4]) {
        let positions = Tensor::from_slice(&at.map(|p| p as f32), [3]);
        judge(&t.rope_with(&table, positions), &expected, 7502);
    }
}

#[test]
fn transposed_heads_are_read_in_place() {
    let x = numbers(3, 2 * 4 * 3 * 8);
    let options = RopeOptions::default();
    let at: Vec<f64> = (0..24).map(|r| (3 + r % 4) as f64).collect();
    for t in in_every_float(&x, &[2, 4, 3, 8]) {
        let t = t.transpose(1, 2);
        let expected = reference(&values(&t), 8, &at, &plain(8), RopeStyle::HalfSplit);
        judge(&t.rope(&options, 3), &expected, 6);
    }
}

#[test]
fn scores_depend_only_on_relative_positions() {
    let (q, k) = (numbers(4, 8), numbers(5, 8));
    let (qs, ks) = (in_every_float(&q, &[1, 8]), in_every_float(&k, &[1, 8]));
    for (q, k) in qs.iter().zip(&ks) {
        let options = RopeOptions::default();
        let score = |at: usize, apart: usize| -> f64 {
            let q = values(&q.rope(&options, at + apart));
            let k = values(&k.rope(&options, at));
            assert_eq!((q.len(), k.len()), (8, 8));
            q.iter().zip(&k).map(|(a, b)| a * b).sum()
        };
        // Eight products of values up to 6, each rounded once.
        let near = match q.dtype() {
            DType::F64 => bound::F64_ROTATED_SCORE,
            dtype => 8.0 * 36.0 * bessemer_testing::number::epsilon(dtype),
        };
        assert!((score(0, 3) - score(1000, 3)).abs() < near);
    }
}

#[test]
fn scalings_match_their_definitions() {
    let frequencies = |scaling| {
        let options = RopeOptions {
            scaling,
            ..RopeOptions::default()
        };
        values(options.table(64).unwrap().frequencies())
    };
    let base = plain(64);
    let linear = frequencies(RopeScaling::Linear { factor: 4.0 });
    assert!((linear[5] - base[5] / 4.0).abs() < bound::F64_FORMULA);
    let ntk = frequencies(RopeScaling::Ntk { factor: 4.0 });
    assert!((ntk[31] - base[31] / 4.0).abs() < bound::F64_FORMULA && ntk[0] == 1.0);
    let llama = frequencies(RopeScaling::Llama3 {
        factor: 8.0,
        low_factor: 1.0,
        high_factor: 4.0,
        original_context: 8192,
    });
    assert_eq!(llama[0], base[0]);
    assert!((llama[31] - base[31] / 8.0).abs() < bound::F64_FORMULA);
    let between: Vec<_> = (0..32)
        .filter(|&i| llama[i] < base[i] && llama[i] > base[i] / 8.0)
        .collect();
    for i in between {
        let wave = std::f64::consts::TAU / base[i];
        let smooth = (8192.0 / wave - 1.0) / 3.0;
        let expected = (1.0 - smooth) * base[i] / 8.0 + smooth * base[i];
        assert!((llama[i] - expected).abs() < bound::F64_FORMULA);
    }
    let yarn = RopeScaling::Yarn {
        factor: 8.0,
        original_context: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
    let table = RopeOptions {
        scaling: yarn,
        ..RopeOptions::default()
    };
    let table = table.table(64).unwrap();
    assert!((table.attention_factor() - (0.1 * 8_f64.ln() + 1.0)).abs() < bound::F64_FORMULA);
    // By the definition: pairs below 10 keep their frequency, those from 23 on are divided by 8.
    let yarn = values(table.frequencies());
    assert_eq!(yarn[10], base[10]);
    assert!((yarn[23] - base[23] / 8.0).abs() < bound::F64_FORMULA);
    let ramp = 5.0 / 13.0;
    let expected = base[15] / 8.0 * ramp + base[15] * (1.0 - ramp);
    assert!((yarn[15] - expected).abs() < bound::F64_FORMULA);
}

#[test]
fn tables_accept_given_frequencies() {
    let x = numbers(6, 3 * 4);
    let table = Tensor::from_slice(&[0.5_f32, 0.25], [2]);
    let table = RopeTable::new(&table, RopeStyle::HalfSplit, 2.0).unwrap();
    let rotated = reference(&x, 4, &[1.0, 2.0, 3.0], &[0.5, 0.25], RopeStyle::HalfSplit);
    let expected: Vec<f64> = rotated.iter().map(|v| v * 2.0).collect();
    for t in in_every_float(&x, &[3, 4]) {
        judge(&t.rope_with(&table, 1), &expected, 2);
    }
}

#[test]
fn rejects_invalid_options_and_shapes() {
    let x = Tensor::zeros([3, 4], DType::F32);
    let with = |dims, base| RopeOptions {
        dims,
        base,
        ..RopeOptions::default()
    };
    for options in [
        with(Some(3), 1e4),
        with(Some(6), 1e4),
        with(Some(0), 1e4),
        with(None, -1.0),
    ] {
        let error = x.rope(&options, 0).check().unwrap_err();
        assert!(
            matches!(error, Error::Invalid { op: "rope", .. }),
            "{error}"
        );
    }
    let bad = x.rope(&RopeOptions::default(), Tensor::zeros([4], DType::I64));
    assert!(matches!(
        bad.check().unwrap_err(),
        Error::ShapeMismatch { op: "rope", .. }
    ));
    let vector = Tensor::zeros([4], DType::F32).rope(&RopeOptions::default(), 0);
    assert!(matches!(
        vector.check().unwrap_err(),
        Error::BadShape { op: "rope", .. }
    ));
}

mod against_the_reference {
    use bessemer::{DType, RopeOptions, RopeScaling, RopeStyle, Tensor};
    use bessemer_testing::case::{Fill, Input, LayoutKind};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::rope::{
        Rotation, Scaling, attention_factor, frequencies, rope,
    };
    use bessemer_testing::{Array, Value};

    fn scaling(which: usize) -> (RopeScaling, Scaling) {
        match which {
            0 => (RopeScaling::None, Scaling::None),
            1 => (
                RopeScaling::Linear { factor: 4.0 },
                Scaling::Linear { factor: 4.0 },
            ),
            2 => (
                RopeScaling::Ntk { factor: 8.0 },
                Scaling::Ntk { factor: 8.0 },
            ),
            3 => (
                RopeScaling::Yarn {
                    factor: 16.0,
                    original_context: 4096,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                },
                Scaling::Yarn {
                    factor: 16.0,
                    original: 4096.0,
                    fast: 32.0,
                    slow: 1.0,
                },
            ),
            _ => (
                RopeScaling::Llama3 {
                    factor: 8.0,
                    low_factor: 1.0,
                    high_factor: 4.0,
                    original_context: 8192,
                },
                Scaling::Llama3 {
                    factor: 8.0,
                    low: 1.0,
                    high: 4.0,
                    original: 8192.0,
                },
            ),
        }
    }

    fn judge(dtype: DType, rng: &mut Rng) -> Result<(), String> {
        let dim = rng.pick(&[4, 6, 8, 16, 64, 66, 128]);
        let dims = rng.pick(&[dim, dim, dim / 2 / 2 * 2]);
        let (base, which) = (rng.pick(&[10_000.0, 500_000.0]), rng.below(5));
        let (theirs, ours) = scaling(which);
        let interleaved = rng.one_in(2);
        let shape = [
            rng.pick(&[1, 2]),
            rng.pick(&[1, 3]),
            rng.pick(&[1, 2, 9]),
            dim,
        ];
        let x = Input {
            dtype,
            shape: shape.to_vec(),
            fill: Fill::Normal,
            layout: rng.pick(&LayoutKind::ALL),
            seed: rng.bits(),
        };
        let options = RopeOptions {
            style: if interleaved {
                RopeStyle::Interleaved
            } else {
                RopeStyle::HalfSplit
            },
            base,
            dims: (dims != dim).then_some(dims),
            scaling: theirs,
            attention_factor: None,
        };
        let f = frequencies(dims, base, ours);
        let how = Rotation {
            frequencies: &f,
            interleaved,
            factor: attention_factor(ours),
        };
        let array = x.array();
        // A rotation preserves the norm of a pair: neither value exceeds the sum of both.
        let largest = array
            .to_floats()
            .into_iter()
            .fold(0.0, |a: f64, b| a.max(b.abs()));
        let size = array.map(DType::F64, |_| Value::Float(2.0 * largest));
        let first = rng.pick(&[0, 1, 100, 100_000]);
        let expected = rope(&array, &how, |i| (i[2] + first) as f64);
        agree(
            "rope",
            first + 10,
            &x.tensor().rope(&options, first),
            &expected,
            Some(&size),
        )?;
        let at: Vec<i128> = (0..shape[2]).map(|_| rng.below(5000) as i128).collect();
        let positions = Array::ints(DType::I32, &[shape[2]], &at);
        let expected = rope(&array, &how, |i| at[i[2]] as f64);
        let positions: Tensor = bessemer_testing::layout::tensor(&positions);
        agree(
            "rope",
            5000,
            &x.tensor().rope(&options, positions),
            &expected,
            Some(&size),
        )
        .map_err(|e| format!("{e}: {x:?} {options:?}"))
    }

    #[test]
    fn every_type_layout_style_and_scaling_is_right() {
        let mut rng = Rng::new(17);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for _ in 0..60 {
                judge(dtype, &mut rng).unwrap_or_else(|e| panic!("{dtype}: {e}"));
            }
        }
    }
}
