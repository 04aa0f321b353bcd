//! A reference forward pass in `f64` that shares no code with the engine.

use bessemer_llm::Config;
use bessemer_llm::config::{Activation, Architecture};

use crate::model::{DIM, HEADS, KV, LAYERS, WIDTH, Weights};

fn norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let square = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (square + f64::from(1e-5_f32)).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * w).collect()
}

fn project(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let row = |w: &[f64]| w.iter().zip(x).map(|(a, b)| a * b).sum();
    weight.chunks(x.len()).map(row).collect()
}

fn rope(head: &mut [f64], position: usize, base: f64, neighbours: bool) {
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
pub(crate) fn reference(config: &Config, weights: &Weights, tokens: &[u32]) -> Vec<Vec<f64>> {
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
            // The factor is rounded to f32, as in the engine.
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
                    rope(
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
