//! Prefill on the software Metal device: the same as token by token, in any batch, and as a reference forward pass in
//! `f64`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::CacheType;
use bessemer::Device;
use bessemer::decoder::{Decoder, DeviceSampler, Logits, Run, Sequences, Spec};
use bessemer::quant::{BlockFormat, Weights};
use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_testing::tolerance::bound;
use bessemer_testing::transformer::{Family, Reference};

fn decoder(spec: &Spec) -> Decoder {
    Decoder::new(&Device::software().unwrap(), spec.clone()).unwrap()
}

fn tokens(count: usize, vocab: usize, seed: usize) -> Vec<u32> {
    let token = |i: usize| (i * 31 + i * i * 7 + seed * 13 + 5) % vocab;
    (0..count).map(|i| token(i) as u32).collect()
}

/// One or several sequences of a decoder.
struct TestSequences<'a> {
    decoder: &'a Decoder,
    sequences: Sequences,
}

impl<'a> TestSequences<'a> {
    fn new(decoder: &'a Decoder, kind: CacheType, slots: usize, positions: usize) -> Self {
        Self {
            decoder,
            sequences: Sequences::new(decoder, kind, slots, positions).unwrap(),
        }
    }

    /// Runs a batch of tokens of several sequences, and returns the logits after every token.
    fn take(&mut self, runs: &[(usize, &[u32])]) -> Vec<f32> {
        let runs: Vec<Run<'_>> = runs
            .iter()
            .map(|&(slot, tokens)| Run {
                slot,
                tokens,
                logits: Logits::All,
            })
            .collect();
        let mut logits = Vec::new();
        let outcome = self
            .decoder
            .forward(&mut self.sequences, &runs, &mut logits);
        outcome.unwrap();
        logits
    }
}

/// Logits of a new sequence after every token, processed in these chunks.
fn logits_in_chunks(decoder: &Decoder, kind: CacheType, pieces: &[&[u32]]) -> Vec<f32> {
    let count: usize = pieces.iter().map(|p| p.len()).sum();
    let mut rows = TestSequences::new(decoder, kind, 1, count);
    pieces
        .iter()
        .flat_map(|piece| rows.take(&[(0, piece)]))
        .collect()
}

/// The maximum difference relative to the maximum magnitude.
fn relative_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let max = b.iter().fold(0.0_f64, |m, &b| m.max(f64::from(b.abs())));
    let pairs = a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b));
    pairs.fold(0.0_f64, |m, d| {
        m.max(if d.is_nan() { f64::INFINITY } else { d.abs() })
    }) / max
}

/// Asserts equal bits, unless the device changes the order of summation on purpose.
fn assert_same(a: &[f32], b: &[f32], what: &str) {
    assert_same_or_close(a, b, bound::logits(CacheType::F16), what);
}

fn assert_same_or_close(a: &[f32], b: &[f32], close: f64, what: &str) {
    if SoftOptions::from_env().unwrap().mode == Mode::Fuzz {
        assert!(relative_difference(a, b) < close, "{what}");
    } else {
        assert!(a == b, "{what}: {:e} apart", relative_difference(a, b));
    }
}

fn reference(spec: &Spec, kind: CacheType, tokens: &[u32]) -> Vec<f32> {
    let mut reference = Reference::new(spec, kind);
    let rows = tokens.iter().flat_map(|&t| reference.take(t));
    rows.map(|l| l as f32).collect()
}

fn families() -> [(&'static str, Family); 4] {
    [
        ("llama", Family::default()),
        ("qwen", Family::qwen()),
        ("gemma", Family::gemma()),
        ("phi", Family::phi()),
    ]
}

#[test]
fn model_families_match_the_f64_reference() {
    for (name, family) in families() {
        let spec = family.spec(1).unwrap();
        let decoder = decoder(&spec);
        let tokens = tokens(19, spec.vocab, 1);
        for kind in CacheType::ALL {
            let close = bound::logits(kind);
            let expected = reference(&spec, kind, &tokens);
            let found = logits_in_chunks(&decoder, kind, &[&tokens]);
            let off = relative_difference(&found, &expected);
            assert!(off < close, "{name} {kind:?}: {off}");
            // Small batches, which use other kernels.
            let pieces: Vec<&[u32]> = tokens.chunks(7).collect();
            let off = relative_difference(&logits_in_chunks(&decoder, kind, &pieces), &expected);
            assert!(off < close, "{name} {kind:?}, small batches: {off}");
        }
    }
}

#[test]
fn quantised_weights_and_wide_heads_match_the_f64_reference() {
    let small = [
        BlockFormat::Q8_0,
        BlockFormat::Q4_1,
        BlockFormat::Q4_1,
        BlockFormat::Q4_1,
    ];
    let nested = [
        BlockFormat::Q6K,
        BlockFormat::Q4K,
        BlockFormat::Q6K,
        BlockFormat::Q4K,
    ];
    let cases = [
        // Nine heads share three, as in SmolLM.
        Family {
            width: 288,
            heads: 9,
            kv_heads: 3,
            head_dim: 32,
            ffn: 320,
            formats: small.map(Weights::Block),
            ..Family::default()
        },
        // Head size 128, one key head for all; widths are multiples of 256.
        Family {
            width: 256,
            heads: 2,
            kv_heads: 1,
            head_dim: 128,
            ffn: 512,
            layers: 1,
            formats: nested.map(Weights::Block),
            ..Family::qwen()
        },
        // Head size 256, and an odd multiple of four.
        Family {
            heads: 2,
            kv_heads: 2,
            head_dim: 256,
            layers: 1,
            ..Family::gemma()
        },
        Family {
            heads: 34,
            kv_heads: 1,
            head_dim: 20,
            rope_dims: Some(12),
            layers: 1,
            ..Family::default()
        },
    ];
    for family in cases {
        let spec = family.spec(2).unwrap();
        let decoder = decoder(&spec);
        let tokens = tokens(18, spec.vocab, 2);
        let expected = reference(&spec, CacheType::F32, &tokens);
        let found = logits_in_chunks(&decoder, CacheType::F32, &[&tokens]);
        let off = relative_difference(&found, &expected);
        assert!(off < bound::logits(CacheType::F32), "{family:?}: {off}");
        let pieces: Vec<&[u32]> = tokens.chunks(9).collect();
        let off = relative_difference(
            &logits_in_chunks(&decoder, CacheType::F32, &pieces),
            &expected,
        );
        assert!(
            off < bound::logits(CacheType::F32),
            "{family:?}, small batches: {off}"
        );
    }
}

#[test]
fn batches_of_any_size_match_token_by_token() {
    for (name, family) in [("llama", Family::default()), ("gemma", Family::gemma())] {
        let spec = family.spec(3).unwrap();
        let decoder = decoder(&spec);
        let all = tokens(100, spec.vocab, 3);
        let kind = CacheType::F32;
        let single: Vec<&[u32]> = all.chunks(1).collect();
        let one_by_one = logits_in_chunks(&decoder, kind, &single);
        let in_one_batch = logits_in_chunks(&decoder, kind, &[&all]);
        let off = relative_difference(&in_one_batch, &one_by_one);
        assert!(off < bound::logits(CacheType::F32), "{name}: {off}");
        let by = |size: usize| {
            let count = all.len() / size * size;
            let pieces: Vec<&[u32]> = all[..count].chunks(size).collect();
            logits_in_chunks(&decoder, kind, &pieces)
        };
        // In batches: the same kernels, so the same bits; up to 16 rows are multiplied by others.
        let by_two = by(2);
        let off = relative_difference(&by_two, &in_one_batch);
        assert!(off < bound::logits(CacheType::F32), "{name} by 2: {off}");
        for (size, same) in [
            (9, &by_two),
            (15, &by_two),
            (16, &by_two),
            (17, &in_one_batch),
            (33, &in_one_batch),
            (64, &in_one_batch),
        ] {
            let logits = by(size);
            assert_same(&logits, &same[..logits.len()], &format!("{name} by {size}"));
        }
    }
}

#[test]
fn batched_sequences_of_different_lengths_are_independent() {
    let spec = Family::gemma().spec(4).unwrap();
    let decoder = decoder(&spec);
    // Many rows, batched and alone, or few: the same kernels.
    for kind in [CacheType::F16, CacheType::Q8_0] {
        check_batched_against_separate(&spec, &decoder, kind, [20, 33, 18, 17]);
        check_batched_against_separate(&spec, &decoder, kind, [5, 4, 2, 3]);
    }
}

fn check_batched_against_separate(
    spec: &Spec,
    decoder: &Decoder,
    kind: CacheType,
    lengths: [usize; 4],
) {
    let close = bound::logits(kind);
    let prompts: Vec<Vec<u32>> = (0..4).map(|i| tokens(lengths[i], spec.vocab, i)).collect();
    let more: Vec<Vec<u32>> = (0..4).map(|i| tokens(2 + i, spec.vocab, 9 + i)).collect();
    let mut rows = TestSequences::new(decoder, kind, 4, 40);
    // In any order, then continuing from each position.
    let order = [2, 0, 3, 1];
    let runs: Vec<(usize, &[u32])> = order.map(|i| (i, &prompts[i][..])).to_vec();
    let first = rows.take(&runs);
    let runs: Vec<(usize, &[u32])> = order.map(|i| (i, &more[i][..])).to_vec();
    let second = rows.take(&runs);
    let (mut at, mut at_more) = (0, 0);
    for i in order {
        let expected = logits_in_chunks(decoder, kind, &[&prompts[i], &more[i]]);
        let (prompt, rest) = (lengths[i] * spec.vocab, more[i].len() * spec.vocab);
        let what = format!("sequence {i}");
        assert_same_or_close(&first[at..at + prompt], &expected[..prompt], close, &what);
        assert_same_or_close(
            &second[at_more..at_more + rest],
            &expected[prompt..],
            close,
            &what,
        );
        (at, at_more) = (at + prompt, at_more + rest);
    }
    // One token of each is a batch too.
    let single: Vec<Vec<u32>> = (0..4).map(|i| tokens(1, spec.vocab, 20 + i)).collect();
    let runs: Vec<(usize, &[u32])> = order.map(|i| (i, &single[i][..])).to_vec();
    let third = rows.take(&runs);
    for (logits, i) in third.chunks_exact(spec.vocab).zip(order) {
        let expected = logits_in_chunks(decoder, kind, &[&prompts[i], &more[i], &single[i]]);
        let last = &expected[expected.len() - spec.vocab..];
        assert!(relative_difference(logits, last) < close, "sequence {i}");
    }
}

#[test]
fn a_reused_prefix_gives_the_same_logits() {
    let spec = Family::qwen().spec(5).unwrap();
    let decoder = decoder(&spec);
    let kind = CacheType::F16;
    // More than 16 each, so that all use the same kernels, and at most as many as logits are computed for in one batch.
    let (first, other) = (tokens(40, spec.vocab, 1), tokens(18, spec.vocab, 2));
    let mut rows = TestSequences::new(&decoder, kind, 2, 80);
    rows.take(&[(1, &first)]);
    for kept in [0, 1, 16, 21, 40] {
        rows.sequences.truncate(1, kept).unwrap();
        let logits = rows.take(&[(1, &other)]);
        let whole: Vec<u32> = first[..kept].iter().chain(&other).copied().collect();
        let expected = logits_in_chunks(&decoder, kind, &[&whole]);
        assert_same(
            &logits,
            &expected[kept * spec.vocab..],
            &format!("{kept} kept"),
        );
        // A small batch after it differs only by rounding.
        rows.sequences.truncate(1, kept).unwrap();
        let logits = rows.take(&[(1, &other[..5])]);
        let same = &expected[kept * spec.vocab..][..logits.len()];
        assert!(
            relative_difference(&logits, same) < bound::logits(CacheType::F16),
            "{kept} kept, 5 more"
        );
        // The prefix again, for the next one.
        rows.sequences.truncate(1, kept).unwrap();
        if kept < first.len() {
            rows.take(&[(1, &first[kept..])]);
        }
    }
}

#[test]
fn tokens_outside_the_sliding_window_have_no_effect() {
    // Two layers of a window of 6: the last token depends on 10 before it.
    let family = Family {
        layers: 2,
        ..Family::gemma()
    };
    let spec = family.spec(6).unwrap();
    let decoder = decoder(&spec);
    let (mut one, mut other) = (tokens(70, spec.vocab, 1), tokens(70, spec.vocab, 2));
    let same = tokens(30, spec.vocab, 3);
    one.extend(&same);
    other.extend(&same);
    let [one, other] = [one, other].map(|t| logits_in_chunks(&decoder, CacheType::F32, &[&t]));
    let (far, near) = ((70 + 10) * spec.vocab, (70 + 9) * spec.vocab);
    assert_same(&one[far..], &other[far..], "what all of it sees");
    assert_ne!(one[near..far], other[near..far]);
}

#[test]
fn without_a_causal_mask_every_token_attends_to_all() {
    let family = Family {
        layers: 1,
        ..Family::default()
    };
    let mut spec = family.spec(7).unwrap();
    let all = tokens(40, spec.vocab, 1);
    let in_order = logits_in_chunks(&decoder(&spec), CacheType::F32, &[&all]);
    spec.causal = false;
    let without = logits_in_chunks(&decoder(&spec), CacheType::F32, &[&all]);
    let last = 39 * spec.vocab;
    // The last token attends to the same either way.
    assert_same(&in_order[last..], &without[last..], "the last token");
    // The first token attends to the same as the last one, from another position.
    assert_ne!(in_order[..spec.vocab], without[..spec.vocab]);
    let mut changed = all.clone();
    changed[39] = (changed[39] + 1) % spec.vocab as u32;
    let other = logits_in_chunks(&decoder(&spec), CacheType::F32, &[&changed]);
    assert_ne!(other[..spec.vocab], without[..spec.vocab]);
}

#[test]
fn long_prompts_are_several_batches() {
    let family = Family {
        layers: 1,
        ..Family::default()
    };
    let spec = family.spec(8).unwrap();
    let decoder = decoder(&spec);
    let all = tokens(530, spec.vocab, 1);
    let mut rows = TestSequences::new(&decoder, CacheType::F16, 1, 530);
    let run = Run {
        slot: 0,
        tokens: &all,
        logits: Logits::Last,
    };
    let mut in_one_batch = Vec::new();
    let outcome = decoder.forward(&mut rows.sequences, &[run], &mut in_one_batch);
    outcome.unwrap();
    rows.sequences.truncate(0, 0).unwrap();
    let mut in_two = Vec::new();
    for tokens in [&all[..300], &all[300..]] {
        let run = Run { tokens, ..run };
        let outcome = decoder.forward(&mut rows.sequences, &[run], &mut in_two);
        outcome.unwrap();
    }
    assert_same(&in_one_batch, &in_two, "two batches");
}

#[test]
fn sampling_uses_the_last_row() {
    let spec = Family::default().spec(9).unwrap();
    let decoder = decoder(&spec);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 2, 40).unwrap();
    decoder.warm_up(&mut sequences).unwrap();
    let mut sampler = DeviceSampler::greedy(&decoder);
    let prompt = tokens(9, spec.vocab, 1);
    let other = tokens(4, spec.vocab, 2);
    let greatest = |row: &[f32]| {
        let max = row.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l));
        row.iter().position(|&l| l == max).unwrap() as u32
    };
    for kind in [Logits::Last, Logits::All] {
        let run = |slot, tokens| Run {
            slot,
            tokens,
            logits: kind,
        };
        let mut logits = Vec::new();
        let runs = [run(1, &other[..]), run(0, &prompt[..])];
        decoder.forward(&mut sequences, &runs, &mut logits).unwrap();
        let expected = greatest(&logits[logits.len() - spec.vocab..]);
        let first = decoder.choose(&mut sequences, 0, &mut sampler).unwrap();
        let second = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
        assert_eq!(first.wait().unwrap(), expected);
        let next = [expected];
        let whole: Vec<u32> = prompt.iter().chain(&next).copied().collect();
        let rows = logits_in_chunks(&decoder, CacheType::F32, &[&whole]);
        let last = greatest(&rows[rows.len() - spec.vocab..]);
        assert_eq!(second.wait().unwrap(), last);
        sequences.truncate(0, 0).unwrap();
        sequences.truncate(1, 0).unwrap();
    }
}

#[test]
fn a_layer_is_eight_launches() {
    for (name, family) in families() {
        let spec = family.spec(1).unwrap();
        let decoder = decoder(&spec);
        let sequences = Sequences::new(&decoder, CacheType::F16, 1, 64).unwrap();
        for rows in [2, 16, 64] {
            let counts = decoder.prefill_counts(&sequences, rows).unwrap();
            // The embedding before them, and the head after them.
            assert_eq!(counts.launches, 8 * spec.layers.len() + 2, "{name}");
        }
        assert!(decoder.prefill_counts(&sequences, 0).is_err());
    }
}

#[test]
fn the_checking_device_reports_nothing() {
    let options = SoftOptions {
        mode: Mode::Check,
        ..SoftOptions::from_env().unwrap()
    };
    let device = Device::on(soft::device(options).unwrap());
    let family = Family {
        layers: 1,
        ..Family::gemma()
    };
    let spec = family.spec(10).unwrap();
    let decoder = Decoder::new(&device, spec.clone()).unwrap();
    let plain = self::decoder(&spec);
    // Few rows, and more; caches of single values, and of quantised blocks.
    for (kind, count) in [
        (CacheType::F16, 9),
        (CacheType::Q8_0, 9),
        (CacheType::Q8_0, 15),
    ] {
        let prompts = [tokens(count, spec.vocab, 1), tokens(3, spec.vocab, 2)];
        let runs = [(0, &prompts[0][..]), (1, &prompts[1][..])];
        let logits = TestSequences::new(&decoder, kind, 2, 20).take(&runs);
        let expected = TestSequences::new(&plain, kind, 2, 20).take(&runs);
        assert!(relative_difference(&logits, &expected) < bound::logits(CacheType::F32));
    }
}
