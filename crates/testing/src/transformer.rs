//! Random transformers of every family, and their reference logits: a forward pass in `f64`, token by token.

mod family;

use bessemer::RopeStyle;
use bessemer::decoder::{Layer, Projection, Spec};
use bessemer::quant::QuantMatrix;
use bessemer::{Activation, CacheType};
use half::f16;

pub use family::{Family, WeightFormat, formats};

use crate::reference::unary;

/// A sequence of a transformer, processed token by token.
#[derive(Debug)]
pub struct Reference<'a> {
    spec: &'a Spec,
    kind: CacheType,
    /// Keys and values of every layer: `kv_heads * head_dim` values per position.
    caches: Vec<[Vec<f64>; 2]>,
    len: usize,
    matrices: Matrices,
}

/// Weights of a layer: `q`, `k`, `v`, the output, the gate, `up`, `down`.
type LayerMatrices = [Vec<f64>; 7];

#[derive(Debug)]
struct Matrices {
    head: Vec<f64>,
    layers: Vec<LayerMatrices>,
}

fn widen(matrix: &QuantMatrix) -> Vec<f64> {
    let mut row = vec![0.0; matrix.cols()];
    let mut all = Vec::new();
    for i in 0..matrix.rows() {
        matrix.row(i, &mut row);
        all.extend(row.iter().map(|&w| f64::from(w)));
    }
    all
}

fn norm(x: &[f64], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    let scaled = x.iter().zip(weight).map(|(v, w)| v * scale * f64::from(*w));
    scaled.collect()
}

fn project(matrix: &[f64], projection: &Projection, x: &[f64]) -> Vec<f64> {
    let rows = matrix.chunks_exact(x.len());
    let mut y: Vec<f64> = rows
        .map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
        .collect();
    if let Some(bias) = &projection.bias {
        y.iter_mut()
            .zip(bias)
            .for_each(|(y, b)| *y += f64::from(*b));
    }
    y
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => unary::gelu(x),
        Activation::GeluTanh => unary::gelu_tanh(x),
    }
}

fn cap(x: f64, cap: Option<f32>) -> f64 {
    cap.map_or(x, |c| f64::from(c) * (x / f64::from(c)).tanh())
}

/// The values of a block after rounding to `q8_0`.
fn narrow(block: &[f64]) -> impl Iterator<Item = f64> {
    let largest = block.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let scale = largest / 127.0;
    let kept = f64::from(f16::from_f64(scale));
    let level = move |&x: &f64| {
        if scale == 0.0 {
            0.0
        } else {
            (x / scale).round()
        }
    };
    block.iter().map(move |x| level(x) * kept)
}

impl<'a> Reference<'a> {
    /// An empty sequence with a KV cache of this type.
    pub fn new(spec: &'a Spec, kind: CacheType) -> Self {
        let layer = |l: &Layer| {
            let gate = l.gate.as_ref().unwrap_or(&l.up);
            [&l.q, &l.k, &l.v, &l.output, gate, &l.up, &l.down].map(|p| widen(&p.weight))
        };
        Self {
            spec,
            kind,
            caches: vec![Default::default(); spec.layers.len()],
            len: 0,
            matrices: Matrices {
                head: widen(&spec.head),
                layers: spec.layers.iter().map(layer).collect(),
            },
        }
    }

    /// Forgets all tokens from `len` on.
    pub fn truncate(&mut self, len: usize) {
        let row = self.spec.kv_heads * self.spec.head_dim;
        self.len = self.len.min(len);
        for side in self.caches.iter_mut().flatten() {
            side.truncate(self.len * row);
        }
    }

    /// Processes a token and returns the logits after it.
    pub fn take(&mut self, token: u32) -> Vec<f64> {
        let spec = self.spec;
        let mut row = vec![0.0; spec.width];
        spec.embedding.row(token as usize, &mut row);
        let scale = f64::from(spec.embedding_scale);
        let mut x: Vec<f64> = row.iter().map(|&v| f64::from(v) * scale).collect();
        for index in 0..spec.layers.len() {
            self.layer(index, &mut x);
        }
        self.len += 1;
        let x = norm(&x, &spec.output_norm, spec.eps);
        let rows = self.matrices.head.chunks_exact(spec.width);
        let logits = rows.map(|row| row.iter().zip(&x).map(|(w, x)| w * x).sum());
        logits.map(|l| cap(l, spec.final_softcap)).collect()
    }

    fn layer(&mut self, index: usize, x: &mut [f64]) {
        let spec = self.spec;
        let layer = &spec.layers[index];
        let [q, k, v, output, gate, up, down] = &self.matrices.layers[index];
        let normed = norm(x, &layer.attn_norm, spec.eps);
        let mut q = project(q, &layer.q, &normed);
        let mut k = project(k, &layer.k, &normed);
        let v = project(v, &layer.v, &normed);
        for (heads, weight) in [(&mut q, &layer.q_norm), (&mut k, &layer.k_norm)] {
            if let Some(weight) = weight {
                for head in heads.chunks_exact_mut(spec.head_dim) {
                    let normed = norm(head, weight, spec.eps);
                    head.copy_from_slice(&normed);
                }
            }
            self.rotate(layer, heads);
        }
        let [keys, values] = &mut self.caches[index];
        for (cache, new) in [(&mut *keys, k), (&mut *values, v)] {
            match self.kind {
                CacheType::F32 => cache.extend(new),
                CacheType::F16 => cache.extend(new.iter().map(|&x| f64::from(f16::from_f64(x)))),
                CacheType::Q8_0 => {
                    let heads = new.chunks(spec.head_dim);
                    heads
                        .flat_map(|h| h.chunks(32))
                        .for_each(|block| cache.extend(narrow(block)));
                }
            }
        }
        let mixed = self.attend(index, &q);
        let mut added = project(output, &layer.output, &mixed);
        if let Some(weight) = &layer.post_attention_norm {
            added = norm(&added, weight, spec.eps);
        }
        x.iter_mut().zip(&added).for_each(|(x, a)| *x += a);
        let normed = norm(x, &layer.ffn_norm, spec.eps);
        let mut inner = project(up, &layer.up, &normed);
        match &layer.gate {
            Some(projection) => {
                let gate = project(gate, projection, &normed);
                let pairs = inner.iter_mut().zip(gate);
                pairs.for_each(|(x, g)| *x *= activate(spec.activation, g));
            }
            None => inner
                .iter_mut()
                .for_each(|x| *x = activate(spec.activation, *x)),
        }
        let mut added = project(down, &layer.down, &inner);
        if let Some(weight) = &layer.post_ffn_norm {
            added = norm(&added, weight, spec.eps);
        }
        x.iter_mut().zip(&added).for_each(|(x, a)| *x += a);
    }

    fn rotate(&self, layer: &Layer, heads: &mut [f64]) {
        let table = &self.spec.rotations[usize::from(layer.is_local)];
        let frequencies: Vec<f64> = table.frequencies().to_vec().expect("a table is there");
        let count = frequencies.len();
        for head in heads.chunks_exact_mut(self.spec.head_dim) {
            for (p, f) in frequencies.iter().enumerate() {
                let (i, j) = match table.style() {
                    RopeStyle::Interleaved => (2 * p, 2 * p + 1),
                    RopeStyle::HalfSplit => (p, p + count),
                };
                let (sin, cos) = (self.len as f64 * f).sin_cos();
                let (a, b) = (head[i], head[j]);
                head[i] = (a * cos - b * sin) * table.attention_factor();
                head[j] = (b * cos + a * sin) * table.attention_factor();
            }
        }
    }

    fn attend(&self, index: usize, q: &[f64]) -> Vec<f64> {
        let spec = self.spec;
        let (dim, row) = (spec.head_dim, spec.kv_heads * spec.head_dim);
        let [keys, values] = &self.caches[index];
        let end = self.len + 1;
        let window = spec.layers[index].window;
        let start = window.map_or(0, |w| end.saturating_sub(w));
        let mut mixed = Vec::new();
        for (head, q) in q.chunks_exact(dim).enumerate() {
            let at = head / (spec.heads / spec.kv_heads) * dim;
            let scores: Vec<f64> = (start..end)
                .map(|p| {
                    let key = &keys[p * row + at..][..dim];
                    let product: f64 = q.iter().zip(key).map(|(q, k)| q * k).sum();
                    let score = product * f64::from(spec.attention_scale);
                    cap(score, spec.attention_softcap)
                })
                .collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..dim {
                let parts = weights.iter().zip(start..end);
                let sum: f64 = parts.map(|(w, p)| w * values[p * row + at + d]).sum();
                mixed.push(sum / total);
            }
        }
        mixed
    }
}
