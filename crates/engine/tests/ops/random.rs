//! Random values: exact results and statistical properties.

use bessemer::random::{self, Key};
use bessemer::{DType, Element, Error, Tensor, pool};
use bessemer_testing::tolerance::bound;

const KEY: Key = Key::new(0x0123_4567_89ab_cdef);

fn values<T: Element>(tensor: &Tensor) -> Vec<T> {
    tensor.to_vec().unwrap()
}

/// The values of any float type as `f64`.
fn floats(tensor: &Tensor) -> Vec<f64> {
    values(&tensor.cast(DType::F64))
}

/// Mean, variance, third and fourth central moment.
fn moments(x: &[f64]) -> [f64; 4] {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let central = |p| x.iter().map(|x| (x - mean).powi(p)).sum::<f64>() / n;
    [mean, central(2), central(3), central(4)]
}

/// Pearson's chi-squared statistic of counts with equal expectations, in standard deviations from its mean.
fn chi_square(counts: &[usize]) -> f64 {
    let total: usize = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    let sum: f64 = counts
        .iter()
        .map(|&c| (c as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = (counts.len() - 1) as f64;
    (sum - freedom) / (2.0 * freedom).sqrt()
}

const N: usize = 1 << 18;

#[test]
fn the_generator_matches_the_published_test_vectors() {
    let bits = random::bits(&Key::new(0), [2], DType::U32);
    assert_eq!(values::<u32>(&bits), [0x6b20_0159, 0x99ba_4efe]);
    let bits = random::bits(&Key::new(0), [1], DType::U64);
    assert_eq!(values::<u64>(&bits), [0x99ba_4efe_6b20_0159]);
    let bits = random::bits(&Key::new(0), [2], DType::U16);
    assert_eq!(values::<u16>(&bits), [0x6b20, 0x99ba]);
    let bits = random::bits(&Key::new(0), [2], DType::U8);
    assert_eq!(values::<u8>(&bits), [0x6b, 0x99]);
}

#[test]
fn elements_do_not_depend_on_shape_or_length() {
    let make: [&dyn Fn(usize) -> Tensor; 5] = [
        &|n| random::bits(&KEY, [n], DType::U32),
        &|n| random::uniform(&KEY, [n], -2.0, 3.0, DType::F64),
        &|n| random::normal(&KEY, [n], DType::F32),
        &|n| random::normal(&KEY, [n], DType::F64),
        &|n| random::randint(&KEY, [n], -5, 17, DType::I16),
    ];
    for make in make {
        let long = make(50_001).cast(DType::F64);
        for n in [0, 1, 2, 127, 128, 129, 257, 16_384, 16_385, 33_333] {
            let short = values::<f64>(&make(n).cast(DType::F64));
            assert_eq!(short, values::<f64>(&long.narrow(0, 0, n)));
        }
    }
    let square = random::normal(&KEY, [50, 20], DType::F32);
    let line = random::normal(&KEY, [1000], DType::F32);
    assert_eq!(values::<f32>(&square), values::<f32>(&line));
}

#[test]
fn elements_do_not_depend_on_the_number_of_threads() {
    let make = || values::<f32>(&random::normal(&KEY, [100_001], DType::F32));
    let before = pool::threads();
    let many = make();
    pool::set_threads(1);
    let one = make();
    pool::set_threads(before);
    assert_eq!(many, one);
}

#[test]
fn streams_of_different_keys_are_uncorrelated() {
    let [a, b] = KEY.split_into();
    let keys = [KEY, a, b, KEY.fold_in(0), KEY.fold_in(1), Key::new(1)];
    let streams: Vec<_> = keys
        .iter()
        .map(|k| floats(&random::normal(k, [N], DType::F32)))
        .collect();
    for (i, x) in streams.iter().enumerate() {
        for y in &streams[..i] {
            let product = x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>() / N as f64;
            // Five standard deviations of the mean of products of independent numbers.
            assert!(product.abs() < 5.0 / (N as f64).sqrt(), "{product}");
        }
    }
}

#[test]
fn bits_are_uniform() {
    for dtype in [DType::U8, DType::U16, DType::U32, DType::U64] {
        let bits = values::<u64>(&random::bits(&KEY, [N], dtype).cast(DType::U64));
        for byte in 0..dtype.size() {
            let mut counts = [0; 256];
            for b in &bits {
                counts[usize::from(b.to_le_bytes()[byte])] += 1;
            }
            assert!(chi_square(&counts).abs() < 5.0, "{dtype} byte {byte}");
        }
        // Neighbours too.
        let mut counts = [0; 256];
        let high = |b: u64| (b >> (dtype.size() * 8 - 4)) as usize;
        for pair in bits.windows(2) {
            counts[high(pair[0]) * 16 + high(pair[1])] += 1;
        }
        assert!(chi_square(&counts).abs() < 5.0, "{dtype} pairs");
    }
}

#[test]
fn uniform_values_are_the_upper_bits() {
    let bits = values::<u32>(&random::bits(&KEY, [1000], DType::U32));
    let unit = values::<f32>(&random::uniform(&KEY, [1000], 0.0, 1.0, DType::F32));
    for (b, u) in bits.iter().zip(&unit) {
        assert_eq!(*u, (b >> 8) as f32 / 16_777_216.0);
    }
    let bits = values::<u64>(&random::bits(&KEY, [1000], DType::U64));
    let unit = values::<f64>(&random::uniform(&KEY, [1000], 0.0, 1.0, DType::F64));
    for (b, u) in bits.iter().zip(&unit) {
        assert_eq!(*u, (b >> 11) as f64 / 9_007_199_254_740_992.0);
    }
}

#[test]
fn uniform_values_fill_their_range() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = floats(&random::uniform(&KEY, [N], -1.0, 3.0, dtype));
        assert!(x.iter().all(|x| (-1.0..3.0).contains(x)), "{dtype}");
        let [mean, variance, skew, _] = moments(&x);
        // bf16 has 256 values in the range: the mean is half a step below the middle.
        assert!((mean - 1.0).abs() < 0.02, "{dtype} {mean}");
        assert!((variance - 4.0 / 3.0).abs() < 0.02, "{dtype} {variance}");
        assert!(skew.abs() < 0.03, "{dtype} {skew}");
        let mut counts = [0; 64];
        for x in &x {
            counts[((x + 1.0) * 16.0) as usize] += 1;
        }
        // Rounding moves a few values of half-precision types to the next step.
        if dtype.size() > 2 {
            assert!(chi_square(&counts).abs() < 5.0, "{dtype}");
        }
    }
    // Two neighbouring floats: everything would round up to the excluded one.
    for (dtype, next) in [
        (DType::F16, 1.0 + 1.0 / 1024.0),
        (DType::BF16, 1.0 + 1.0 / 128.0),
        (DType::F32, 1.0 + f64::from(f32::EPSILON)),
        (DType::F64, 1.0 + f64::EPSILON),
    ] {
        let x = floats(&random::uniform(&KEY, [1000], 1.0, next, dtype));
        assert!(x.iter().all(|&x| x == 1.0), "{dtype}");
        let x = floats(&random::uniform(&KEY, [10], next, next, dtype));
        assert!(x.iter().all(|&x| x == next), "{dtype}");
        let x = floats(&random::uniform(&KEY, [1000], -next, -1.0, dtype));
        assert!(x.iter().all(|&x| x == -next), "{dtype}");
        let x = floats(&random::uniform(&KEY, [1000], -1.0, 0.0, dtype));
        assert!(x.iter().all(|&x| (-1.0..0.0).contains(&x)), "{dtype}");
    }
}

#[test]
fn normal_values_have_normal_moments() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = floats(&random::normal(&KEY, [N], dtype));
        let n = N as f64;
        let [mean, variance, third, fourth] = moments(&x);
        // Five standard deviations of each, and the rounding of half-precision types.
        let slack = if dtype.size() == 2 {
            bound::HALF_MOMENT
        } else {
            0.0
        };
        assert!(mean.abs() < 5.0 / n.sqrt() + slack, "{dtype} {mean}");
        assert!((variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt() + slack);
        assert!(third.abs() < 5.0 * (15.0 / n).sqrt() + slack, "{third}");
        assert!((fourth - 3.0).abs() < 5.0 * (96.0 / n).sqrt() + slack);
        // Fractions within 1, 2 and 3 standard deviations.
        for (reach, share) in [(1.0, 0.682_69), (2.0, 0.954_50), (3.0, 0.997_30)] {
            let inside = x.iter().filter(|x| x.abs() < reach).count() as f64 / n;
            assert!(
                (inside - share).abs() < bound::NORMAL_SHARE,
                "{dtype} {reach} {inside}"
            );
        }
        // Neighbours, which come from the same block, are independent; so are their magnitudes.
        let product = |f: fn(f64) -> f64| {
            let sum: f64 = x.chunks_exact(2).map(|p| f(p[0]) * f(p[1])).sum();
            sum / (n / 2.0)
        };
        let bound = 5.0 / (n / 2.0).sqrt();
        assert!(product(|x| x).abs() < bound + slack);
        assert!(product(|x| x * x - 1.0).abs() < 2.0 * bound + slack);
    }
    let single = values::<f32>(&random::normal(&KEY, [1000], DType::F32));
    let half = random::normal(&KEY, [1000], DType::F16);
    let rounded = Tensor::from_vec(single, [1000]).cast(DType::F16);
    assert_eq!(floats(&half), floats(&rounded));
}

#[test]
fn randint_is_the_upper_half_of_the_product() {
    let bits = values::<u64>(&random::bits(&KEY, [1000], DType::U64));
    let product = |b: u64, range: u128| (u128::from(b) * range) >> 64;
    let check = |low: i128, high: i128, dtype: DType| {
        let x = random::randint(&KEY, [1000], scalar(low), scalar(high), dtype);
        let x: Vec<i128> = match dtype {
            DType::U64 => values::<u64>(&x).iter().map(|&x| x.into()).collect(),
            _ => {
                let wide = values::<i64>(&x.cast(DType::I64));
                wide.iter().map(|&x| x.into()).collect()
            }
        };
        for (&b, &x) in bits.iter().zip(&x) {
            let offset = product(b, (high - low) as u128) as i128;
            assert_eq!(x, low + offset, "{low} to {high} in {dtype}");
        }
    };
    let end = |bits: u32| 1_i128 << bits;
    check(0, 6, DType::U8);
    check(-128, 128, DType::I8);
    check(0, 65_536, DType::U16);
    check(-7, 1000, DType::I16);
    check(0, end(32), DType::U32);
    check(-end(31), end(31), DType::I32);
    check(5, 6, DType::I64);
    check(-3, end(33), DType::I64);
    check(-end(63), end(63), DType::I64);
    check(1, end(64), DType::U64);
    check(0, end(64), DType::U64);
    let dice = values::<u8>(&random::randint(&KEY, [N], 1, 7, DType::U8));
    let mut counts = [0; 6];
    dice.iter().for_each(|&d| counts[usize::from(d) - 1] += 1);
    assert!(chi_square(&counts).abs() < 5.0);
}

fn scalar(value: i128) -> bessemer::Scalar {
    bessemer::Scalar::Int(value)
}

#[test]
fn bernoulli_has_the_requested_probability() {
    for p in [0.0, 0.01, 0.5, 0.9, 1.0] {
        let x = values::<bool>(&random::bernoulli(&KEY, p, [N]));
        let share = x.iter().filter(|&&x| x).count() as f64 / N as f64;
        let deviation = (p * (1.0 - p) / N as f64).sqrt();
        assert!((share - p).abs() <= 5.0 * deviation, "{p} {share}");
    }
}

#[test]
fn rejects_invalid_arguments() {
    let dtype = |t: Tensor| matches!(t.check(), Err(Error::BadDType { .. }));
    assert!(dtype(random::bits(&KEY, [1], DType::I32)));
    assert!(dtype(random::uniform(&KEY, [1], 0.0, 1.0, DType::I32)));
    assert!(dtype(random::normal(&KEY, [1], DType::Bool)));
    assert!(dtype(random::randint(&KEY, [1], 0, 1, DType::F32)));
    assert!(dtype(random::randint(&KEY, [1], 0, 1, DType::Bool)));
    let invalid = |t: Tensor| matches!(t.check(), Err(Error::Invalid { .. }));
    for (low, high) in [
        (1.0, 0.0),
        (f64::NAN, 1.0),
        (0.0, f64::INFINITY),
        (-3e38, 3e38),
        (0.0, 1e300),
    ] {
        assert!(invalid(random::uniform(&KEY, [1], low, high, DType::F32)));
    }
    assert!(invalid(random::randint(&KEY, [1], 5, 5, DType::I32)));
    assert!(invalid(random::randint(&KEY, [1], 0, 257, DType::U8)));
    assert!(invalid(random::randint(&KEY, [1], -1, 5, DType::U8)));
    assert!(invalid(random::randint(&KEY, [1], 0.0, 5.0, DType::U8)));
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(invalid(random::bernoulli(&KEY, p, [1])));
    }
    let huge = random::normal(&KEY, [usize::MAX, 2], DType::F32);
    assert!(matches!(huge.check(), Err(Error::SizeOverflow { .. })));
    let empty = random::normal(&KEY, [0, 5], DType::F32);
    assert!(values::<f32>(&empty).is_empty());
}

mod against_the_reference {
    use bessemer::Scalar;
    use bessemer::random::{self, Key};
    use bessemer::{DType, Tensor};
    use bessemer_testing::Array;
    use bessemer_testing::case::{check, shape};
    use bessemer_testing::layout::array;
    use bessemer_testing::number::range;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::random as reference;
    use proptest::prelude::any;

    const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

    /// Compares bits, including the signs of zeros.
    fn identical(got: &Tensor, expected: &Array) -> Result<(), String> {
        let got = array(got)?;
        if (got.dtype, &got.shape) != (expected.dtype, &expected.shape) {
            return Err(format!("{} {:?}", got.dtype, got.shape));
        }
        for (i, (g, e)) in got.data.iter().zip(&expected.data).enumerate() {
            if g != e || g.float().to_bits() != e.float().to_bits() {
                return Err(format!("element {i}: {g:?}, expected {e:?}"));
            }
        }
        Ok(())
    }

    /// A key and the reference's, derived in the same random ways.
    fn keys(rng: &mut Rng) -> (Key, reference::Key) {
        let seed = rng.bits() >> rng.below(64);
        let (mut a, mut b) = (Key::new(seed), reference::Key::new(seed));
        for _ in 0..rng.below(4) {
            let number = rng.bits() >> rng.below(64);
            if rng.one_in(2) {
                (a, b) = (a.fold_in(number), b.fold_in(number));
            } else {
                let i = number % 5;
                let key = a.split(5).nth(i as usize).expect("one of five");
                (a, b) = (key, b.split(i));
            }
        }
        (a, b)
    }

    fn on_random_keys(
        name: &str,
        test: impl Fn(&Key, reference::Key, &[usize], &mut Rng) -> Result<(), String>,
    ) {
        check(name, 60, (any::<u64>(), shape(3, 1200)), |(seed, shape)| {
            let mut rng = Rng::new(*seed);
            let (key, plain) = keys(&mut rng);
            test(&key, plain, shape, &mut rng)
        });
    }

    #[test]
    fn bits_match_the_reference() {
        on_random_keys("random bits", |key, plain, shape, _| {
            for dtype in [DType::U8, DType::U16, DType::U32, DType::U64] {
                let expected = reference::bits(plain, shape, dtype);
                identical(&random::bits(key, shape, dtype), &expected)?;
            }
            Ok(())
        });
    }

    #[test]
    fn uniform_matches_the_reference() {
        on_random_keys("random uniform", |key, plain, shape, rng| {
            for dtype in FLOATS {
                let scale = rng.pick(&[1.0, 1.0, 1e-3, 100.0]);
                let any = scale * rng.normal();
                let low = rng.pick(&[0.0, -1.0, any]);
                let high = low + rng.pick(&[1.0, scale, 0.0]);
                let expected = reference::uniform(plain, shape, low, high, dtype);
                identical(&random::uniform(key, shape, low, high, dtype), &expected)
                    .map_err(|e| format!("{dtype} from {low} to {high}: {e}"))?;
            }
            Ok(())
        });
    }

    #[test]
    fn normal_matches_the_reference() {
        on_random_keys("random normal", |key, plain, shape, _| {
            for dtype in FLOATS {
                let expected = reference::normal(plain, shape, dtype);
                identical(&random::normal(key, shape, dtype), &expected)
                    .map_err(|e| format!("{dtype}: {e}"))?;
            }
            Ok(())
        });
    }

    #[test]
    fn randint_matches_the_reference() {
        on_random_keys("random integers", |key, plain, shape, rng| {
            for dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
                let (least, most) = range(dtype);
                let mut any = || {
                    let x = i128::from(rng.bits() >> rng.below(64));
                    let wide = least + x % (most - least + 1);
                    rng.pick(&[least, most, 0, wide, wide])
                };
                let (a, b) = (any(), any());
                let (low, high) = (a.min(b), a.max(b) + 1);
                let expected = reference::randint(plain, shape, low, high, dtype);
                let (from, to) = (Scalar::Int(low), Scalar::Int(high));
                identical(&random::randint(key, shape, from, to, dtype), &expected)
                    .map_err(|e| format!("{dtype} from {low} to {high}: {e}"))?;
            }
            Ok(())
        });
    }

    #[test]
    fn bernoulli_matches_the_reference() {
        on_random_keys("random truth", |key, plain, shape, rng| {
            let any = rng.unit();
            let p = rng.pick(&[0.0, 1.0, 0.5, any, 1e-9]);
            let expected = reference::bernoulli(plain, p, shape);
            identical(&random::bernoulli(key, p, shape), &expected)
        });
    }

    #[test]
    fn long_streams_match_the_reference() {
        let mut rng = Rng::new(4);
        let (key, plain) = keys(&mut rng);
        // Several tasks, and a partial last one.
        let n = 40_001;
        for dtype in FLOATS {
            let expected = reference::normal(plain, &[n], dtype);
            identical(&random::normal(&key, [n], dtype), &expected).expect("normal");
        }
        let expected = reference::bits(plain, &[n], DType::U16);
        identical(&random::bits(&key, [n], DType::U16), &expected).expect("bits");
    }
}
