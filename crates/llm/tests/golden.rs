//! Real models against an independent forward pass: exact tokens, and vectors within 1e-5.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bessemer::CacheType;
use bessemer::Device;
use bessemer::quant::Precision;
use bessemer_llm::file::{Format, Model};
use bessemer_llm::generate::{Options, Session, WhenFull};
use bessemer_llm::model::{self, Input, Logits, Workspace};
use bessemer_llm::pull::{self, State};
use bessemer_llm::quantize::quantize;
use bessemer_llm::{Cache, Encoder, Sampling, Tokenizer, Transformer, perplexity, sample};
use serde_json::Value;
use tempfile::TempDir;

/// Opens a model that was pulled before.
fn open(name: &str) -> Model {
    let listed = pull::find(name).unwrap();
    let models = pull::directory().unwrap();
    assert_eq!(
        listed.state(&models),
        State::Ready,
        "{name} is not in {}: run `bessemer pull {name}` first",
        models.display()
    );
    Model::open(listed.path(&models)).unwrap()
}

fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    let all = value.as_array().unwrap().iter();
    all.map(|v| u32::try_from(v.as_u64().unwrap()).unwrap())
        .collect()
}

const CHAT_MODEL: &str = "smollm2";

fn load(name: &str, precision: Precision, context: usize) -> Arc<Transformer> {
    load_on(&Device::cpu(), name, precision, context)
}

fn load_on(device: &Device, name: &str, precision: Precision, context: usize) -> Arc<Transformer> {
    let file = open(name);
    let options = model::Options { precision, context };
    Arc::new(Transformer::on(device, &file, options).unwrap())
}

fn greedy(transformer: &Arc<Transformer>, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut session = Session::new(Arc::clone(transformer), CacheType::F32).unwrap();
    let options = Options {
        sampling: Sampling::default(),
        max_tokens: count,
        stops: vec![],
    };
    let go_on = |_| ControlFlow::Continue(());
    session.generate(prompt, &options, go_on).unwrap().ids
}

#[test]
fn stories15m_generates_the_golden_tokens() {
    let golden = golden("stories15M_once_upon_64.json");
    let transformer = load("stories15m", Precision::Exact, 256);
    let story = greedy(&transformer, &ids(&golden["prompt_ids"]), 64);
    assert_eq!(story, ids(&golden["generated_ids"]));
}

#[test]
fn smollm2_generates_the_golden_tokens() {
    let transformer = load(CHAT_MODEL, Precision::Exact, 256);
    for name in [
        "smollm2-135m-instruct-q4_1_once_upon_64.json",
        "smollm2-135m-instruct-q4_1_chat_france.json",
    ] {
        let golden = golden(name);
        let expected = ids(&golden["generated_ids"]);
        let text = greedy(&transformer, &ids(&golden["prompt_ids"]), expected.len());
        assert_eq!(text, expected, "{name}");
    }
}

#[test]
fn the_software_device_generates_the_first_golden_tokens() {
    let device = Device::software().unwrap();
    for (model, name) in [
        ("stories15m", "stories15M_once_upon_64.json"),
        (CHAT_MODEL, "smollm2-135m-instruct-q4_1_once_upon_64.json"),
        (CHAT_MODEL, "smollm2-135m-instruct-q4_1_chat_france.json"),
    ] {
        let golden = golden(name);
        let expected = ids(&golden["generated_ids"]);
        let expected = &expected[..expected.len().min(16)];
        let transformer = load_on(&device, model, Precision::Exact, 64);
        let text = greedy(&transformer, &ids(&golden["prompt_ids"]), expected.len());
        assert_eq!(text, expected, "{name}");
    }
}

/// The logits after a prompt and after each token that follows it.
fn logits_along(transformer: Arc<Transformer>, kind: CacheType, text: &[u32]) -> Vec<Vec<f32>> {
    let mut session = Session::new(transformer, kind).unwrap();
    let first = text.len() - 16;
    let steps = (first..=text.len()).map(|end| session.prefill(&text[..end]).unwrap().0.to_vec());
    steps.collect()
}

/// The root mean square difference of two lists of logits, relative to the standard deviation of the second.
fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    assert_eq!(a.len(), b.len());
    let (mut off, mut spread) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.len(), b.len());
        let mean = b.iter().map(|&x| f64::from(x)).sum::<f64>() / b.len() as f64;
        for (&a, &b) in a.iter().zip(b) {
            off += (f64::from(a) - f64::from(b)).powi(2);
            spread += (f64::from(b) - mean).powi(2);
        }
    }
    (off / spread).sqrt()
}

/// An 8-bit KV cache costs the software device no more accuracy than the CPU. Bits may differ: an element
/// near a tie is rounded up on one and down on the other, and thirty layers amplify that.
#[test]
fn keys_of_8_bits_are_as_accurate_on_the_software_device_as_on_the_cpu() {
    let soft = Device::software().unwrap();
    for (model, name) in [
        ("stories15m", "stories15M_once_upon_64.json"),
        (CHAT_MODEL, "smollm2-135m-instruct-q4_1_chat_france.json"),
    ] {
        let golden = golden(name);
        let mut text = ids(&golden["prompt_ids"]);
        text.extend(ids(&golden["generated_ids"]).iter().cycle().take(16));
        let run = |device: &Device, kind| {
            logits_along(load_on(device, model, Precision::Exact, 64), kind, &text)
        };
        let exact = run(&Device::cpu(), CacheType::F32);
        let cpu = distance(&run(&Device::cpu(), CacheType::Q8_0), &exact);
        let soft = distance(&run(&soft, CacheType::Q8_0), &exact);
        // 0.0068 on both for the first, 0.046 and 0.039 for the second.
        assert!(soft < 1.5 * cpu, "{name}: {soft}, on the CPU {cpu}");
    }
}

#[test]
fn smollm2_has_the_golden_logits() {
    let golden = golden("smollm2-135m-instruct-q4_1_chat_france.json");
    let prompt = ids(&golden["prompt_ids"]);
    let expected: Vec<f32> = golden["first_step_logits_first16"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap() as f32)
        .collect();
    assert_eq!(expected.len(), 16);
    let [exact, fast] = [Precision::Exact, Precision::Fast].map(|precision| {
        let transformer = load(CHAT_MODEL, precision, 256);
        let vocab = transformer.config().vocab;
        let mut session = Session::new(transformer, CacheType::F32).unwrap();
        let logits = session.prefill(&prompt).unwrap().0.to_vec();
        assert_eq!(logits.len(), vocab);
        logits
    });
    // Sums of f32 in another order move logits by up to 2.4e-5.
    for (a, e) in exact.iter().zip(&expected) {
        assert!((a - e).abs() < 2e-4, "{a} {e}");
    }
    // Rounding activations to 8 bits moves them by 0.19 of their spread.
    let off = distance(&[fast], &[exact]);
    assert!(off < 0.28, "{off}");
}

#[test]
fn minilm_computes_the_golden_vectors() {
    let golden = golden("all-MiniLM-L6-v2_embeddings.json");
    for device in [Device::cpu(), Device::software().unwrap()] {
        let encoder = Encoder::on(&device, &open("minilm")).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let vector = encoder.embed(&ids(&case["input_ids"])).unwrap();
            let expected = case["embedding"].as_array().unwrap();
            assert_eq!(vector.len(), expected.len());
            for (a, e) in vector.iter().zip(expected) {
                let off = (f64::from(*a) - e.as_f64().unwrap()).abs();
                assert!(off < 1e-5, "{} on {device}: {off}", case["text"]);
            }
        }
    }
}

/// The logits after the last token of a text that is processed in pieces of these lengths.
fn in_pieces(transformer: &Transformer, kind: CacheType, pieces: &[&[u32]]) -> Vec<f32> {
    let mut cache = Cache::new(transformer, kind, 1, 256).unwrap();
    let mut workspace = Workspace::default();
    for tokens in pieces {
        let input = Input {
            sequence: 0,
            tokens,
            logits: Logits::Last,
        };
        transformer
            .forward(&mut cache, &[input], &mut workspace)
            .unwrap();
    }
    workspace.logits().to_vec()
}

#[test]
fn a_prompt_in_one_batch_in_pieces_or_token_by_token_has_the_same_bits() {
    let golden = golden("smollm2-135m-instruct-q4_1_chat_france.json");
    let prompt = ids(&golden["prompt_ids"]);
    let transformer = load(CHAT_MODEL, Precision::Fast, 256);
    for kind in CacheType::ALL {
        let at_once = in_pieces(&transformer, kind, &[&prompt]);
        let singly: Vec<_> = prompt.chunks(1).collect();
        assert_eq!(at_once, in_pieces(&transformer, kind, &singly));
        let (a, b) = prompt.split_at(7);
        assert_eq!(at_once, in_pieces(&transformer, kind, &[a, b]));
    }
    // Exact GEMM and GEMV sum in different orders.
    let transformer = load(CHAT_MODEL, Precision::Exact, 256);
    let at_once = in_pieces(&transformer, CacheType::F32, &[&prompt]);
    let singly: Vec<_> = prompt.chunks(1).collect();
    let singly = in_pieces(&transformer, CacheType::F32, &singly);
    for (a, b) in at_once.iter().zip(singly) {
        assert!((a - b).abs() < 2e-3, "{a} {b}");
    }
}

#[test]
fn sequences_of_different_lengths_are_batched() {
    let transformer = load(CHAT_MODEL, Precision::Fast, 256);
    let texts: [&[u32]; 3] = [
        &[6403, 1980, 253, 655],
        &[504, 3575],
        &[1, 4093, 198, 1780, 314, 260, 3575],
    ];
    let alone = texts.map(|t| in_pieces(&transformer, CacheType::F16, &[t]));
    let mut cache = Cache::new(&transformer, CacheType::F16, 3, 64).unwrap();
    let inputs: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(sequence, tokens)| Input {
            sequence,
            tokens,
            logits: Logits::Last,
        })
        .collect();
    let mut workspace = Workspace::default();
    transformer
        .forward(&mut cache, &inputs, &mut workspace)
        .unwrap();
    let vocab = transformer.config().vocab;
    for (batched, alone) in workspace.logits().chunks(vocab).zip(&alone) {
        assert_eq!(batched, &alone[..]);
    }
}

#[test]
fn a_reused_prefix_changes_nothing() {
    let transformer = load(CHAT_MODEL, Precision::Fast, 64);
    let long: Vec<u32> = (100..130).collect();
    let mut other = long.clone();
    other.truncate(20);
    other.extend([5, 6, 7]);
    let mut session = Session::new(Arc::clone(&transformer), CacheType::F16).unwrap();
    assert_eq!(session.prefill(&long).unwrap().1, 0);
    let (logits, reused) = session.prefill(&other).unwrap();
    assert_eq!(reused, 20);
    let logits = logits.to_vec();
    let mut fresh = Session::new(transformer, CacheType::F16).unwrap();
    assert_eq!(logits, fresh.prefill(&other).unwrap().0);
    // The same prompt: only the last token is computed.
    assert_eq!(session.prefill(&other).unwrap().1, other.len() - 1);
}

#[test]
fn generation_ends_when_the_context_is_full() {
    let transformer = load(CHAT_MODEL, Precision::Fast, 16);
    let mut session = Session::new(Arc::clone(&transformer), CacheType::F16).unwrap();
    let options = Options {
        sampling: Sampling::default(),
        max_tokens: 100,
        stops: vec![],
    };
    let go_on = |_| ControlFlow::Continue(());
    let report = session
        .generate(&[6403, 1980, 253, 655], &options, go_on)
        .unwrap();
    assert_eq!(report.finish.name(), "context");
    // 16 positions, and the token that follows the last of them.
    assert_eq!(report.ids.len(), 13);
    let long: Vec<u32> = (0..17).collect();
    let error = session.prefill(&long).unwrap_err().to_string();
    assert!(error.contains("17") && error.contains("16"), "{error}");
}

/// The perplexity of a model on a text.
fn perplexity(model: &Model, precision: Precision, cache: CacheType) -> f64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/river.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let tokens = Tokenizer::of(model).unwrap().encode(&text, true).unwrap();
    let context = 512;
    let transformer = Transformer::new(model, model::Options { precision, context }).unwrap();
    let options = perplexity::Options {
        window: context,
        begin: None,
        cache,
    };
    let result = perplexity::measure(&transformer, &tokens, &options, |_, _| {}).unwrap();
    assert_eq!(result.tokens, tokens.len() - 1);
    result.value()
}

#[test]
fn fixed_point_f16_weights_have_the_perplexity_of_exact_products() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f16.gguf");
    quantize(&open(CHAT_MODEL), &path, Format::F16, true, |_| {}).unwrap();
    let model = Model::open(&path).unwrap();
    let exact = perplexity(&model, Precision::Exact, CacheType::F16);
    let rounded = perplexity(&model, Precision::Fast, CacheType::F16);
    let off = (rounded / exact - 1.0).abs();
    assert!(off < 0.0005, "{rounded} and {exact}");
}

#[test]
fn eight_bit_activations_have_the_perplexity_of_exact_products() {
    let model = open(CHAT_MODEL);
    let run = |precision, cache| perplexity(&model, precision, cache);
    let exact = run(Precision::Exact, CacheType::F32);
    // The two combined differ by 0.4 to 0.7 %, depending on rounding, which is not guaranteed.
    for (precision, kind) in [
        (Precision::Fast, CacheType::F16),
        (Precision::Exact, CacheType::Q8_0),
    ] {
        let rounded = run(precision, kind);
        let off = (rounded / exact - 1.0).abs();
        assert!(
            off < 0.005,
            "{precision:?}, {kind:?}: {rounded} and {exact}"
        );
    }
}

#[test]
fn a_shifted_context_equals_a_new_one_of_the_kept_tokens() {
    let transformer = load(CHAT_MODEL, Precision::Fast, 24);
    let prompt = [6403, 1980, 253, 655, 28, 665];
    let options = Options {
        sampling: Sampling::default(),
        max_tokens: 40,
        stops: vec![],
    };
    let go_on = |_| ControlFlow::Continue(());
    for keep in [6, 100] {
        let mut session = Session::new(Arc::clone(&transformer), CacheType::F16).unwrap();
        session.when_full(WhenFull::Shift { keep });
        let report = session.generate(&prompt, &options, go_on).unwrap();
        // The kept tokens in a new session.
        let keep = keep.min(12);
        let mut fresh = Session::new(Arc::clone(&transformer), CacheType::F16).unwrap();
        let (mut seen, mut ids, mut shifts) = (prompt.to_vec(), Vec::new(), 0);
        loop {
            let next = sample::argmax(fresh.prefill(&seen).unwrap().0);
            ids.push(next);
            if ids.len() == 40 {
                break;
            }
            if seen.len() == 24 {
                seen.drain(keep..keep + (24 - keep).div_ceil(2));
                fresh = Session::new(Arc::clone(&transformer), CacheType::F16).unwrap();
                shifts += 1;
            }
            seen.push(next);
        }
        assert_eq!((report.ids, report.shifts), (ids, shifts));
        assert!(shifts > 1 && report.finish.name() == "length");
    }
}
