//! Every family on a small model of random weights, against a plain forward pass in `f64` that shares no code with
//! the engine.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::collections::HashMap;
use std::path::PathBuf;

use bessemer::kernel::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::config::{Activation, Architecture};
use bessemer_llm::file::{Format, GgufWriter, Metadata, Model, NewTensor, Value};
use bessemer_llm::model::{Input, Logits, Options, Space};
use bessemer_llm::{Cache, Config, Transformer};
use tempfile::TempDir;

const WIDTH: usize = 24;
const FFN: usize = 40;
const HEADS: usize = 6;
const KV: usize = 2;
const DIM: usize = 8;
const LAYERS: usize = 3;
const VOCAB: usize = 50;
const WINDOW: usize = 5;

/// What a family's file has besides what all have.
struct Family {
    name: &'static str,
    tensors: &'static [(&'static str, &'static [usize])],
    metadata: &'static [(&'static str, f32)],
    fused: bool,
}

const FAMILIES: [Family; 7] = [
    Family {
        name: "llama",
        tensors: &[],
        metadata: &[],
        fused: false,
    },
    // Mistral is a llama with a window.
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
        // Every second layer sees everything.
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

type Weights = HashMap<String, Vec<f64>>;

/// Writes a model of a family and returns its weights, fused ones in parts.
fn write(family: &Family, dir: &TempDir) -> (PathBuf, Weights) {
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

fn norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let square = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (square + f64::from(1e-5_f32)).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * w).collect()
}

fn project(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let row = |w: &[f64]| w.iter().zip(x).map(|(a, b)| a * b).sum();
    weight.chunks(x.len()).map(row).collect()
}

fn turn(head: &mut [f64], position: usize, base: f64, neighbours: bool) {
    for i in 0..DIM / 2 {
        let angle = position as f64 * base.powf(-2.0 * i as f64 / DIM as f64);
        let (a, b) = if neighbours {
            (2 * i, 2 * i + 1)
        } else {
            (i, i + DIM / 2)
        };
        let (x, y) = (head[a], head[b]);
        head[a] = x * angle.cos() - y * angle.sin();
        head[b] = y * angle.cos() + x * angle.sin();
    }
}

/// The logits after every token.
fn reference(config: &Config, weights: &Weights, tokens: &[u32]) -> Vec<Vec<f64>> {
    let get = |name: &str| &weights[name];
    let is_gemma = matches!(
        config.architecture,
        Architecture::Gemma2 | Architecture::Gemma3
    );
    let add = |x: &mut [f64], y: &[f64]| x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    let embedding = get("token_embd.weight");
    let mut xs: Vec<Vec<f64>> = tokens
        .iter()
        .map(|&t| {
            let row = &embedding[t as usize * WIDTH..][..WIDTH];
            // The factor is rounded to f32, as it is where it is used.
            let scale = if is_gemma {
                f64::from((WIDTH as f32).sqrt())
            } else {
                1.0
            };
            row.iter().map(|v| v * scale).collect()
        })
        .collect();
    for layer in 0..LAYERS {
        let weight = |name: &str| weights.get(&format!("blk.{layer}.{name}"));
        let is_local = config.local_layers[layer];
        let base = match config.architecture {
            Architecture::Gemma3 if !is_local => 1e6,
            _ => 1e4,
        };
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (position, x) in xs.iter_mut().enumerate() {
            let h = norm(x, weight("attn_norm.weight").unwrap());
            let part = |name: &str| {
                let mut y = project(&h, weight(&format!("attn_{name}.weight")).unwrap());
                if let Some(bias) = weight(&format!("attn_{name}.bias")) {
                    add(&mut y, bias);
                }
                let norm_weight = weight(&format!("attn_{name}_norm.weight"));
                for head in y.chunks_mut(DIM).filter(|_| name != "v") {
                    if let Some(w) = norm_weight {
                        head.copy_from_slice(&norm(head, w));
                    }
                    turn(
                        head,
                        position,
                        base,
                        config.architecture == Architecture::Llama,
                    );
                }
                y
            };
            let q = part("q");
            keys.push(part("k"));
            values.push(part("v"));
            let first = match config.sliding_window {
                Some(window) if is_local => (position + 1).saturating_sub(window),
                _ => 0,
            };
            let mut mixed = vec![0.0; HEADS * DIM];
            for head in 0..HEADS {
                let own = head / (HEADS / KV) * DIM;
                let q = &q[head * DIM..][..DIM];
                let scores: Vec<f64> = keys[first..]
                    .iter()
                    .map(|k| {
                        let dot: f64 = q.iter().zip(&k[own..]).map(|(a, b)| a * b).sum();
                        let score = dot / (DIM as f64).sqrt();
                        match config.attention_softcap {
                            Some(cap) => cap * (score / cap).tanh(),
                            None => score,
                        }
                    })
                    .collect();
                let top = scores.iter().copied().fold(f64::MIN, f64::max);
                let shares: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
                let total: f64 = shares.iter().sum();
                for (share, v) in shares.iter().zip(&values[first..]) {
                    for d in 0..DIM {
                        mixed[head * DIM + d] += share / total * v[own + d];
                    }
                }
            }
            let mut y = project(&mixed, weight("attn_output.weight").unwrap());
            if let Some(w) = weight("post_attention_norm.weight") {
                y = norm(&y, w);
            }
            add(x, &y);
            let h = norm(x, weight("ffn_norm.weight").unwrap());
            let up = project(&h, weight("ffn_up.weight").unwrap());
            let inner: Vec<f64> = project(&h, weight("ffn_gate.weight").unwrap())
                .iter()
                .zip(up)
                .map(|(&g, u)| {
                    u * match config.activation {
                        Activation::Silu => g / (1.0 + (-g).exp()),
                        _ => {
                            let inside =
                                (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
                            0.5 * g * (1.0 + inside.tanh())
                        }
                    }
                })
                .collect();
            let mut y = project(&inner, weight("ffn_down.weight").unwrap());
            if let Some(w) = weight("post_ffw_norm.weight") {
                y = norm(&y, w);
            }
            add(x, &y);
        }
    }
    xs.iter()
        .map(|x| {
            let mut logits = project(&norm(x, get("output_norm.weight")), embedding);
            if let Some(cap) = config.final_softcap {
                logits.iter_mut().for_each(|l| *l = cap * (*l / cap).tanh());
            }
            logits
        })
        .collect()
}

#[test]
fn every_family_computes_what_its_formulas_say() {
    let tokens: Vec<u32> = (0..20).map(|i| (i * 13 + 5) % VOCAB as u32).collect();
    for family in &FAMILIES {
        let dir = TempDir::new().unwrap();
        let (path, weights) = write(family, &dir);
        let file = Model::open(path).unwrap();
        let options = Options {
            precision: Precision::Exact,
            context: 64,
        };
        let transformer = Transformer::new(&file, options).unwrap();
        let expected = reference(transformer.config(), &weights, &tokens);
        let run = |pieces: &[&[u32]]| {
            let mut cache = Cache::new(transformer.config(), CacheType::F32, 64).unwrap();
            let mut space = Space::default();
            let mut all = Vec::new();
            for tokens in pieces {
                let input = Input {
                    cache: &mut cache,
                    tokens,
                    logits: Logits::All,
                };
                transformer.forward(&mut [input], &mut space).unwrap();
                all.extend_from_slice(space.logits());
            }
            all
        };
        let singly: Vec<_> = tokens.chunks(1).collect();
        for logits in [run(&[&tokens]), run(&singly)] {
            assert_eq!(logits.len(), tokens.len() * VOCAB);
            for (i, (a, e)) in logits.chunks(VOCAB).zip(&expected).enumerate() {
                for (a, e) in a.iter().zip(e) {
                    let off = (f64::from(*a) - e).abs();
                    assert!(off < 2e-4, "{} after token {i}: {a} {e}", family.name);
                }
            }
        }
    }
}

#[test]
fn tokens_and_lengths_that_do_not_fit_are_refused_and_change_nothing() {
    let dir = TempDir::new().unwrap();
    let (path, _) = write(&FAMILIES[0], &dir);
    let options = Options {
        precision: Precision::Exact,
        context: 4,
    };
    let transformer = Transformer::new(&Model::open(path).unwrap(), options).unwrap();
    let mut cache = Cache::new(transformer.config(), CacheType::F32, 4).unwrap();
    let mut space = Space::default();
    let mut run = |tokens: &[u32]| {
        let input = Input {
            cache: &mut cache,
            tokens,
            logits: Logits::Last,
        };
        let result = transformer.forward(&mut [input], &mut space);
        (result.map_err(|e| e.to_string()), cache.len())
    };
    let (result, len) = run(&[VOCAB as u32]);
    assert!(result.unwrap_err().contains("vocabulary") && len == 0);
    assert_eq!(run(&[1, 2, 3]), (Ok(()), 3));
    let (result, len) = run(&[4, 5]);
    assert!(result.unwrap_err().contains("context of 4") && len == 3);
}
