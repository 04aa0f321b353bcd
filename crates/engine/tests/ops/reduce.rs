//! Reductions.

use bessemer::{DType, Error, Tensor, pool};
use bessemer_testing::Value;
use bessemer_testing::case::functions_vary;
use bessemer_testing::subnormal::operand;
use bessemer_testing::tolerance::bound;
use half::{bf16, f16};

/// Numbers without a pattern, in [-1, 1).
fn noise(count: usize) -> Vec<f64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn floats(count: usize) -> Vec<f32> {
    noise(count).into_iter().map(|x| x as f32).collect()
}

/// For each result of a reduction, its elements as `f64`.
fn groups(x: &Tensor, axes: &[usize]) -> Vec<Vec<f64>> {
    let values = x.to_vec::<f32>().unwrap();
    let shape = x.shape();
    let kept: Vec<usize> = (0..shape.rank()).filter(|a| !axes.contains(a)).collect();
    let count = kept.iter().map(|&a| shape[a]).product();
    let mut out = vec![Vec::new(); count];
    for (i, &v) in values.iter().enumerate() {
        let mut index = vec![0; shape.rank()];
        let mut rest = i;
        for a in (0..shape.rank()).rev() {
            index[a] = rest % shape[a];
            rest /= shape[a];
        }
        let at = kept.iter().fold(0, |at, &a| at * shape[a] + index[a]);
        out[at].push(f64::from(v));
    }
    out
}

fn close(actual: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let a = f64::from(a);
        let same = a == e || (a.is_nan() && e.is_nan());
        let near = (a - e).abs() <= tolerance * e.abs().max(1.0);
        assert!(same || near, "{what}: result {i} is {a}, not {e}");
    }
}

/// Views of all kinds, with names.
fn views() -> Vec<(&'static str, Tensor)> {
    let base = Tensor::from_slice(&floats(7 * 9 * 130), [7, 9, 130]);
    let wide = Tensor::from_slice(&floats(3 * 5000), [3, 5000]);
    let tall = Tensor::from_slice(&floats(60_000 * 5), [60_000, 5]);
    let large = Tensor::from_slice(&floats(700 * 700), [700, 700]);
    vec![
        ("plain", base.clone()),
        ("permuted", base.permute(&[2, 0, 1])),
        ("flipped", base.flip(&[0, 2])),
        ("every third", base.slice(2, 1, None, 3)),
        ("a part", base.slice(1, 2, 7, 1)),
        ("broadcast", base.index(0, 3).broadcast_to([4, 9, 130])),
        ("wide", wide.clone()),
        ("wide and transposed", wide.t()),
        ("tall", tall),
        ("large", large.clone()),
        ("large and transposed", large.t()),
        ("one", base.index(0, 0).index(0, 0).index(0, 0)),
    ]
}

#[test]
fn any_axes_of_any_view_match_a_simple_loop() {
    for (name, x) in views() {
        for mask in 0..1_usize << x.rank() {
            let axes: Vec<usize> = (0..x.rank()).filter(|a| mask >> a & 1 == 1).collect();
            let given: Vec<isize> = axes
                .iter()
                .map(|&a| a as isize - x.rank() as isize)
                .collect();
            let all: Vec<usize> = (0..x.rank()).collect();
            let groups = groups(&x, if given.is_empty() { &all } else { &axes });
            let what = format!("{name} over {axes:?}");
            let sums: Vec<f64> = groups.iter().map(|g| g.iter().sum()).collect();
            let y = x.sum(&given, false).to_vec::<f32>().unwrap();
            assert_eq!(y.len(), sums.len(), "{what}");
            for ((y, sum), group) in y.into_iter().zip(&sums).zip(&groups) {
                let scale: f64 = group.iter().map(|x| x.abs()).sum();
                assert!(
                    (f64::from(y) - sum).abs() <= bound::F32_SUM * scale,
                    "{what}: {y}, not {sum}"
                );
            }
            let means: Vec<f64> = groups
                .iter()
                .map(|g| g.iter().sum::<f64>() / g.len() as f64)
                .collect();
            close(
                &x.mean(&given, false).to_vec().unwrap(),
                &means,
                bound::F32_MEAN,
                &what,
            );
            let max: Vec<f64> = groups
                .iter()
                .map(|g| g.iter().copied().fold(f64::MIN, f64::max))
                .collect();
            close(&x.max(&given, true).to_vec().unwrap(), &max, 0.0, &what);
            let min: Vec<f64> = groups
                .iter()
                .map(|g| g.iter().copied().fold(f64::MAX, f64::min))
                .collect();
            close(&x.min(&given, false).to_vec().unwrap(), &min, 0.0, &what);
            let var: Vec<f64> = groups
                .iter()
                .zip(&means)
                .map(|(g, m)| g.iter().map(|x| (x - m).powi(2)).sum::<f64>() / g.len() as f64)
                .collect();
            close(
                &x.var(&given, false, 0).to_vec().unwrap(),
                &var,
                bound::F32_REDUCTION,
                &what,
            );
            let norm: Vec<f64> = groups
                .iter()
                .map(|g| g.iter().map(|x| x * x).sum::<f64>().sqrt())
                .collect();
            close(
                &x.norm(&given, false, 2.0).to_vec().unwrap(),
                &norm,
                bound::F32_NORM,
                &what,
            );
            let norm: Vec<f64> = groups
                .iter()
                .map(|g| g.iter().map(|x| x.abs()).sum::<f64>())
                .collect();
            close(
                &x.norm(&given, false, 1.0).to_vec().unwrap(),
                &norm,
                bound::F32_REDUCTION,
                &what,
            );
            let lse: Vec<f64> = groups
                .iter()
                .map(|g| g.iter().map(|x| x.exp()).sum::<f64>().ln())
                .collect();
            close(
                &x.logsumexp(&given, false).to_vec().unwrap(),
                &lse,
                bound::F32_REDUCTION,
                &what,
            );
        }
    }
}

#[test]
fn axes_are_removed_or_kept_with_length_one() {
    // Element i, j, k is 100 i + 10 j + k, so that no two sums of any axes are the same.
    let data: Vec<f32> = (0..24)
        .map(|i| (i / 12 * 100 + i / 4 % 3 * 10 + i % 4) as f32)
        .collect();
    let x = Tensor::from_slice(&data, [2, 3, 4]);
    let is = |y: Tensor, shape: &[usize], expected: &[f32]| {
        assert_eq!(y.shape()[..], *shape);
        assert_eq!(y.to_vec::<f32>().unwrap(), expected);
    };
    let middle = [30.0, 33.0, 36.0, 39.0, 330.0, 333.0, 336.0, 339.0];
    is(x.sum(&[1], false), &[2, 4], &middle);
    is(x.sum(&[-2], true), &[2, 1, 4], &middle);
    is(x.sum(&[-1, 0], true), &[1, 3, 1], &[412.0, 492.0, 572.0]);
    is(x.sum(&[0, 2], false), &[3], &[412.0, 492.0, 572.0]);
    is(x.max(&[1, 2], false), &[2], &[23.0, 123.0]);
    is(x.min(&[0], false), &[3, 4], &data[..12]);
    is(
        x.mean(&[2], false),
        &[2, 3],
        &[1.5, 11.5, 21.5, 101.5, 111.5, 121.5],
    );
    is(x.sum(&[], false), &[], &[1476.0]);
    is(x.sum(&[], true), &[1, 1, 1], &[1476.0]);
    assert_eq!(
        Tensor::scalar(3.0_f32).sum(&[], false).item::<f32>(),
        Ok(3.0)
    );
}

#[test]
fn every_dtype_gives_the_expected_result_dtype() {
    for dtype in DType::ALL {
        let x = Tensor::from_slice(&[1_u8, 0, 1], [3]);
        let x = match dtype {
            DType::Bool => Tensor::from_slice(&[true, false, true], [3]),
            DType::U8 => x,
            DType::F32 => Tensor::from_slice(&[1.0_f32, 0.0, 1.0], [3]),
            DType::F16 => Tensor::from_slice(&[1.0, 0.0, 1.0].map(f16::from_f64), [3]),
            DType::BF16 => Tensor::from_slice(&[1.0, 0.0, 1.0].map(bf16::from_f64), [3]),
            DType::F64 => Tensor::from_slice(&[1.0_f64, 0.0, 1.0], [3]),
            DType::I8 => Tensor::from_slice(&[1_i8, 0, 1], [3]),
            DType::I16 => Tensor::from_slice(&[1_i16, 0, 1], [3]),
            DType::I32 => Tensor::from_slice(&[1_i32, 0, 1], [3]),
            DType::I64 => Tensor::from_slice(&[1_i64, 0, 1], [3]),
            DType::U16 => Tensor::from_slice(&[1_u16, 0, 1], [3]),
            DType::U32 => Tensor::from_slice(&[1_u32, 0, 1], [3]),
            _ => Tensor::from_slice(&[1_u64, 0, 1], [3]),
        };
        let sum = x.sum(&[], false);
        assert_eq!(sum.dtype(), dtype.to_sum());
        match sum.dtype() {
            DType::I64 => assert_eq!(sum.item::<i64>(), Ok(2)),
            DType::U64 => assert_eq!(sum.item::<u64>(), Ok(2)),
            DType::F16 => assert_eq!(sum.item::<f16>(), Ok(f16::from_f64(2.0))),
            DType::BF16 => assert_eq!(sum.item::<bf16>(), Ok(bf16::from_f64(2.0))),
            DType::F32 => assert_eq!(sum.item::<f32>(), Ok(2.0)),
            _ => assert_eq!(sum.item::<f64>(), Ok(2.0)),
        }
        assert_eq!(x.any(&[], false).item::<bool>(), Ok(true));
        assert_eq!(x.all(&[], false).item::<bool>(), Ok(false));
        assert_eq!(
            x.slice(0, 1, 2, 1).any(&[], false).item::<bool>(),
            Ok(false)
        );
        assert_eq!(x.slice(0, 0, 1, 1).all(&[], false).item::<bool>(), Ok(true));
        assert_eq!(x.max(&[], false).dtype(), dtype);
        assert!(x.max(&[], false).eval().is_ok() && x.prod(&[], false).eval().is_ok());
        let mean = x.mean(&[], false);
        let float = if dtype.is_float() { dtype } else { DType::F64 };
        assert_eq!(mean.dtype(), float);
        assert!(mean.eval().is_ok());
    }
}

#[test]
fn integers_are_added_in_64_bits_and_wrap_there() {
    let x = Tensor::from_vec(vec![255_u8; 100_000], [100, 1000]);
    assert_eq!(x.sum(&[], false).item::<u64>(), Ok(25_500_000));
    assert_eq!(x.sum(&[0], false).to_vec::<u64>().unwrap(), [25_500; 1000]);
    let x = Tensor::from_vec(vec![i16::MIN; 70_000], [70_000]);
    assert_eq!(x.sum(&[], false).item::<i64>(), Ok(-32768 * 70_000));
    let x = Tensor::from_slice(&[i64::MAX, 1], [2]);
    assert_eq!(x.sum(&[], false).item::<i64>(), Ok(i64::MIN));
    let x = Tensor::from_slice(&[-3_i8, 5, 100, 100], [4]);
    assert_eq!(x.prod(&[], false).item::<i64>(), Ok(-150_000));
    assert_eq!(x.min(&[], false).item::<i8>(), Ok(-3));
    assert_eq!(x.mean(&[], false).item::<f64>(), Ok(50.5));
}

#[test]
fn long_float_sums_keep_their_precision() {
    let x = Tensor::from_vec(vec![0.1_f32; 10_000_000], [10_000_000]);
    let exact = 10_000_000.0 * f64::from(0.1_f32);
    let y = x.sum(&[], false).item::<f32>().unwrap();
    assert!((f64::from(y) - exact).abs() < bound::F32_SUM * exact, "{y}");
    let columns = x.reshape([2_500_000, 4]).sum(&[0], false);
    for y in columns.to_vec::<f32>().unwrap() {
        assert!(
            (f64::from(y) - exact / 4.0).abs() < bound::F32_SUM * exact,
            "{y}"
        );
    }
    let x = Tensor::from_vec(vec![f16::from_f64(1000.0); 5000], [5000]);
    assert_eq!(x.mean(&[], false).item::<f16>(), Ok(f16::from_f64(1000.0)));
}

#[test]
fn half_precision_is_converted_exactly() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let x: Vec<f16> = bits.iter().map(|&b| f16::from_bits(b)).collect();
    let y = Tensor::from_slice(&x, [65536, 1])
        .broadcast_to([65536, 2])
        .max(&[1], false);
    let y = y.to_vec::<f16>().unwrap();
    assert_eq!(y.len(), x.len());
    for (y, x) in y.into_iter().zip(x) {
        assert!(y == x || (y.is_nan() && x.is_nan()), "{x:?} became {y:?}");
    }
    let x: Vec<bf16> = bits.iter().map(|&b| bf16::from_bits(b)).collect();
    let y = Tensor::from_slice(&x, [65536, 1]).sum(&[1], false);
    let y = y.to_vec::<bf16>().unwrap();
    assert_eq!(y.len(), x.len());
    for (y, x) in y.into_iter().zip(x) {
        let sum = operand(DType::BF16, Value::Float(x.to_f64())).float();
        assert!(
            y.to_f64() == sum || (y.is_nan() && x.is_nan()),
            "{x:?} became {y:?}"
        );
    }
}

#[test]
fn one_nan_anywhere_makes_the_result_nan() {
    for count in [1, 7, 33, 100, 5000] {
        for at in [0, count / 2, count - 1] {
            let mut data = vec![1.0_f32; count];
            data[at] = f32::NAN;
            let row = Tensor::from_slice(&data, [1, count]);
            for x in [row.clone(), row.t()] {
                for y in [
                    x.sum(&[], false),
                    x.max(&[], false),
                    x.min(&[], false),
                    x.prod(&[], false),
                    x.mean(&[], false),
                    x.var(&[], false, 0),
                    x.logsumexp(&[], false),
                    x.norm(&[], false, 1.0),
                    x.norm(&[], false, 2.0),
                    x.norm(&[], false, f64::INFINITY),
                ] {
                    assert!(
                        y.item::<f32>().unwrap().is_nan(),
                        "{y:?} of {count} at {at}"
                    );
                }
            }
            let both = Tensor::from_slice(&data, [count, 1]).broadcast_to([count, 3]);
            for y in both.max(&[0], false).to_vec::<f32>().unwrap() {
                assert!(y.is_nan());
            }
        }
    }
}

#[test]
fn empty_axes_have_a_sum_but_no_minimum() {
    let x = Tensor::from_slice(&[0.0_f32; 0], [3, 0]);
    let is = |y: Tensor, expected: f32| {
        for v in y.to_vec::<f32>().unwrap() {
            assert!(v.to_bits() == expected.to_bits() || (v.is_nan() && expected.is_nan()));
        }
        assert_eq!(*y.shape(), [3]);
    };
    is(x.sum(&[1], false), 0.0);
    is(x.prod(&[1], false), 1.0);
    is(x.mean(&[1], false), f32::NAN);
    is(x.var(&[1], false, 0), f32::NAN);
    is(x.std(&[1], false, 1), f32::NAN);
    is(x.logsumexp(&[1], false), f32::NEG_INFINITY);
    is(x.norm(&[1], false, 2.0), 0.0);
    assert_eq!(x.any(&[1], false).to_vec::<bool>().unwrap(), [false; 3]);
    assert_eq!(x.all(&[1], false).to_vec::<bool>().unwrap(), [true; 3]);
    assert_eq!(x.sum(&[0], false).to_vec::<f32>().unwrap(), [0.0; 0]);
    for y in [
        x.min(&[1], false),
        x.max(&[], false),
        x.norm(&[1], false, f64::INFINITY),
    ] {
        assert!(matches!(y.eval(), Err(Error::BadShape { .. })), "{y:?}");
    }
    assert_eq!(x.max(&[0], false).to_vec::<f32>().unwrap(), [0.0; 0]);
}

#[test]
fn wrong_axes_are_errors() {
    let x = Tensor::from_slice(&[1.0_f32; 6], [2, 3]);
    let error = x.sum(&[2], false).eval().unwrap_err();
    assert_eq!(
        error,
        Error::BadAxis {
            op: "sum",
            axis: 2,
            rank: 2
        }
    );
    assert!(matches!(
        x.max(&[-3], true).eval(),
        Err(Error::BadAxis { .. })
    ));
    assert!(matches!(
        x.mean(&[0, -2], true).eval(),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        x.var(&[isize::MIN], true, 0).eval(),
        Err(Error::BadAxis { .. })
    ));
    let scalar = Tensor::from_slice(&[1.0_f32], []);
    assert!(matches!(
        scalar.sum(&[0], false).eval(),
        Err(Error::BadAxis { .. })
    ));
    let failed = x.reshape([5]).sum(&[7], false);
    assert!(matches!(failed.eval(), Err(Error::ShapeMismatch { .. })));
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let data = floats(1_000_000);
    let x = Tensor::from_slice(&data, [1000, 1000]);
    let tall = x.reshape([250_000, 4]);
    let results = || -> Vec<Vec<u32>> {
        let mut results = vec![
            x.sum(&[], false),
            x.sum(&[0], false),
            x.sum(&[1], false),
            tall.sum(&[0], false),
            x.var(&[], false, 1),
            x.var(&[0], false, 1),
            x.prod(&[0], false),
        ];
        if !functions_vary() {
            results.push(x.logsumexp(&[], false));
        }
        judge_sums(&data, &results);
        results
            .iter()
            .map(|y| {
                y.to_vec::<f32>()
                    .unwrap()
                    .into_iter()
                    .map(f32::to_bits)
                    .collect()
            })
            .collect()
    };
    let many = results();
    let before = pool::threads();
    pool::set_threads(1);
    let one = results();
    pool::set_threads(before);
    assert_eq!(many, one);
}

/// Compares the first results of `the_number_of_threads_does_not_change_a_bit` with simple loops in `f64`.
fn judge_sums(data: &[f32], results: &[Tensor]) {
    let sum = |from: usize, step: usize, count: usize, f: &dyn Fn(f64) -> f64| -> f64 {
        let own = data[from..].iter().step_by(step).take(count);
        own.map(|&x| f(x.into())).sum()
    };
    let sums = |of: fn(usize) -> [usize; 3], results: usize| -> [Vec<f64>; 2] {
        let all = |f: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let each = (0..results).map(of);
            each.map(|[from, step, n]| sum(from, step, n, f)).collect()
        };
        [all(&|x| x), all(&f64::abs)]
    };
    let expected = [
        sums(|_| [0, 1, 1_000_000], 1),
        sums(|column| [column, 1000, 1000], 1000),
        sums(|row| [row * 1000, 1, 1000], 1000),
        sums(|column| [column, 4, 250_000], 4),
    ];
    for (result, [sums, sizes]) in results.iter().zip(&expected) {
        let y = result.to_vec::<f32>().unwrap();
        assert_eq!(y.len(), sums.len());
        for ((&y, sum), size) in y.iter().zip(sums).zip(sizes) {
            assert!(
                (f64::from(y) - sum).abs() <= bound::F32_SUM * size,
                "{y}, not {sum}"
            );
        }
    }
    let variance = |from, step, n: usize| {
        let mean = sum(from, step, n, &|x| x) / n as f64;
        sum(from, step, n, &|x| (x - mean).powi(2)) / (n as f64 - 1.0)
    };
    let whole = [variance(0, 1, 1_000_000)];
    let columns: Vec<f64> = (0..1000).map(|c| variance(c, 1000, 1000)).collect();
    close(
        &results[4].to_vec().unwrap(),
        &whole,
        bound::F32_REDUCTION,
        "variance",
    );
    close(
        &results[5].to_vec().unwrap(),
        &columns,
        bound::F32_REDUCTION,
        "variances",
    );
    if let Some(y) = results.get(7) {
        let all = [sum(0, 1, 1_000_000, &f64::exp).ln()];
        close(
            &y.to_vec().unwrap(),
            &all,
            bound::F32_REDUCTION,
            "logsumexp",
        );
    }
}

#[test]
fn rows_are_reduced_by_whole_simd_groups() {
    use bessemer_hal::noop;
    // Elements of a row and rows; the kernels, and the threads of their groups.
    type Case = (usize, usize, &'static [(&'static str, usize)]);
    let cases: [Case; 5] = [
        (12, 40, &[("reduce_thread", 0)]),
        (100, 40, &[("reduce_group", 256)]),
        (1000, 3, &[("reduce_group", 96)]),
        (3000, 100, &[("reduce_group", 384)]),
        (40_000, 2, &[("reduce_group", 512), ("reduce_merge", 64)]),
    ];
    for (len, rows, expected) in cases {
        let device = bessemer::Device::on(noop::device(bessemer_hal::Family::Apple7));
        let x = Tensor::zeros([rows, len], DType::F32)
            .to(&device)
            .contiguous();
        x.eval().unwrap();
        device.synchronize().unwrap();
        noop::clear(device.hal().unwrap());
        x.sum(&[1], false).eval().unwrap();
        device.synchronize().unwrap();
        let events = noop::record(device.hal().unwrap()).unwrap().events;
        let launches: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                noop::Event::Dispatch {
                    kernel,
                    threadgroup,
                    ..
                } => Some((kernel.trim_end_matches("_f32"), threadgroup.width)),
                _ => None,
            })
            .collect();
        assert_eq!(launches.len(), expected.len(), "{launches:?}");
        for ((kernel, threads), (name, width)) in launches.iter().zip(expected) {
            assert_eq!(kernel, name, "{len} x {rows}");
            // With one result per thread, any threadgroup size is right.
            assert!(*width == 0 || threads == width, "{len} x {rows}: {threads}");
        }
    }
}

#[test]
fn variance_with_a_large_mean_keeps_its_precision() {
    let data: Vec<f32> = (0..100_000).map(|i| 10_000.0 + (i % 2) as f32).collect();
    let x = Tensor::from_slice(&data, [100_000]);
    assert_eq!(x.var(&[], false, 0).item::<f32>(), Ok(0.25));
    assert_eq!(x.std(&[], false, 0).item::<f32>(), Ok(0.5));
    let columns = x.reshape([50_000, 2]).var(&[0], false, 0);
    assert_eq!(columns.to_vec::<f32>().unwrap(), [0.0; 2]);
    let one = Tensor::from_slice(&[5.0_f64], [1]);
    assert!(one.var(&[], false, 1).item::<f64>().unwrap().is_nan());
    let two = Tensor::from_slice(&[5.0_f64, 7.0], [2]);
    assert_eq!(two.var(&[], false, 1).item::<f64>(), Ok(2.0));
    assert_eq!(two.var(&[], false, 5).item::<f64>(), Ok(f64::INFINITY));
}

#[test]
fn logsumexp_handles_large_values_and_infinities() {
    let lse = |x: &[f32]| {
        Tensor::from_slice(x, [x.len()])
            .logsumexp(&[], false)
            .item::<f32>()
            .unwrap()
    };
    let inf = f32::INFINITY;
    assert_eq!(lse(&[1000.0, 1000.0]), 1000.0 + 2.0_f32.ln());
    assert_eq!(lse(&[-inf, -inf]), -inf);
    assert_eq!(lse(&[-inf, 2.0]), 2.0);
    assert_eq!(lse(&[-inf, inf]), inf);
    assert!(lse(&[f32::NAN, inf]).is_nan());
    let column =
        Tensor::from_slice(&[-inf, 1.0, inf, -inf, 1.0, 0.0], [2, 3]).logsumexp(&[0], false);
    let column = column.to_vec::<f32>().unwrap();
    assert_eq!([column[0], column[2]], [-inf, inf]);
    // Metal's logarithm has an error of a few ulps.
    let off = f64::from((column[1] - (1.0 + 2.0_f32.ln())).abs());
    assert!(off < bound::F32_FEW_STEPS, "{off}");
}

#[test]
fn norms_match_worked_values() {
    let x = Tensor::from_slice(&[3.0_f64, -4.0, 0.0, 1e-3], [2, 2]);
    let norm = |p| x.norm(&[1], false, p).to_vec::<f64>().unwrap();
    assert_eq!(norm(1.0), [7.0, 1e-3]);
    assert_eq!(norm(2.0), [5.0, 1e-3]);
    assert_eq!(norm(0.0), [2.0, 1.0]);
    assert_eq!(norm(f64::INFINITY), [4.0, 1e-3]);
    assert_eq!(norm(f64::NEG_INFINITY), [3.0, 0.0]);
    for scale in [1e300, 1e-300, 1e-160, 1.0] {
        let x = Tensor::from_slice(&[3.0 * scale, 4.0 * scale], [2, 1]);
        for y in [x.norm(&[], false, 2.0), x.norm(&[0], false, 2.0)] {
            let y = y.item::<f64>().unwrap();
            assert!((y / scale - 5.0).abs() < bound::F64_SCALED_NORM, "{y}");
        }
    }
    let x = Tensor::from_slice(&[3e38_f32, 0.0], [2]);
    assert_eq!(x.norm(&[], false, 2.0).item::<f32>(), Ok(3e38));
    let x = Tensor::from_slice(&[f64::INFINITY, 1.0], [2]);
    assert_eq!(x.norm(&[], false, 2.0).item::<f64>(), Ok(f64::INFINITY));
}

#[test]
fn zeros_of_either_sign_are_false() {
    let x = Tensor::from_slice(&[-0.0_f32, 0.0], [2]);
    assert_eq!(x.any(&[], false).item::<bool>(), Ok(false));
    let x = Tensor::from_slice(&[f32::NAN, -1.0], [2]);
    assert_eq!(x.all(&[], false).item::<bool>(), Ok(true));
    let x = Tensor::from_slice(&[-0.0_f32], [1]);
    assert!(x.sum(&[], false).item::<f32>().unwrap().is_sign_negative());
}

pub(crate) mod against_the_reference {
    use bessemer::{DType, Error, Tensor};
    use bessemer_testing::Array;
    use bessemer_testing::case::{Fill, Input, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::number::Value;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::reduce::{Reduce, reduce};
    use proptest::prelude::Strategy;

    fn run(f: Reduce, x: &Tensor, axes: &[isize], keepdims: bool) -> Tensor {
        match f {
            Reduce::Sum => x.sum(axes, keepdims),
            Reduce::Mean => x.mean(axes, keepdims),
            Reduce::Prod => x.prod(axes, keepdims),
            Reduce::Min => x.min(axes, keepdims),
            Reduce::Max => x.max(axes, keepdims),
            Reduce::Any => x.any(axes, keepdims),
            Reduce::All => x.all(axes, keepdims),
            Reduce::Var { ddof } => x.var(axes, keepdims, ddof as usize),
            Reduce::Std { ddof } => x.std(axes, keepdims, ddof as usize),
            Reduce::LogSumExp => x.logsumexp(axes, keepdims),
            Reduce::Norm { p } => x.norm(axes, keepdims, p),
        }
    }

    /// A tensor and some of its axes, in any order and counted from either end; an empty list means all.
    #[derive(Clone, Debug)]
    pub(crate) struct Case {
        pub(crate) x: Input,
        pub(crate) axes: Vec<isize>,
        pub(crate) keepdims: bool,
    }

    pub(crate) fn cases(
        dtypes: &[DType],
        fills: &[Fill],
        max_count: usize,
    ) -> impl Strategy<Value = Case> + use<> {
        input(dtypes, fills, shape(5, max_count)).prop_map(|x| {
            let mut rng = Rng::new(x.seed);
            let rank = x.shape.len();
            let mut axes: Vec<_> = rng.order(rank).iter().map(|&a| a as isize).collect();
            axes.truncate(rng.below(rank + 1));
            for a in &mut axes {
                if rng.one_in(2) {
                    *a -= rank as isize;
                }
            }
            let keepdims = rng.one_in(2);
            Case { x, axes, keepdims }
        })
    }

    /// Number of elements per result.
    fn terms(x: &Array, axes: &[isize]) -> usize {
        if axes.is_empty() {
            return x.count();
        }
        axes.iter().map(|&a| x.shape[x.axis(a)]).product()
    }

    /// Compares one reduction of one case.
    pub(crate) fn judge(f: Reduce, case: &Case) -> Result<(), String> {
        let x = case.x.array();
        let Case { axes, keepdims, .. } = case;
        let got = run(f, &case.x.tensor(), axes, *keepdims);
        let n = terms(&x, axes);
        if n == 0 && !f.has_empty() {
            return match got.to_vec::<f32>() {
                Err(Error::BadShape { .. } | Error::Invalid { .. }) => Ok(()),
                other => Err(format!("expected an error for no numbers, got {other:?}")),
            };
        }
        let expected = reduce(f, &x, axes, *keepdims);
        let of_sizes = |f: Reduce| reduce(f, &x.magnitudes(), axes, *keepdims);
        let size = match f {
            Reduce::Sum => of_sizes(f),
            // The result depends on whether the sum overflows.
            Reduce::Mean => of_sizes(Reduce::Sum).map(DType::F64, |v| {
                let sum = v.float();
                let within = x.dtype == DType::F64 || sum < f64::from(f32::MAX);
                Value::Float(if within {
                    sum / n as f64
                } else {
                    f64::INFINITY
                })
            }),
            // The sum of squares about a mean of 0.
            Reduce::Var { ddof } => {
                let n = n as f64;
                of_sizes(Reduce::Norm { p: 2.0 }).map(DType::F64, |v| {
                    Value::Float(v.float().powi(2) / (n - ddof).max(0.0))
                })
            }
            // Near 0 a square root amplifies an error of e to √e.
            Reduce::Std { .. } => return judge_std(f, n, &got, &expected, &x, case),
            Reduce::LogSumExp if n > 0 => of_sizes(Reduce::Norm { p: f64::INFINITY })
                .map(DType::F64, |v| {
                    Value::Float(v.float() + (n as f64).ln() + 1.0)
                }),
            _ => of_sizes(Reduce::Any),
        };
        let size = size.map(DType::F64, |v| v);
        agree(f.name(), n, &got, &expected, Some(&size))
    }

    fn judge_std(
        f: Reduce,
        n: usize,
        got: &Tensor,
        expected: &Array,
        x: &Array,
        case: &Case,
    ) -> Result<(), String> {
        let Reduce::Std { ddof } = f else {
            unreachable!("of a deviation")
        };
        // If the deviation is not small relative to the values, the square root is as accurate as the variance.
        let size = reduce(
            Reduce::Norm { p: 2.0 },
            &x.magnitudes(),
            &case.axes,
            case.keepdims,
        );
        let size = size.map(DType::F64, |v| {
            Value::Float(v.float() / (n as f64 - ddof).max(0.0).sqrt())
        });
        agree("deviation", n, got, expected, Some(&size))
    }

    fn every_type(f: Reduce, fills: &[Fill]) {
        for dtype in DType::ALL {
            let name = format!("{f:?} of {dtype}");
            check(&name, 40, cases(&[dtype], fills, 2000), |case| {
                judge(f, case)
            });
        }
    }

    #[test]
    fn sums_and_means_of_every_type_and_axes_match_the_reference() {
        every_type(Reduce::Sum, &Fill::IN_RANGE);
        every_type(Reduce::Mean, &Fill::IN_RANGE);
    }

    #[test]
    fn sums_and_means_of_special_values_match_the_reference() {
        every_type(Reduce::Sum, &Fill::ALL);
        every_type(Reduce::Mean, &Fill::ALL);
    }

    #[test]
    fn products_of_every_type_match_the_reference() {
        for dtype in DType::ALL {
            // Longer products of floats overflow.
            let name = format!("prod of {dtype}");
            check(&name, 40, cases(&[dtype], &Fill::IN_RANGE, 40), |case| {
                judge(Reduce::Prod, case)
            });
        }
    }

    #[test]
    fn min_and_max_of_every_type_are_exact_and_propagate_nan() {
        every_type(Reduce::Min, &Fill::ALL);
        every_type(Reduce::Max, &Fill::ALL);
    }

    #[test]
    fn any_and_all_of_every_type_match_the_reference() {
        every_type(Reduce::Any, &Fill::ALL);
        every_type(Reduce::All, &Fill::ALL);
    }

    #[test]
    fn long_sums_stay_accurate() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for shape in [&[100_003][..], &[7, 20_001], &[20_001, 7], &[3, 5001, 3]] {
                for axes in [vec![], vec![0], vec![-1]] {
                    let x = Input::new(dtype, shape, Fill::Positive, 5);
                    let case = Case {
                        x,
                        axes,
                        keepdims: false,
                    };
                    // Positive values: the bound is relative to the sum itself.
                    judge(Reduce::Mean, &case).unwrap_or_else(|e| panic!("{case:?}: {e}"));
                    if dtype != DType::F16 {
                        judge(Reduce::Sum, &case).unwrap_or_else(|e| panic!("{case:?}: {e}"));
                    }
                }
            }
        }
    }
}
