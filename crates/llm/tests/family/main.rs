//! Every family on a small model of random weights, on the CPU and on the software Metal device: against a reference
//! forward pass in `f64`, and against itself with other batch splits.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

mod cancel;
mod model;
mod reference;
mod text;

use bessemer::CacheType;
use bessemer::Device;
use bessemer::quant::Precision;
use bessemer_llm::file::Model;
use bessemer_llm::model::{Input, Logits, Options, Workspace};
use bessemer_llm::{Cache, Transformer};
use tempfile::TempDir;

use crate::model::{DIM, FAMILIES, Family, KV, LAYERS, VOCAB, Weights, write};
use crate::reference::reference;

/// The devices of every test machine.
fn devices() -> [Device; 2] {
    [Device::cpu(), Device::software().unwrap()]
}

const CONTEXT: usize = 64;

/// A family's model on a device.
fn load(family: &Family, device: &Device) -> (Transformer, Weights) {
    let dir = TempDir::new().unwrap();
    let (path, weights) = write(family, &dir);
    let options = Options {
        precision: Precision::Exact,
        context: CONTEXT,
    };
    let file = Model::open(path).unwrap();
    (Transformer::on(device, &file, options).unwrap(), weights)
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 13 + 5) % VOCAB as u32).collect()
}

fn prefill(transformer: &Transformer, cache: &mut Cache, tokens: &[u32]) -> Vec<f32> {
    let mut workspace = Workspace::default();
    let input = Input {
        sequence: 0,
        tokens,
        logits: Logits::All,
    };
    transformer
        .forward(cache, &[input], &mut workspace)
        .unwrap();
    workspace.logits().to_vec()
}

/// The logits after every token of a text that is processed in pieces.
fn in_pieces(transformer: &Transformer, pieces: &[&[u32]]) -> Vec<f32> {
    let mut cache = Cache::new(transformer, CacheType::F32, 1, CONTEXT).unwrap();
    let pieces = pieces
        .iter()
        .flat_map(|p| prefill(transformer, &mut cache, p));
    pieces.collect()
}

#[track_caller]
fn assert_near(actual: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        let token = i / VOCAB;
        assert!(
            (a - e).abs() <= tolerance,
            "{what}, after token {token}: {a} {e}"
        );
    }
}

/// Tolerance for `f32` sums in another order, on logits of about 1.
const LOGIT_TOLERANCE: f32 = 2e-5;

#[test]
fn every_family_matches_its_reference() {
    let tokens = tokens(20);
    for device in devices() {
        for family in &FAMILIES {
            let (transformer, weights) = load(family, &device);
            let expected = reference(transformer.config(), &weights, &tokens);
            let expected: Vec<f32> = expected.iter().flatten().map(|&e| e as f32).collect();
            let singly: Vec<_> = tokens.chunks(1).collect();
            for logits in [
                in_pieces(&transformer, &[&tokens]),
                in_pieces(&transformer, &singly),
            ] {
                let what = format!("{} on {device}", family.name);
                assert_near(&logits, &expected, 2e-4, &what);
            }
        }
    }
}

#[test]
fn logits_do_not_depend_on_batching() {
    let tokens = tokens(24);
    for device in devices() {
        for family in &FAMILIES {
            let what = format!("{} on {device}", family.name);
            let (transformer, _) = load(family, &device);
            let at_once = in_pieces(&transformer, &[&tokens]);
            // Pieces of any length.
            let (a, b) = tokens.split_at(7);
            let (b, c) = b.split_at(1);
            let pieces = in_pieces(&transformer, &[a, b, c]);
            assert_near(&pieces, &at_once, LOGIT_TOLERANCE, &what);
            // After a prefix of another text, and after truncation.
            let mut cache = Cache::new(&transformer, CacheType::F32, 1, CONTEXT).unwrap();
            let other = [&tokens[..10], &[1, 2, 3, 4]].concat();
            prefill(&transformer, &mut cache, &other);
            assert_eq!(cache.reuse(0, &tokens).unwrap(), 10);
            let rest = prefill(&transformer, &mut cache, &tokens[10..]);
            assert_near(&rest, &at_once[10 * VOCAB..], LOGIT_TOLERANCE, &what);
        }
    }
}

#[test]
fn sequences_are_independent() {
    let tokens = tokens(24);
    for device in devices() {
        for family in &FAMILIES {
            let what = format!("{} on {device}", family.name);
            let (transformer, _) = load(family, &device);
            let mut cache = Cache::new(&transformer, CacheType::F32, 3, CONTEXT).unwrap();
            let mut workspace = Workspace::default();
            // Different lengths, in another order, and twice: the second time after the first tokens.
            let texts: [&[u32]; 3] = [&tokens[..9], &tokens[9..11], &tokens[11..]];
            for round in 0..2 {
                let inputs = [2, 0, 1].map(|sequence| Input {
                    sequence,
                    tokens: texts[sequence],
                    logits: if sequence == 0 {
                        Logits::All
                    } else {
                        Logits::Last
                    },
                });
                transformer
                    .forward(&mut cache, &inputs, &mut workspace)
                    .unwrap();
                let mut rows = workspace.logits();
                for input in &inputs {
                    let text = texts[input.sequence];
                    let alone = in_pieces(&transformer, &vec![text; round + 1]);
                    let count = if input.sequence == 0 { text.len() } else { 1 };
                    let (own, rest) = rows.split_at(count * VOCAB);
                    rows = rest;
                    assert_near(
                        own,
                        &alone[alone.len() - own.len()..],
                        LOGIT_TOLERANCE,
                        &what,
                    );
                }
                assert!(rows.is_empty());
            }
        }
    }
}

#[test]
fn tokens_outside_the_window_have_no_effect() {
    let tokens = tokens(24);
    for device in devices() {
        let (transformer, _) = load(&FAMILIES[1], &device);
        let config = transformer.config();
        // Every layer reaches back by window - 1 tokens.
        let reach = config.layers * (config.sliding_window.unwrap() - 1);
        let mut other = tokens.clone();
        other[..23 - reach].fill(7);
        let logits = in_pieces(&transformer, &[&tokens]);
        let changed = in_pieces(&transformer, &[&other]);
        let row = |logits: &[f32], i: usize| logits[i * VOCAB..][..VOCAB].to_vec();
        assert_eq!(row(&changed, 23), row(&logits, 23), "on {device}");
        assert_ne!(row(&changed, 22), row(&logits, 22), "on {device}");
    }
}

#[test]
fn invalid_tokens_and_lengths_are_rejected_and_change_nothing() {
    for device in devices() {
        let (transformer, _) = load(&FAMILIES[0], &device);
        let mut cache = Cache::new(&transformer, CacheType::F32, 1, 4).unwrap();
        let mut workspace = Workspace::default();
        let mut run = |sequence: usize, tokens: &[u32]| {
            let input = Input {
                sequence,
                tokens,
                logits: Logits::Last,
            };
            let result = transformer.forward(&mut cache, &[input], &mut workspace);
            (result.map_err(|e| e.to_string()), cache.len(0))
        };
        let (result, len) = run(0, &[VOCAB as u32]);
        assert!(result.unwrap_err().contains("vocabulary") && len == 0);
        let (result, len) = run(1, &[1]);
        assert!(result.unwrap_err().contains("sequence 1") && len == 0);
        assert_eq!(run(0, &[1, 2, 3]), (Ok(()), 3));
        let (result, len) = run(0, &[4, 5]);
        assert!(result.unwrap_err().contains("context of 4") && len == 3);
        // A cache of another transformer.
        let (other, _) = load(&FAMILIES[0], &device);
        let input = Input {
            sequence: 0,
            tokens: &[1],
            logits: Logits::Last,
        };
        if !device.is_cpu() {
            let result = other.forward(&mut cache, &[input], &mut workspace);
            assert!(result.is_err() && cache.len(0) == 3);
        }
    }
}

#[test]
fn a_cache_reports_its_tokens_and_size() {
    for device in devices() {
        let (transformer, _) = load(&FAMILIES[0], &device);
        let mut cache = Cache::new(&transformer, CacheType::F32, 3, CONTEXT).unwrap();
        assert_eq!((cache.sequences(), cache.capacity()), (3, CONTEXT));
        assert_eq!(cache.kind(), CacheType::F32);
        // Keys and values of every position, four bytes per element; a device may allocate larger blocks.
        let needed = 2 * 4 * 3 * CONTEXT * LAYERS * KV * DIM;
        assert!(cache.bytes() == needed || !device.is_cpu() && cache.bytes() > needed);
        prefill(&transformer, &mut cache, &[5, 6, 7]);
        let lengths = |cache: &Cache| [0, 1, 3].map(|i| (cache.len(i), cache.is_empty(i)));
        assert_eq!(lengths(&cache), [(3, false), (0, true), (0, true)]);
        assert_eq!(cache.tokens(0), [5, 6, 7]);
        cache.truncate(0, 1).unwrap();
        assert_eq!(cache.tokens(0), [5]);
        cache.truncate(0, 0).unwrap();
        assert_eq!(lengths(&cache), [(0, true); 3]);
    }
}

#[test]
fn a_cache_on_another_device_is_rejected() {
    let [cpu, soft] = devices().map(|device| load(&FAMILIES[0], &device).0);
    for (own, other) in [(&cpu, &soft), (&soft, &cpu)] {
        let mut cache = Cache::new(own, CacheType::F32, 1, 16).unwrap();
        let input = Input {
            sequence: 0,
            tokens: &[1],
            logits: Logits::Last,
        };
        let result = other.forward(&mut cache, &[input], &mut Workspace::default());
        let error = result.unwrap_err().to_string();
        assert!(error.contains("made for another transformer"), "{error}");
        assert!(cache.is_empty(0));
    }
}
