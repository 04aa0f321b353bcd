//! Sampling on the software Metal device, against a simple reference that sorts.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::Device;
use bessemer::decoder::{DeviceSampler, Sampling};
use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_testing::tolerance::bound;

const SIZES: [usize; 6] = [1, 2, 31, 1024, 49_152, 151_936];

fn device() -> Device {
    Device::software().unwrap()
}

fn sampler(sampling: Sampling, vocab: usize) -> DeviceSampler {
    DeviceSampler::new(&device(), sampling, vocab).unwrap()
}

fn with_temperature(temperature: f32) -> Sampling {
    Sampling {
        temperature,
        ..Sampling::default()
    }
}

/// Pseudo-random numbers from 0 to 1 with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// Logits as models produce them: most are low, a few are high. Some are equal, some are `-inf`.
    fn logits(&mut self, count: usize, spread: f64) -> Vec<f32> {
        let logit = |i: usize, n: &mut Self| {
            let bell: f64 = (0..4).map(|_| n.next() - 0.5).sum();
            let rare = if n.next() < 4.0 / count as f64 {
                6.0
            } else {
                0.0
            };
            match i % 97 {
                13 => f32::NEG_INFINITY,
                29 if count > 2 => f32::NAN,
                41 => 0.25,
                _ => (spread * (bell + rare * n.next())) as f32,
            }
        };
        (0..count).map(|i| logit(i, self)).collect()
    }
}

/// The index of the first maximum.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &l) in logits.iter().enumerate() {
        if l > best.1 {
            best = (i as u32, l);
        }
    }
    best.0
}

/// Samples on the CPU in `f64`: the token, and the smallest margin of any decision, as a fraction of the total
/// probability.
fn sample_on_cpu(s: &Sampling, logits: &[f32], seen: &[u32], random: f64) -> (u32, f64) {
    let mut logits = logits.to_vec();
    for &(token, added) in &s.logit_bias {
        if let Some(l) = logits.get_mut(token as usize) {
            *l += added;
        }
    }
    let window = &seen[seen.len().saturating_sub(s.penalty_window)..];
    let mut done = std::collections::HashSet::new();
    for &token in window {
        let count = window.iter().filter(|&&t| t == token).count();
        let plain =
            s.repetition_penalty == 1.0 && s.presence_penalty == 0.0 && s.frequency_penalty == 0.0;
        if plain || token as usize >= logits.len() || !done.insert(token) {
            continue;
        }
        let l = &mut logits[token as usize];
        *l = if *l > 0.0 {
            *l / s.repetition_penalty
        } else {
            *l * s.repetition_penalty
        };
        *l -= s.presence_penalty + s.frequency_penalty * count as f32;
    }
    let top = logits[argmax(&logits) as usize];
    if s.temperature == 0.0 || !top.is_finite() {
        return (argmax(&logits), 1.0);
    }
    let mut left: Vec<(u32, f64)> = (0_u32..)
        .zip(&logits)
        .filter(|(_, l)| !l.is_nan())
        .map(|(i, &l)| (i, f64::from(l)))
        .collect();
    left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if s.top_k > 0 {
        left.truncate(s.top_k);
    }
    let mut margin = f64::INFINITY;
    // Number of leading tokens that reach a probability; the sums without and with the last give the margin.
    let needed = |left: &[(u32, f64)], share: f64, margin: &mut f64| {
        let top = left.iter().map(|l| l.1).fold(f64::NEG_INFINITY, f64::max);
        let all: f64 = left.iter().map(|(_, l)| (l - top).exp()).sum();
        let mut sum = 0.0;
        for (i, (_, l)) in left.iter().enumerate() {
            *margin = margin.min((sum / all - share).abs());
            sum += (l - top).exp();
            *margin = margin.min((sum / all - share).abs());
            if sum >= share * all {
                return i + 1;
            }
        }
        left.len()
    };
    if s.typical < 1.0 {
        let top = left[0].1;
        let all: f64 = left.iter().map(|(_, l)| (l - top).exp()).sum();
        let seen = left.iter().filter(|l| l.1.is_finite());
        let mean: f64 = seen.map(|(_, l)| (l - top).exp() / all * (top - l)).sum();
        left.sort_by(|a, b| {
            let away = |l: f64| ((top - l) - mean).abs();
            away(a.1).total_cmp(&away(b.1))
        });
        let n = needed(&left, f64::from(s.typical), &mut margin);
        // Of two tokens at the same distance, either may come first.
        let away = |i: usize| {
            left.get(i)
                .map_or(f64::INFINITY, |l| ((top - l.1) - mean).abs())
        };
        if left.get(n).is_some_and(|l| l.1 != left[n - 1].1) {
            margin = margin.min(away(n) - away(n - 1));
        }
        left.truncate(n);
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    }
    if s.top_p < 1.0 {
        let n = needed(&left, f64::from(s.top_p), &mut margin);
        left.truncate(n);
    }
    let top = left[0].1;
    if s.min_p > 0.0 {
        let share = |l: f64| (l - top).exp();
        let near = left
            .iter()
            .map(|(_, l)| (share(*l) - f64::from(s.min_p)).abs());
        margin = near.fold(margin, f64::min);
        left.retain(|(_, l)| share(*l) >= f64::from(s.min_p));
    }
    for (_, l) in &mut left {
        *l = (*l - top) / f64::from(s.temperature);
    }
    let n = needed(&left, random + f64::EPSILON, &mut margin);
    (left[n - 1].0, margin)
}

fn kinds() -> Vec<Sampling> {
    let limited = |change: fn(&mut Sampling)| {
        let mut sampling = with_temperature(0.8);
        change(&mut sampling);
        sampling
    };
    vec![
        with_temperature(1.0),
        with_temperature(0.0),
        limited(|s| s.top_k = 40),
        limited(|s| s.top_k = 700),
        limited(|s| s.top_p = 0.9),
        limited(|s| s.min_p = 0.05),
        limited(|s| s.typical = 0.7),
        limited(|s| (s.top_k, s.top_p, s.min_p) = (50, 0.95, 0.02)),
        limited(|s| (s.top_k, s.typical, s.top_p, s.min_p) = (600, 0.95, 0.97, 0.001)),
    ]
}

#[test]
fn tokens_match_a_sorting_reference() {
    let (mut near, mut all) = (0, 0);
    for vocab in SIZES {
        for (kind, mut sampling) in kinds().into_iter().enumerate() {
            // Large vocabularies are slow, and their limits use the same code.
            if vocab > 100_000 && kind % 2 == 1 {
                continue;
            }
            sampling.seed = (vocab + kind) as u64;
            let mut device = sampler(sampling.clone(), vocab);
            let mut numbers = Random(sampling.seed);
            let mut draws = Random(sampling.seed);
            for round in 0..4 {
                // Flat distributions keep many tokens, steep ones few.
                let logits = numbers.logits(vocab, [0.3, 2.0, 6.0, 15.0][round]);
                let random = if sampling.temperature > 0.0 {
                    draws.next()
                } else {
                    0.0
                };
                let (token, margin) = sample_on_cpu(&sampling, &logits, &[], random);
                let chosen = device.next(&logits).unwrap();
                all += 1;
                if margin < bound::SAMPLING_MARGIN {
                    near += 1;
                } else {
                    assert_eq!(chosen, token, "{vocab} tokens, {sampling:?}, round {round}");
                }
            }
        }
    }
    assert!(near * 10 < all, "{near} of {all} are too near to tell");
}

#[test]
fn greedy_sampling_takes_the_first_maximum() {
    let nan = f32::NAN;
    let low = f32::NEG_INFINITY;
    let cases: [(&[f32], u32); 8] = [
        (&[1.0, 3.0, 3.0, nan], 1),
        (&[nan, nan], 0),
        (&[low, low, low], 0),
        (&[nan, low, -1e30], 2),
        (&[-0.0, 0.0], 0),
        (&[0.0, -0.0, nan], 0),
        (&[-5.0, f32::INFINITY, f32::INFINITY], 1),
        (&[-3.0], 0),
    ];
    for (logits, token) in cases {
        let chosen = sampler(with_temperature(0.0), logits.len())
            .next(logits)
            .unwrap();
        assert_eq!(chosen, token, "{logits:?}");
        // Without probabilities the result is the same.
        let max = logits[token as usize];
        if !max.is_finite() {
            let chosen = sampler(with_temperature(1.0), logits.len())
                .next(logits)
                .unwrap();
            assert_eq!(chosen, token, "{logits:?} with a temperature");
        }
    }
}

#[test]
fn ties_are_broken_by_token_id() {
    // More ties than can be compared pairwise, so that bins are refined down to single tokens.
    for vocab in [1024, 49_152] {
        let logits = vec![1.5; vocab];
        for top_k in [1, 7, 600] {
            let mut device = sampler(
                Sampling {
                    top_k,
                    ..with_temperature(1.0)
                },
                vocab,
            );
            for _ in 0..3 {
                let token = device.next(&logits).unwrap();
                assert!((token as usize) < top_k, "{token} of the first {top_k}");
            }
        }
        // Without limits the sampled token is u · vocab.
        let mut device = sampler(
            Sampling {
                seed: 5,
                ..with_temperature(1.0)
            },
            vocab,
        );
        let mut numbers = Random(5);
        for _ in 0..4 {
            let token = (numbers.next() * vocab as f64) as u32;
            assert_eq!(device.next(&logits).unwrap(), token);
        }
        let half = Sampling {
            top_p: 0.5,
            seed: 5,
            ..with_temperature(1.0)
        };
        let mut device = sampler(half, vocab);
        let mut numbers = Random(5);
        for _ in 0..4 {
            let token = (numbers.next() * (vocab / 2) as f64) as u32;
            assert_eq!(device.next(&logits).unwrap(), token);
        }
    }
}

#[test]
fn top_p_ends_with_the_token_that_reaches_it() {
    // Four equal tokens have a quarter each, and sums of quarters are exact.
    for (top_p, count) in [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4)] {
        let mut device = sampler(
            Sampling {
                top_p,
                ..with_temperature(1.0)
            },
            4,
        );
        let mut drawn: Vec<_> = (0..60).map(|_| device.next(&[0.5; 4]).unwrap()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, (0..count).collect::<Vec<u32>>(), "{top_p}");
    }
}

#[test]
fn samples_follow_the_distribution() {
    let p = [0.4_f64, 0.3, 0.15, 0.1, 0.05];
    let logits = p.map(|p| p.ln() as f32);
    let count = 4000;
    let shares = |sampling: Sampling| {
        let mut device = sampler(sampling, p.len());
        let mut shares = [0.0; 5];
        for _ in 0..count {
            shares[device.next(&logits).unwrap() as usize] += 1.0 / count as f64;
        }
        shares
    };
    let expect = |shares: [f64; 5], weights: [f64; 5]| {
        let all: f64 = weights.iter().sum();
        for (share, w) in shares.into_iter().zip(weights) {
            let p = w / all;
            // Five standard deviations: exceeded by one run in two million, and the seed is fixed.
            let bound = 5.0 * (p * (1.0 - p) / count as f64).sqrt();
            assert!((share - p).abs() <= bound, "{share} is not {p}");
        }
    };
    expect(shares(with_temperature(1.0)), p);
    expect(shares(with_temperature(0.5)), p.map(|p| p * p));
    let top_p = Sampling {
        top_p: 0.71,
        ..with_temperature(1.0)
    };
    expect(shares(top_p), [0.4, 0.3, 0.15, 0.0, 0.0]);
    let min_p = Sampling {
        min_p: 0.3,
        ..with_temperature(1.0)
    };
    expect(shares(min_p), [0.4, 0.3, 0.15, 0.0, 0.0]);
    // The expected information is 1.39 nats; 0.3 (1.20) is nearest to it, then 0.4 (0.92).
    let typical = Sampling {
        typical: 0.5,
        ..with_temperature(1.0)
    };
    expect(shares(typical), [0.4, 0.3, 0.0, 0.0, 0.0]);
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let logits = Random(3).logits(1024, 2.0);
    let draw = |seed| -> Vec<u32> {
        let mut device = sampler(
            Sampling {
                seed,
                ..with_temperature(1.0)
            },
            logits.len(),
        );
        (0..20).map(|_| device.next(&logits).unwrap()).collect()
    };
    let first = draw(1);
    assert_eq!(first, draw(1));
    assert_ne!(first, draw(2));
    // Resuming after ten samples.
    let mut device = sampler(
        Sampling {
            seed: 1,
            ..with_temperature(1.0)
        },
        logits.len(),
    );
    device.resume(&[], 10).unwrap();
    let rest: Vec<u32> = (0..10).map(|_| device.next(&logits).unwrap()).collect();
    assert_eq!(rest, first[10..]);
}

#[test]
fn penalties_apply_to_tokens_in_the_window() {
    let vocab = 31;
    let mut numbers = Random(11);
    for (i, change) in [
        |s: &mut Sampling| s.repetition_penalty = 1.7,
        |s: &mut Sampling| (s.presence_penalty, s.frequency_penalty) = (0.4, 0.3),
        |s: &mut Sampling| (s.frequency_penalty, s.penalty_window) = (0.5, 5),
        |s: &mut Sampling| (s.repetition_penalty, s.penalty_window) = (1.3, 1),
        |s: &mut Sampling| (s.presence_penalty, s.penalty_window) = (9.0, 0),
        |s: &mut Sampling| s.logit_bias = vec![(3, 2.5), (7, -1.0), (3, 0.5), (99, 9.0)],
    ]
    .into_iter()
    .enumerate()
    {
        let mut sampling = with_temperature([0.0, 0.7][i % 2]);
        change(&mut sampling);
        // A prompt with a token outside of the vocabulary.
        let mut seen = vec![4, 4, 9, 30, 400, 4, 2];
        let mut device = sampler(sampling.clone(), vocab);
        device.reset(&seen).unwrap();
        let mut draws = Random(0);
        for step in 0..24 {
            let logits: Vec<f32> = (0..vocab)
                .map(|_| (numbers.next() * 3.0 - 1.0) as f32)
                .collect();
            let random = if i % 2 == 1 { draws.next() } else { 0.0 };
            let (token, _) = sample_on_cpu(&sampling, &logits, &seen, random);
            assert_eq!(
                device.next(&logits).unwrap(),
                token,
                "{sampling:?}, step {step}"
            );
            seen.push(token);
        }
    }
}

#[test]
fn rejects_invalid_sampling_parameters() {
    for bad in [
        with_temperature(-1.0),
        with_temperature(f32::NAN),
        Sampling {
            top_p: 1.5,
            ..with_temperature(1.0)
        },
        Sampling {
            min_p: -0.1,
            ..with_temperature(1.0)
        },
        Sampling {
            typical: f32::NAN,
            ..with_temperature(1.0)
        },
        Sampling {
            repetition_penalty: 0.0,
            ..with_temperature(1.0)
        },
        Sampling {
            presence_penalty: f32::INFINITY,
            ..with_temperature(1.0)
        },
    ] {
        assert!(
            DeviceSampler::new(&device(), bad.clone(), 5).is_err(),
            "{bad:?}"
        );
    }
    assert!(DeviceSampler::new(&device(), with_temperature(1.0), 0).is_err());
    assert!(DeviceSampler::new(&device(), with_temperature(1.0), 1 << 21).is_err());
    assert!(DeviceSampler::new(&Device::cpu(), with_temperature(1.0), 5).is_err());
    assert!(sampler(with_temperature(1.0), 5).next(&[0.0; 4]).is_err());
}

#[test]
fn the_checking_device_reports_nothing() {
    let options = SoftOptions {
        mode: Mode::Check,
        ..SoftOptions::from_env().unwrap()
    };
    let device = Device::on(soft::device(options).unwrap());
    let vocab = 1500;
    let mut numbers = Random(2);
    let all = Sampling {
        logit_bias: vec![(3, 2.5), (7, -1.0)],
        repetition_penalty: 1.2,
        penalty_window: 4,
        top_k: 700,
        typical: 0.98,
        top_p: 0.98,
        min_p: 0.001,
        ..with_temperature(0.9)
    };
    for sampling in [with_temperature(0.0), with_temperature(1.0), all] {
        let mut sampler = DeviceSampler::new(&device, sampling, vocab).unwrap();
        sampler.reset(&[1, 2, 1]).unwrap();
        for spread in [0.0, 3.0] {
            let logits = numbers.logits(vocab, spread);
            assert!((sampler.next(&logits).unwrap() as usize) < vocab);
        }
    }
}
