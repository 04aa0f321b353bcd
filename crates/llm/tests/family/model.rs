//! Small models of random weights, one of every family.

use std::collections::HashMap;
use std::path::PathBuf;

use bessemer_llm::file::{Format, GgufWriter, Metadata, NewTensor, Value};
use tempfile::TempDir;

pub(crate) const WIDTH: usize = 24;
pub(crate) const FFN: usize = 40;
pub(crate) const HEADS: usize = 6;
pub(crate) const KV: usize = 2;
pub(crate) const DIM: usize = 8;
pub(crate) const LAYERS: usize = 3;
pub(crate) const VOCAB: usize = 50;
pub(crate) const WINDOW: usize = 5;

/// Family-specific contents of a model file.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    tensors: &'static [(&'static str, &'static [usize])],
    metadata: &'static [(&'static str, f32)],
    fused: bool,
}

pub(crate) const FAMILIES: [Family; 7] = [
    Family {
        name: "llama",
        tensors: &[],
        metadata: &[],
        fused: false,
    },
    // Mistral is Llama with a sliding window.
    Family {
        name: "llama",
        tensors: &[],
        metadata: &[("attention.sliding_window", WINDOW as f32)],
        fused: false,
    },
    Family {
        name: "qwen2",
        tensors: &[
            ("attn_q.bias", &[HEADS * DIM]),
            ("attn_k.bias", &[KV * DIM]),
            ("attn_v.bias", &[KV * DIM]),
        ],
        metadata: &[],
        fused: false,
    },
    Family {
        name: "qwen3",
        tensors: &[
            ("attn_q_norm.weight", &[DIM]),
            ("attn_k_norm.weight", &[DIM]),
        ],
        metadata: &[],
        fused: false,
    },
    Family {
        name: "gemma2",
        tensors: &[
            ("post_attention_norm.weight", &[WIDTH]),
            ("post_ffw_norm.weight", &[WIDTH]),
        ],
        metadata: &[("attention.sliding_window", WINDOW as f32)],
        fused: false,
    },
    Family {
        name: "gemma3",
        tensors: &[
            ("attn_q_norm.weight", &[DIM]),
            ("attn_k_norm.weight", &[DIM]),
            ("post_attention_norm.weight", &[WIDTH]),
            ("post_ffw_norm.weight", &[WIDTH]),
        ],
        // Every second layer has full attention.
        metadata: &[
            ("attention.sliding_window", WINDOW as f32),
            ("attention.sliding_window_pattern", 2.0),
            ("rope.freq_base", 1e6),
        ],
        fused: false,
    },
    Family {
        name: "phi3",
        tensors: &[],
        metadata: &[],
        fused: true,
    },
];

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}

pub(crate) type Weights = HashMap<String, Vec<f64>>;

/// Writes a model of a family and returns its weights, fused ones split.
pub(crate) fn write(family: &Family, dir: &TempDir) -> (PathBuf, Weights) {
    let mut metadata = Metadata::default();
    metadata.set(
        "general.architecture",
        Value::String(family.name.to_owned()),
    );
    let key = |k: &str| format!("{}.{k}", family.name);
    for (k, v) in [
        ("block_count", LAYERS),
        ("context_length", 64),
        ("embedding_length", WIDTH),
        ("feed_forward_length", FFN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV),
        ("attention.key_length", DIM),
        ("attention.value_length", DIM),
    ] {
        metadata.set(&key(k), Value::U32(v as u32));
    }
    metadata.set(&key("attention.layer_norm_rms_epsilon"), Value::F32(1e-5));
    for (k, v) in family.metadata {
        let value = match *k {
            "rope.freq_base" => Value::F32(*v),
            _ => Value::U32(*v as u32),
        };
        metadata.set(&key(k), value);
    }
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("token_embd.weight".to_owned(), vec![VOCAB, WIDTH]),
        ("output_norm.weight".to_owned(), vec![WIDTH]),
    ];
    for i in 0..LAYERS {
        let mut add = |name: &str, shape: &[usize]| {
            tensors.push((format!("blk.{i}.{name}"), shape.to_vec()));
        };
        add("attn_norm.weight", &[WIDTH]);
        if family.fused {
            add("attn_qkv.weight", &[(HEADS + 2 * KV) * DIM, WIDTH]);
            add("ffn_up.weight", &[2 * FFN, WIDTH]);
        } else {
            add("attn_q.weight", &[HEADS * DIM, WIDTH]);
            add("attn_k.weight", &[KV * DIM, WIDTH]);
            add("attn_v.weight", &[KV * DIM, WIDTH]);
            add("ffn_gate.weight", &[FFN, WIDTH]);
            add("ffn_up.weight", &[FFN, WIDTH]);
        }
        add("attn_output.weight", &[WIDTH, HEADS * DIM]);
        add("ffn_norm.weight", &[WIDTH]);
        add("ffn_down.weight", &[WIDTH, FFN]);
        for (name, shape) in family.tensors {
            add(name, shape);
        }
    }
    let new: Vec<NewTensor> = tensors
        .iter()
        .map(|(name, shape)| NewTensor {
            name: name.clone(),
            format: Format::F32,
            shape: shape.clone(),
        })
        .collect();
    let path = dir.path().join("model.gguf");
    let mut writer = GgufWriter::create(&path, &metadata, &new).unwrap();
    let mut numbers = Numbers(0x1234_5678_9ABC_DEF1);
    let mut weights = Weights::new();
    for (name, shape) in &tensors {
        let is_norm = name.contains("norm");
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|_| numbers.next() * if is_norm { 0.3 } else { 0.4 } + f32::from(is_norm))
            .collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        writer.push(&bytes).unwrap();
        let wide: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
        if let Some(block) = name.strip_suffix("attn_qkv.weight") {
            let (q, rest) = wide.split_at(HEADS * DIM * WIDTH);
            let (k, v) = rest.split_at(KV * DIM * WIDTH);
            for (part, values) in [("q", q), ("k", k), ("v", v)] {
                weights.insert(format!("{block}attn_{part}.weight"), values.to_vec());
            }
        } else if let Some(block) = name.strip_suffix("ffn_up.weight").filter(|_| family.fused) {
            let (gate, up) = wide.split_at(FFN * WIDTH);
            weights.insert(format!("{block}ffn_gate.weight"), gate.to_vec());
            weights.insert(format!("{block}ffn_up.weight"), up.to_vec());
        } else {
            weights.insert(name.clone(), wide);
        }
    }
    writer.finish().unwrap();
    (path, weights)
}
