//! Random transformers.

use bessemer::Activation;
use bessemer::decoder::{Layer, Projection, Spec};
use bessemer::quant::{self, BlockFormat, QuantMatrix, Weights};
use bessemer::{Result, RopeOptions, RopeScaling, RopeStyle};
use half::{bf16, f16};

use crate::random::Rng;

/// The format of weights.
pub type WeightFormat = Weights;

/// The architecture of a random transformer. Sizes are small; the block formats determine what they are multiples of.
#[derive(Clone, Debug)]
pub struct Family {
    /// Sizes, as [`Spec`] has them.
    pub width: usize,
    /// See [`Spec`].
    pub heads: usize,
    /// See [`Spec`].
    pub kv_heads: usize,
    /// See [`Spec`].
    pub head_dim: usize,
    /// See [`Spec`].
    pub ffn: usize,
    /// See [`Spec`].
    pub vocab: usize,
    /// Number of layers.
    pub layers: usize,
    /// Formats of the embedding, of `q` and `k`, of `v` and `down`, and of the rest.
    pub formats: [WeightFormat; 4],
    /// Whether the output head is tied to the embedding.
    pub is_tied: bool,
    /// The pairing of rotated elements.
    pub style: RopeStyle,
    /// Number of rotated elements of a head; `None` stands for all.
    pub rope_dims: Option<usize>,
    /// Frequency scaling, in layers without a sliding window.
    pub scaling: RopeScaling,
    /// Whether `q`, `k` and `v` have biases.
    pub has_qkv_bias: bool,
    /// Whether all other projections have biases.
    pub has_bias: bool,
    /// Whether query and key heads have norms.
    pub has_head_norms: bool,
    /// Whether the outputs of attention and FFN have norms.
    pub has_post_norms: bool,
    /// Whether the FFN is gated.
    pub is_gated: bool,
    /// The activation of the FFN.
    pub activation: Activation,
    /// Soft caps of scores and of logits.
    pub soft_caps: [Option<f32>; 2],
    /// Sliding window, in all but every third layer.
    pub window: Option<usize>,
    /// Factor of the embedding.
    pub embedding_scale: f32,
}

impl Default for Family {
    /// Llama: grouped-query attention, SwiGLU, interleaved RoPE.
    fn default() -> Self {
        Self {
            width: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 96,
            vocab: 80,
            layers: 2,
            formats: [Weights::F32; 4],
            is_tied: false,
            style: RopeStyle::Interleaved,
            rope_dims: None,
            scaling: RopeScaling::None,
            has_qkv_bias: false,
            has_bias: false,
            has_head_norms: false,
            has_post_norms: false,
            is_gated: true,
            activation: Activation::Silu,
            soft_caps: [None, None],
            window: None,
            embedding_scale: 1.0,
        }
    }
}

impl Family {
    /// Qwen 3 with the biases of Qwen 2: head norms, half-split RoPE.
    pub fn qwen() -> Self {
        Self {
            style: RopeStyle::HalfSplit,
            has_qkv_bias: true,
            has_head_norms: true,
            is_tied: true,
            ..Self::default()
        }
    }

    /// Gemma 2 and 3 combined: pre- and post-norms, soft caps, sliding windows, scaled embeddings.
    pub fn gemma() -> Self {
        Self {
            layers: 3,
            style: RopeStyle::HalfSplit,
            has_head_norms: true,
            has_post_norms: true,
            activation: Activation::GeluTanh,
            soft_caps: [Some(20.0), Some(10.0)],
            window: Some(6),
            embedding_scale: 8.0,
            is_tied: true,
            ..Self::default()
        }
    }

    /// Phi: partial RoPE, YaRN, biases everywhere, an ungated FFN with GELU.
    pub fn phi() -> Self {
        Self {
            style: RopeStyle::HalfSplit,
            rope_dims: Some(8),
            scaling: RopeScaling::Yarn {
                factor: 4.0,
                original_context: 16,
                beta_fast: 32.0,
                beta_slow: 1.0,
            },
            has_qkv_bias: true,
            has_bias: true,
            is_gated: false,
            activation: Activation::Gelu,
            ..Self::default()
        }
    }

    /// A transformer of the family.
    pub fn spec(&self, seed: u64) -> Result<Spec> {
        self.made_by(Random(Some(Rng::new(seed))))
    }

    /// A transformer with zeros for weights, for tests of sizes only.
    pub fn hollow(&self) -> Result<Spec> {
        self.made_by(Random(None))
    }

    fn made_by(&self, mut random: Random) -> Result<Spec> {
        let [embedding_format, qk_format, v_format, format] = self.formats;
        let (width, ffn) = (self.width, self.ffn);
        let (q_rows, k_rows) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let embedding = random.matrix(embedding_format, self.vocab, width)?;
        let mut layers = Vec::new();
        for i in 0..self.layers {
            let (qkv, other) = (self.has_qkv_bias, self.has_bias);
            let is_local = self.window.is_some() && i % 3 != 2;
            let heads = self.has_head_norms.then_some(self.head_dim);
            let post = self.has_post_norms.then_some(width);
            layers.push(Layer {
                attn_norm: random.norm(width),
                q: random.projection(qk_format, q_rows, width, qkv)?,
                k: random.projection(qk_format, k_rows, width, qkv)?,
                v: random.projection(v_format, k_rows, width, qkv)?,
                output: random.projection(format, width, q_rows, other)?,
                q_norm: heads.map(|n| random.norm(n)),
                k_norm: heads.map(|n| random.norm(n)),
                post_attention_norm: post.map(|n| random.norm(n)),
                ffn_norm: random.norm(width),
                gate: if self.is_gated {
                    Some(random.projection(format, ffn, width, other)?)
                } else {
                    None
                },
                up: random.projection(format, ffn, width, other)?,
                down: random.projection(v_format, width, ffn, other)?,
                post_ffn_norm: post.map(|n| random.norm(n)),
                window: self.window.filter(|_| is_local),
                is_local,
            });
        }
        let rope = RopeOptions {
            style: self.style,
            base: 10_000.0,
            dims: self.rope_dims,
            scaling: self.scaling,
            attention_factor: None,
        };
        let local = RopeOptions {
            base: 1_000.0,
            scaling: RopeScaling::None,
            ..rope
        };
        let head = if self.is_tied {
            embedding.clone()
        } else {
            random.matrix(embedding_format, self.vocab, width)?
        };
        Ok(Spec {
            width,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            ffn,
            vocab: self.vocab,
            eps: 1e-5,
            activation: self.activation,
            attention_scale: 1.0 / (self.head_dim as f32).sqrt(),
            attention_softcap: self.soft_caps[0],
            causal: true,
            embedding,
            embedding_scale: self.embedding_scale,
            head,
            output_norm: random.norm(width),
            final_softcap: self.soft_caps[1],
            rotations: [rope.table(self.head_dim)?, local.table(self.head_dim)?],
            layers,
        })
    }
}

/// Random numbers, or zeros.
struct Random(Option<Rng>);

impl Random {
    /// Weights that preserve the magnitude of activations.
    fn matrix(&mut self, format: WeightFormat, rows: usize, cols: usize) -> Result<QuantMatrix> {
        let scale = 1.5 / (cols as f64).sqrt();
        let Some(rng) = &mut self.0 else {
            let row = format.row_bytes(cols).unwrap_or(0);
            return QuantMatrix::from_bytes(format, [rows, cols], vec![0; rows * row]);
        };
        let values: Vec<f32> = (0..rows * cols)
            .map(|_| (rng.normal() * scale) as f32)
            .collect();
        let bytes = match format {
            Weights::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Weights::F16 => {
                let halves = values.iter().map(|&v| f16::from_f32(v));
                halves.flat_map(f16::to_le_bytes).collect()
            }
            Weights::BF16 => {
                let halves = values.iter().map(|&v| bf16::from_f32(v));
                halves.flat_map(bf16::to_le_bytes).collect()
            }
            Weights::Block(format) => quant::quantize(format, &values)?,
        };
        QuantMatrix::from_bytes(format, [rows, cols], bytes)
    }

    fn projection(
        &mut self,
        format: WeightFormat,
        rows: usize,
        cols: usize,
        has_bias: bool,
    ) -> Result<Projection> {
        Ok(Projection {
            weight: self.matrix(format, rows, cols)?,
            bias: has_bias.then(|| self.vector(rows, 0.0, 0.3)),
        })
    }

    fn norm(&mut self, len: usize) -> Vec<f32> {
        self.vector(len, 1.0, 0.2)
    }

    fn vector(&mut self, len: usize, mean: f64, deviation: f64) -> Vec<f32> {
        let mut next = || self.0.as_mut().map_or(0.0, Rng::normal);
        (0..len)
            .map(|_| (mean + deviation * next()) as f32)
            .collect()
    }
}

/// Every format that matrices may have.
pub fn formats() -> impl Iterator<Item = WeightFormat> {
    let plain = [Weights::F32, Weights::F16, Weights::BF16];
    let blocks = BlockFormat::ALL.into_iter().map(Weights::Block);
    plain.into_iter().chain(blocks)
}
