//! Language models on a Metal device, against a reference forward pass in `f64`. Runs on the software device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

#[path = "decoder/counts.rs"]
mod counts;
#[path = "decoder/failure.rs"]
mod failure;
#[path = "decoder/step.rs"]
mod step;

use bessemer::decoder::{Decoder, Logits, Run, Sequences, Spec};
use bessemer::quant::{BlockFormat, Weights};
use bessemer::{Activation, CacheType};
use bessemer::{Device, Error, RopeStyle};
use bessemer_hal as hal;
use bessemer_hal::soft::{Mode, SoftOptions};
use bessemer_testing::tolerance::bound;
use bessemer_testing::transformer::{Family, Reference};

/// A separate device, so that injected failures do not affect other tests. `BESSEMER_SOFT_MODE` may select another mode
/// than the fast one.
fn soft(mode: Mode) -> Device {
    let mut options = SoftOptions::from_env().unwrap();
    if mode == Mode::Check {
        options.mode = mode;
    }
    Device::on(hal::soft::device(options).unwrap())
}

fn decoder(spec: &Spec) -> Decoder {
    Decoder::new(&soft(Mode::Fast), spec.clone()).unwrap()
}

/// A decoder on a device with a deterministic order of summation in every mode.
fn steady_decoder(spec: &Spec) -> Decoder {
    let options = SoftOptions {
        mode: Mode::Fast,
        ..SoftOptions::from_env().unwrap()
    };
    let device = Device::on(hal::soft::device(options).unwrap());
    Decoder::new(&device, spec.clone()).unwrap()
}

/// Tokens that cycle through the vocabulary.
fn tokens(spec: &Spec, count: usize) -> Vec<u32> {
    (0..count).map(|i| (i * 31 % spec.vocab) as u32).collect()
}

fn forward(decoder: &Decoder, sequences: &mut Sequences, slot: usize, tokens: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    let run = Run {
        slot,
        tokens,
        logits: Logits::Last,
    };
    decoder.forward(sequences, &[run], &mut logits).unwrap();
    logits
}

fn assert_near(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let max = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let off = (f64::from(found) - expected).abs() / max;
        assert!(
            off <= tolerance,
            "{what}: logit {i} is {found}, not {expected}: {off:e} of the largest"
        );
    }
}

/// Compares a transformer with the reference, token by token.
fn check(family: &Family, kind: CacheType, positions: usize, count: usize, mode: Mode) {
    let spec = family.spec(7).unwrap();
    let decoder = Decoder::new(&soft(mode), spec.clone()).unwrap();
    let mut sequences = Sequences::new(&decoder, kind, 1, positions).unwrap();
    let mut reference = Reference::new(&spec, kind);
    for (i, &token) in tokens(&spec, count).iter().enumerate() {
        let found = forward(&decoder, &mut sequences, 0, &[token]);
        let what = format!("{family:?} with {kind:?}, token {i}");
        assert_near(&found, &reference.take(token), bound::logits(kind), &what);
        assert_eq!(sequences.len(0), i + 1);
    }
}

fn families() -> [Family; 4] {
    [
        Family::default(),
        Family::qwen(),
        Family::gemma(),
        Family::phi(),
    ]
}

#[test]
fn model_families_match_the_f64_reference() {
    for family in families() {
        check(&family, CacheType::F32, 32, 20, Mode::Fast);
    }
}

#[test]
fn f16_caches_only_add_rounding() {
    for family in [Family::default(), Family::qwen()] {
        check(&family, CacheType::F16, 32, 20, Mode::Fast);
    }
}

#[test]
fn q8_caches_only_add_rounding() {
    // Heads of one block, of several, of partial blocks, and of two and eight elements per lane.
    let dims = [(2, 20), (2, 48), (2, 64), (1, 80), (1, 256)];
    let shapes = dims.map(|(kv_heads, head_dim)| Family {
        heads: 4,
        kv_heads,
        head_dim,
        rope_dims: None,
        layers: 1,
        ..Family::default()
    });
    for family in families().iter().chain(&shapes) {
        check(family, CacheType::Q8_0, 32, 20, Mode::Fast);
    }
}

#[test]
fn long_q8_caches_are_split_across_threadgroups() {
    let family = Family {
        layers: 1,
        ..Family::default()
    };
    check(&family, CacheType::Q8_0, 600, 140, Mode::Fast);
}

#[test]
fn weight_formats_may_be_mixed() {
    use BlockFormat as F;
    let all = [
        [F::Q8_0.into(), F::Q4K.into(), F::Q6K.into(), F::Q4_1.into()],
        [F::Q5K.into(), F::Q4_0.into(), F::Q4_0.into(), Weights::F16],
        [F::Q5_0.into(), Weights::BF16, F::Q5_1.into(), F::Q3K.into()],
        [F::Q2K.into(), F::Q8_0.into(), F::Q8_0.into(), F::Q2K.into()],
    ];
    for formats in all {
        let family = Family {
            width: 256,
            head_dim: 64,
            ffn: 256,
            layers: 1,
            formats,
            ..Family::default()
        };
        check(&family, CacheType::F32, 8, 3, Mode::Fast);
    }
}

#[test]
fn gate_and_up_may_have_different_formats() {
    let family = Family {
        layers: 1,
        ..Family::default()
    };
    let mut spec = family.spec(3).unwrap();
    let other = Family {
        formats: [Weights::F16; 4],
        ..family
    };
    spec.layers[0].gate = other.spec(4).unwrap().layers.remove(0).gate;
    let decoder = decoder(&spec);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 1, 4).unwrap();
    let found = forward(&decoder, &mut sequences, 0, &[5]);
    let expected = Reference::new(&spec, CacheType::F32).take(5);
    assert_near(
        &found,
        &expected,
        bound::logits(CacheType::F32),
        "a mixed gate",
    );
}

#[test]
fn attention_supports_all_head_sizes() {
    // Head sizes, query heads, key heads, and the RoPE style.
    let cases = [
        (48, 6, 6, RopeStyle::Interleaved),
        (64, 9, 3, RopeStyle::Interleaved),
        (96, 4, 4, RopeStyle::HalfSplit),
        (128, 7, 1, RopeStyle::HalfSplit),
        (256, 9, 1, RopeStyle::HalfSplit),
        (4, 2, 1, RopeStyle::Interleaved),
    ];
    for (head_dim, heads, kv_heads, style) in cases {
        let family = Family {
            width: 36,
            heads,
            kv_heads,
            head_dim,
            ffn: 50,
            vocab: 33,
            layers: 1,
            style,
            ..Family::default()
        };
        check(&family, CacheType::F16, 16, 9, Mode::Fast);
    }
}

#[test]
fn matrices_with_many_rows_are_processed_in_several_passes() {
    let family = Family {
        width: 8,
        heads: 512,
        kv_heads: 8,
        head_dim: 256,
        ffn: 66_000,
        vocab: 132_000,
        layers: 1,
        has_qkv_bias: true,
        ..Family::default()
    };
    check(&family, CacheType::F32, 8, 3, Mode::Fast);
}

#[test]
fn long_caches_are_split_across_threadgroups() {
    let family = Family {
        width: 32,
        heads: 2,
        kv_heads: 1,
        ffn: 32,
        vocab: 32,
        layers: 3,
        window: Some(300),
        ..Family::default()
    };
    check(&family, CacheType::F32, 1000, 340, Mode::Fast);
}

#[test]
fn activations_and_soft_caps_match_the_reference() {
    for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
        let family = Family {
            activation,
            soft_caps: [Some(2.0), None],
            layers: 1,
            ..Family::default()
        };
        check(&family, CacheType::F32, 8, 4, Mode::Fast);
    }
}

#[test]
fn the_checking_device_reports_nothing() {
    let gemma = Family {
        width: 32,
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        ffn: 32,
        vocab: 32,
        window: Some(3),
        formats: [
            BlockFormat::Q8_0.into(),
            BlockFormat::Q4_0.into(),
            BlockFormat::Q5_1.into(),
            Weights::F16,
        ],
        ..Family::gemma()
    };
    // The output has too few columns for blocks.
    let gemma = Family {
        head_dim: 16,
        ..gemma
    };
    check(&gemma, CacheType::F16, 300, 5, Mode::Check);
    let llama = Family {
        layers: 1,
        ..Family::default()
    };
    check(&llama, CacheType::F32, 8, 2, Mode::Check);
}

#[test]
fn sequences_in_different_slots_are_independent() {
    let spec = Family::default().spec(1).unwrap();
    let decoder = decoder(&spec);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 3, 16).unwrap();
    let mut references = [(); 3].map(|()| Reference::new(&spec, CacheType::F32));
    let texts: [&[u32]; 3] = [&[1, 2, 3, 4, 5], &[9, 8], &[7, 7, 7]];
    // All in one batch, with different lengths; then alternating.
    let runs: Vec<Run<'_>> = texts
        .iter()
        .enumerate()
        .map(|(slot, tokens)| Run {
            slot,
            tokens,
            logits: if slot == 1 { Logits::All } else { Logits::Last },
        })
        .collect();
    let mut found = Vec::new();
    decoder.forward(&mut sequences, &runs, &mut found).unwrap();
    let mut expected = Vec::new();
    for (slot, text) in texts.iter().enumerate() {
        let rows: Vec<_> = text.iter().map(|&t| references[slot].take(t)).collect();
        let row = if slot == 1 { 0 } else { rows.len() - 1 };
        expected.extend(rows[row..].concat());
    }
    assert_near(
        &found,
        &expected,
        bound::logits(CacheType::F32),
        "three together",
    );
    for (i, slot) in [2, 0, 1, 1, 2, 0].into_iter().enumerate() {
        let token = 10 + i as u32;
        let found = forward(&decoder, &mut sequences, slot, &[token]);
        let expected = references[slot].take(token);
        let what = format!("sequence {slot}");
        assert_near(&found, &expected, bound::logits(CacheType::F32), &what);
    }
    assert_eq!([0, 1, 2].map(|s| sequences.len(s)), [7, 4, 5]);
}

#[test]
fn truncated_positions_are_forgotten() {
    let spec = Family::gemma().spec(2).unwrap();
    let decoder = steady_decoder(&spec);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 1, 32).unwrap();
    forward(&decoder, &mut sequences, 0, &tokens(&spec, 12));
    sequences.truncate(0, 5).unwrap();
    assert_eq!(sequences.len(0), 5);
    let found = forward(&decoder, &mut sequences, 0, &[3, 1, 4]);
    let mut fresh = Sequences::new(&decoder, CacheType::F32, 1, 32).unwrap();
    forward(&decoder, &mut fresh, 0, &tokens(&spec, 12)[..5]);
    assert_eq!(
        found,
        forward(&decoder, &mut fresh, 0, &[3, 1, 4]),
        "to the bit"
    );
    sequences.truncate(0, 0).unwrap();
    assert!(sequences.is_empty(0));
}

#[test]
fn invalid_arguments_are_typed_errors() {
    let spec = Family::default().spec(1).unwrap();
    let decoder = decoder(&spec);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 2, 4).unwrap();
    let mut logits = Vec::new();
    let mut forward = |sequences: &mut Sequences, slot, tokens: &[u32]| {
        let run = Run {
            slot,
            tokens,
            logits: Logits::Last,
        };
        decoder.forward(sequences, &[run], &mut logits)
    };
    assert!(matches!(
        forward(&mut sequences, 2, &[1]),
        Err(Error::BadIndex {
            index: 2,
            len: 2,
            ..
        })
    ));
    assert!(matches!(
        forward(&mut sequences, 0, &[80]),
        Err(Error::BadIndex {
            index: 80,
            len: 80,
            ..
        })
    ));
    assert!(matches!(
        forward(&mut sequences, 0, &[1; 5]),
        Err(Error::Invalid { .. })
    ));
    assert!(forward(&mut sequences, 0, &[1; 4]).is_ok());
    assert!(
        forward(&mut sequences, 0, &[]).is_ok(),
        "nothing is nothing"
    );
    assert!(matches!(
        sequences.truncate(9, 0),
        Err(Error::BadIndex { .. })
    ));
    let cpu = Decoder::new(&Device::cpu(), spec.clone());
    assert!(matches!(cpu, Err(Error::Unsupported { .. })));
    let wrong = Spec {
        head_dim: 6,
        ..spec.clone()
    };
    let device = soft(Mode::Fast);
    assert!(matches!(
        Decoder::new(&device, wrong),
        Err(Error::Invalid { .. })
    ));
    let other = Decoder::new(&device, spec).unwrap();
    assert!(other.forward(&mut sequences, &[], &mut Vec::new()).is_err());
    for (slots, positions) in [(0, 4), (1, 0)] {
        let none = Sequences::new(&decoder, CacheType::F32, slots, positions);
        assert!(matches!(none, Err(Error::Invalid { .. })));
    }
}
