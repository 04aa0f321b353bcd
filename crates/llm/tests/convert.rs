//! Conversion of safetensors models to GGUF: the same model, for any order of the weights.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::path::Path;

use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::file::{Container, Format, Model};
use bessemer_llm::model::{Input, Logits, Options, Workspace};
use bessemer_llm::quantize::quantize;
use bessemer_llm::{Cache, Encoder, Tokenizer, Transformer, pull};
use serde_json::{Value, json};
use tempfile::TempDir;

const WIDTH: usize = 32;
const FFN: usize = 64;
const HEADS: usize = 4;
const KV: usize = 2;
const DIM: usize = 8;
const VOCAB: usize = 40;

/// Writes a small model of random weights with its companions.
fn write(dir: &Path, config: &Value, extra: &[(&str, &[usize])]) {
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, WIDTH]),
        ("model.norm.weight".to_owned(), vec![WIDTH]),
    ];
    for layer in 0..2 {
        let layer_tensors: [(&str, &[usize]); 9] = [
            ("input_layernorm.weight", &[WIDTH]),
            ("self_attn.q_proj.weight", &[HEADS * DIM, WIDTH]),
            ("self_attn.k_proj.weight", &[KV * DIM, WIDTH]),
            ("self_attn.v_proj.weight", &[KV * DIM, WIDTH]),
            ("self_attn.o_proj.weight", &[WIDTH, HEADS * DIM]),
            ("post_attention_layernorm.weight", &[WIDTH]),
            ("mlp.gate_proj.weight", &[FFN, WIDTH]),
            ("mlp.up_proj.weight", &[FFN, WIDTH]),
            ("mlp.down_proj.weight", &[WIDTH, FFN]),
        ];
        for (name, shape) in layer_tensors.iter().chain(extra) {
            tensors.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
        }
    }
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    let mut seed = 0x1234_5678_9ABC_DEF1_u64;
    for (name, shape) in &tensors {
        let start = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let number = (seed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0;
            data.extend((number * 0.3).to_le_bytes());
        }
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    std::fs::write(dir.join("model.safetensors"), file).unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let vocab: serde_json::Map<_, _> = (0..VOCAB)
        .map(|i| (format!("{}", (b'0' + i as u8) as char), json!(i)))
        .collect();
    let tokenizer = json!({
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
        "decoder": { "type": "ByteLevel" },
        "added_tokens": [{ "id": VOCAB - 1, "content": "<end>", "special": true }],
    });
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let end = json!({ "eos_token": "<end>" });
    std::fs::write(dir.join("tokenizer_config.json"), end.to_string()).unwrap();
}

fn logits(model: &Model) -> Vec<f32> {
    let options = Options {
        precision: Precision::Exact,
        context: 16,
    };
    let transformer = Transformer::new(model, options).unwrap();
    let mut cache = Cache::new(&transformer, CacheType::F32, 1, 16).unwrap();
    let mut workspace = Workspace::default();
    let input = Input {
        sequence: 0,
        tokens: &[3, 1, 4, 1, 5, 9, 2, 6],
        logits: Logits::All,
    };
    transformer
        .forward(&mut cache, &[input], &mut workspace)
        .unwrap();
    workspace.logits().to_vec()
}

#[test]
fn a_converted_model_computes_the_same() {
    let llama = json!({
        "model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 64, "hidden_size": WIDTH,
        "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV, "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0, "vocab_size": VOCAB, "tie_word_embeddings": true,
    });
    let mut gemma = llama.clone();
    for (key, value) in [
        ("model_type", json!("gemma3_text")),
        ("head_dim", json!(DIM)),
        ("query_pre_attn_scalar", json!(DIM)),
        ("sliding_window", json!(4)),
        ("sliding_window_pattern", json!(2)),
        ("hidden_activation", json!("gelu_pytorch_tanh")),
    ] {
        gemma[key] = value;
    }
    let extra: &[(&str, &[usize])] = &[
        ("self_attn.q_norm.weight", &[DIM]),
        ("self_attn.k_norm.weight", &[DIM]),
        ("pre_feedforward_layernorm.weight", &[WIDTH]),
        ("post_feedforward_layernorm.weight", &[WIDTH]),
    ];
    for (config, extra) in [(llama, &[][..]), (gemma, extra)] {
        let dir = TempDir::new().unwrap();
        write(dir.path(), &config, extra);
        let source = Model::open(dir.path()).unwrap();
        assert_eq!(source.container(), Container::Safetensors);
        let expected = logits(&source);
        let path = dir.path().join("out.gguf");
        quantize(&source, &path, Format::F32, false, |_| {}).unwrap();
        let converted = Model::open(&path).unwrap();
        for (a, e) in logits(&converted).iter().zip(&expected) {
            assert!((a - e).abs() < 1e-5, "{}: {a} {e}", config["model_type"]);
        }
        // With the embedded tokenizer.
        std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
        let tokenizer = Tokenizer::of(&converted).unwrap();
        assert_eq!(tokenizer.encode("314", false).unwrap(), [3, 1, 4]);
        assert_eq!(tokenizer.eos(), Some(VOCAB as u32 - 1));
        // The tokenizer is required.
        let path = dir.path().join("again.gguf");
        quantize(&source, &path, Format::F32, false, |_| {}).unwrap_err();
        assert!(!path.exists());
    }
}

#[test]
fn a_converted_encoder_keeps_its_similarities() {
    let models = pull::directory().unwrap();
    let listed = pull::find("minilm").unwrap();
    assert_eq!(listed.state(&models), pull::State::Ready);
    let source = Model::open(listed.path(&models)).unwrap();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("minilm.gguf");
    quantize(&source, &path, Format::Q8_0, false, |_| {}).unwrap();
    let converted = Model::open(&path).unwrap();
    let text = "That is a happy person";
    let embed = |model: &Model| {
        let tokens = Tokenizer::of(model).unwrap().encode(text, true).unwrap();
        Encoder::new(model).unwrap().embed(&tokens).unwrap()
    };
    let (a, b) = (embed(&source), embed(&converted));
    let alike: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
    assert!(alike > 0.999, "{alike}");
}
