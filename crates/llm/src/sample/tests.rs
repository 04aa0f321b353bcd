use super::*;

fn draw(sampling: Sampling, logits: &[f32], count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(sampling).expect("valid");
    let next = |_| sampler.next(&mut logits.to_vec(), &[]).expect("logits");
    (0..count).map(next).collect()
}

fn at(temperature: f32) -> Sampling {
    Sampling {
        temperature,
        ..Sampling::default()
    }
}

#[test]
fn temperature_zero_takes_the_first_maximum() {
    assert_eq!(draw(at(0.0), &[1.0, 3.0, 3.0, f32::NAN], 2), [1, 1]);
}

#[test]
fn draws_follow_the_probabilities() {
    let logits = [0.5_f32.ln(), 0.3_f32.ln(), 0.2_f32.ln()];
    let drawn = draw(at(1.0), &logits, 20_000);
    for (token, p) in [(0, 0.5), (1, 0.3), (2, 0.2)] {
        let share = drawn.iter().filter(|&&t| t == token).count() as f64 / 20_000.0;
        assert!((share - p).abs() < 0.015, "{token}: {share}");
    }
    // A lower temperature favours the first even more: 0.25 / 0.38.
    let drawn = draw(at(0.5), &logits, 20_000);
    let share = drawn.iter().filter(|&&t| t == 0).count() as f64 / 20_000.0;
    assert!((share - 0.25 / 0.38).abs() < 0.015, "{share}");
}

#[test]
fn the_same_seed_draws_the_same() {
    let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32 * 0.3).collect();
    let with = |seed| draw(Sampling { seed, ..at(1.0) }, &logits, 50);
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
    // Pinned values: the same on every machine.
    assert_eq!(draw(at(1.0), &[0.0; 1000], 3), with_zero_seed());
}

fn with_zero_seed() -> [u32; 3] {
    // 1000 times the first three outputs of SplitMix64 from seed 0, as fractions.
    [
        0xE220_A839_7B1D_CDAF_u64,
        0x6E78_9E6A_A1B9_65F4,
        0x06C4_5D18_8009_454F,
    ]
    .map(|z| ((z >> 40) as f32 / (1_u64 << 24) as f32 * 1000.0) as u32)
}

#[test]
fn limits_keep_the_expected_tokens() {
    let p = [0.4_f32, 0.3, 0.15, 0.1, 0.05];
    let logits = p.map(f32::ln);
    let kinds = |sampling: Sampling| {
        let mut kinds = draw(sampling, &logits, 2000);
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    assert_eq!(
        kinds(Sampling {
            top_k: 2,
            ..at(1.0)
        }),
        [0, 1]
    );
    assert_eq!(
        kinds(Sampling {
            top_k: 1,
            ..at(5.0)
        }),
        [0]
    );
    for top_k in [5, 6] {
        assert_eq!(kinds(Sampling { top_k, ..at(1.0) }), [0, 1, 2, 3, 4]);
    }
    assert_eq!(
        kinds(Sampling {
            top_p: 0.69,
            ..at(1.0)
        }),
        [0, 1]
    );
    assert_eq!(
        kinds(Sampling {
            top_p: 0.71,
            ..at(1.0)
        }),
        [0, 1, 2]
    );
    assert_eq!(
        kinds(Sampling {
            top_p: 0.0,
            ..at(1.0)
        }),
        [0]
    );
    assert_eq!(
        kinds(Sampling {
            min_p: 0.3,
            ..at(1.0)
        }),
        [0, 1, 2]
    );
    // The entropy is 1.39 nats; 0.3 (1.20) is nearest to it, then 0.15 (1.90), then 0.4 (0.92).
    assert_eq!(
        kinds(Sampling {
            typical: 0.25,
            ..at(1.0)
        }),
        [1]
    );
    assert_eq!(
        kinds(Sampling {
            typical: 0.5,
            ..at(1.0)
        }),
        [0, 1]
    );
    assert_eq!(kinds(at(1.0)), [0, 1, 2, 3, 4]);
}

#[test]
fn top_p_ends_with_the_token_that_reaches_it() {
    // Four equal tokens have a quarter each, and sums of quarters are exact.
    let kinds = |top_p: f32| {
        let mut kinds = draw(Sampling { top_p, ..at(1.0) }, &[0.25; 4], 400);
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds(0.25), [0]);
    assert_eq!(kinds(0.26), [0, 1]);
    assert_eq!(kinds(0.5), [0, 1]);
    assert_eq!(kinds(0.75), [0, 1, 2]);
    assert_eq!(kinds(0.76), [0, 1, 2, 3]);
    // The remaining tokens keep their relative probabilities: of 0.4, 0.3 and 0.15 the last one has 3 of 17.
    let logits = [0.4_f32, 0.3, 0.15, 0.1, 0.05].map(f32::ln);
    let top_p = Sampling {
        top_p: 0.71,
        ..at(1.0)
    };
    let drawn = draw(top_p, &logits, 20_000);
    let last = drawn.iter().filter(|&&t| t == 2).count() as f64 / 20_000.0;
    assert!((last - 3.0 / 17.0).abs() < 0.015, "{last}");
}

#[test]
fn a_limit_that_is_not_set_keeps_all_tokens() {
    // At this temperature both are drawn, and the first one's probability rounds to 1.
    let kinds = |change: fn(&mut Sampling)| {
        let mut sampling = at(100.0);
        change(&mut sampling);
        let mut kinds = draw(sampling, &[0.0, -40.0], 100);
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds(|_| {}), [0, 1]);
    assert_eq!(kinds(|s| s.min_p = 1e-30), [0, 1]);
    assert_eq!(kinds(|s| s.min_p = 1e-10), [0]);
    assert_eq!(kinds(|s| s.top_p = 0.999), [0]);
    assert_eq!(kinds(|s| s.typical = 0.999), [0]);
}

#[test]
fn tokens_of_probability_zero_do_not_affect_typical_p() {
    // The last weight underflows. Of the others, 0.3 is nearest to the entropy.
    let logits = [0.4_f32.ln(), 0.3_f32.ln(), 0.3_f32.ln(), -200.0];
    let typical = Sampling {
        typical: 0.25,
        ..at(1.0)
    };
    assert_eq!(draw(typical, &logits, 20), [1; 20]);
}

#[test]
fn penalties_count_tokens_in_the_window() {
    let next = |sampling: Sampling, seen: &[u32]| {
        let mut logits = vec![2.0, 1.9, -1.0, -1.1];
        Sampler::new(sampling)
            .expect("valid")
            .next(&mut logits, seen)
            .expect("logits");
        logits
    };
    let repetition = Sampling {
        repetition_penalty: 2.0,
        ..Sampling::default()
    };
    assert_eq!(next(repetition, &[0, 0, 2, 9]), [1.0, 1.9, -2.0, -1.1]);
    let presence = Sampling {
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        ..Sampling::default()
    };
    assert_eq!(next(presence.clone(), &[0, 0, 0]), [0.75, 1.9, -1.0, -1.1]);
    let short = Sampling {
        penalty_window: 1,
        ..presence
    };
    assert_eq!(next(short, &[0, 0, 1]), [2.0, 1.15, -1.0, -1.1]);
}

#[test]
fn logit_bias_decides() {
    let sampling = Sampling {
        logit_bias: [(2, 5.0), (7, 1.0)].into(),
        ..Sampling::default()
    };
    assert_eq!(draw(sampling, &[1.0, 2.0, 0.0], 1), [2]);
}

#[test]
fn invalid_parameters_are_rejected() {
    for bad in [
        at(-1.0),
        at(f32::NAN),
        Sampling {
            top_p: 1.5,
            ..at(1.0)
        },
        Sampling {
            min_p: -0.1,
            ..at(1.0)
        },
        Sampling {
            typical: f32::NAN,
            ..at(1.0)
        },
        Sampling {
            repetition_penalty: 0.0,
            ..at(1.0)
        },
        Sampling {
            presence_penalty: f32::INFINITY,
            ..at(1.0)
        },
    ] {
        assert!(Sampler::new(bad.clone()).is_err(), "{bad:?}");
    }
}

#[test]
fn stop_strings_are_found_across_pieces_and_never_shown() {
    let run = |stops: &[&str], pieces: &[&str]| {
        let mut stops = Stops::new(stops.iter().map(|s| (*s).to_owned()));
        let mut text = String::new();
        for piece in pieces {
            let (shown, ended) = stops.push(piece);
            text.push_str(&shown);
            if ended {
                return (text, true);
            }
        }
        text.push_str(&stops.finish());
        (text, false)
    };
    assert_eq!(run(&["END"], &["a E", "N", "D b"]), ("a ".to_owned(), true));
    assert_eq!(
        run(&["END"], &["a E", "N", "d b"]),
        ("a ENd b".to_owned(), false)
    );
    assert_eq!(
        run(&["é!"], &["caf", "é", "?"]),
        ("café?".to_owned(), false)
    );
    assert_eq!(run(&["bc", "b"], &["ab", "c"]), ("a".to_owned(), true));
    assert_eq!(run(&[""], &["x"]), ("x".to_owned(), false));
}

/// The definition, applied to the whole text: length of the text shown after a piece, and whether a stop was found.
fn shown(stops: &[&str], text: &str) -> (usize, bool) {
    let found = stops.iter().filter_map(|s| text.find(s)).min();
    if let Some(at) = found {
        return (at, true);
    }
    let begins = |&at: &usize| stops.iter().any(|s| s.starts_with(&text[at..]));
    let held = (0..text.len()).filter(|&at| text.is_char_boundary(at));
    (held.clone().find(begins).unwrap_or(text.len()), false)
}

#[test]
fn overlapping_stop_strings_end_the_text_at_the_first() {
    let sets: [&[&str]; 8] = [
        &["b", "ab"],
        &["ab", "b"],
        &["aab", "ab", "b"],
        &["aba", "bab"],
        &["abab", "ba"],
        &["aaab", "aab"],
        &["bb", "abb", "aé"],
        &["éa", "aéa"],
    ];
    let texts = [
        "aaab", "abaab", "babab", "abba", "aaéab", "éaéa", "bbab", "aéb",
    ];
    for set in sets {
        for text in texts {
            // Every way to cut the text into pieces, one bit per character boundary.
            let cuts: Vec<usize> = text.char_indices().map(|(i, _)| i).skip(1).collect();
            for pattern in 0..1_u32 << cuts.len() {
                let mut stops = Stops::new(set.iter().map(|s| (*s).to_owned()));
                let (mut out, mut begin) = (String::new(), 0);
                let ends = (0..cuts.len()).filter(|i| pattern >> i & 1 == 1);
                for end in ends.map(|i| cuts[i]).chain([text.len()]) {
                    let (piece, ended) = stops.push(&text[begin..end]);
                    out.push_str(&piece);
                    let (len, expected) = shown(set, &text[..end]);
                    let case = format!("{set:?} in {:?}, cut by {pattern:b}", &text[..end]);
                    assert_eq!((&*out, ended), (&text[..len], expected), "{case}");
                    if ended {
                        assert_eq!(stops.finish(), "", "{case}");
                        break;
                    }
                    begin = end;
                }
            }
        }
    }
}

#[test]
fn empty_logits_are_an_error() {
    let mut sampler = Sampler::new(at(1.0)).expect("valid");
    assert!(matches!(
        sampler.next(&mut [], &[]),
        Err(Error::Invalid { .. })
    ));
}

/// The device samples the same tokens as the host.
#[cfg(target_os = "linux")]
#[test]
fn a_device_draws_the_same_tokens() {
    use bessemer::Device;
    use bessemer::decoder::DeviceSampler;

    let device = Device::software().expect("a device");
    let changes: [fn(&mut Sampling); 8] = [
        |_| {},
        |s| s.temperature = 0.0,
        |s| s.top_k = 7,
        |s| s.top_p = 0.8,
        |s| s.min_p = 0.2,
        |s| s.typical = 0.7,
        |s| (s.repetition_penalty, s.penalty_window) = (1.4, 5),
        |s| {
            (s.presence_penalty, s.frequency_penalty) = (0.3, 0.2);
            s.logit_bias = vec![(3, 1.5), (3, 0.5), (11, -2.0), (99, 1.0)];
        },
    ];
    for change in changes {
        let mut sampling = Sampling {
            seed: 11,
            ..at(0.9)
        };
        change(&mut sampling);
        let mut host = Sampler::new(sampling.clone()).expect("valid");
        let mut on_device = DeviceSampler::new(&device, sampling.clone(), 40).expect("valid");
        let mut seen = Vec::new();
        for step in 0..30_usize {
            let logits = |i: usize| ((i * 37 + step * 11) % 41) as f32 * 0.13 - 2.0;
            let logits: Vec<f32> = (0..40).map(logits).collect();
            let token = host.next(&mut logits.clone(), &seen).expect("logits");
            let other = on_device.next(&logits).expect("a token");
            assert_eq!(token, other, "step {step} of {sampling:?}");
            seen.push(token);
        }
    }
}
