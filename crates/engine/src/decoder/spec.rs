//! Specification of a transformer.

use super::invalid;
use crate::kernel::Activation;
use crate::quant::QuantMatrix;
use crate::{Result, RopeTable};

/// Maximum elements of a head.
pub(super) const MAX_HEAD_DIM: usize = 256;

/// A transformer of the decoder kind: sizes, weights and variants of its layers.
///
/// A layer is `x += output(attention(rope(q), rope(k), v))` and `x += down(activation(gate(n)) * up(n))`, both of the
/// norm of `x`; norms are RMS norms. An offset that a family adds to the weights of its norms is already applied.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Elements of the residual stream.
    pub width: usize,
    /// Query heads: a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head: a multiple of 4, at most 256.
    pub head_dim: usize,
    /// Elements of the FFN's hidden layer.
    pub ffn: usize,
    /// Vocabulary size.
    pub vocab: usize,
    /// Epsilon that norms add to the mean square.
    pub eps: f32,
    /// FFN activation.
    pub activation: Activation,
    /// Scale of attention scores.
    pub attention_scale: f32,
    /// Soft cap of scores: `cap * tanh(score / cap)`.
    pub attention_softcap: Option<f32>,
    /// Whether a token attends only to itself and the tokens before it. Decoding token by token implies it.
    pub causal: bool,
    /// Embedding table: a row for every token.
    pub embedding: QuantMatrix,
    /// Scale of embedding rows.
    pub embedding_scale: f32,
    /// Output head: a row for every token.
    pub head: QuantMatrix,
    /// Weights of the norm before the output head.
    pub output_norm: Vec<f32>,
    /// Soft cap of logits: `cap * tanh(logit / cap)`.
    pub final_softcap: Option<f32>,
    /// RoPE tables of global and of local layers.
    pub rotations: [RopeTable; 2],
    /// The layers.
    pub layers: Vec<Layer>,
}

/// A layer of a [`Spec`].
#[derive(Clone, Debug)]
pub struct Layer {
    /// Weights of the norm before attention.
    pub attn_norm: Vec<f32>,
    /// Queries: `[heads * head_dim, width]`.
    pub q: Projection,
    /// Keys: `[kv_heads * head_dim, width]`.
    pub k: Projection,
    /// Values: `[kv_heads * head_dim, width]`.
    pub v: Projection,
    /// Output projection of attention: `[width, heads * head_dim]`.
    pub output: Projection,
    /// Weights of the query head norm, `head_dim` elements.
    pub q_norm: Option<Vec<f32>>,
    /// Weights of the key head norm; both or none.
    pub k_norm: Option<Vec<f32>>,
    /// Weights of a post-norm of attention's output.
    pub post_attention_norm: Option<Vec<f32>>,
    /// Weights of the norm before the FFN.
    pub ffn_norm: Vec<f32>,
    /// Gate projection, `[ffn, width]`, whose activation is multiplied with `up`; without it the activation applies to
    /// `up`.
    pub gate: Option<Projection>,
    /// Up projection: `[ffn, width]`.
    pub up: Projection,
    /// Down projection: `[width, ffn]`.
    pub down: Projection,
    /// Weights of a post-norm of the FFN's output.
    pub post_ffn_norm: Option<Vec<f32>>,
    /// Sliding window: positions that a token attends to, including itself; all if `None`.
    pub window: Option<usize>,
    /// Whether the layer uses the second RoPE table, that of local layers.
    pub is_local: bool,
}

/// A linear layer: a matrix and an optional bias.
#[derive(Clone, Debug)]
pub struct Projection {
    /// The matrix.
    pub weight: QuantMatrix,
    /// An element for every row.
    pub bias: Option<Vec<f32>>,
}

fn matrix(what: &str, matrix: &QuantMatrix, rows: usize, cols: usize) -> Result<()> {
    if (matrix.rows(), matrix.cols()) == (rows, cols) {
        return Ok(());
    }
    Err(invalid(format!(
        "{what} is [{}, {}], expected [{rows}, {cols}]",
        matrix.rows(),
        matrix.cols()
    )))
}

fn vector(what: &str, vector: Option<&Vec<f32>>, len: usize) -> Result<()> {
    match vector {
        Some(v) if v.len() != len => Err(invalid(format!(
            "{what} has {} elements, expected {len}",
            v.len()
        ))),
        _ => Ok(()),
    }
}

impl Spec {
    /// Returns an error if the sizes do not match.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [
            ("width", self.width),
            ("heads", self.heads),
            ("key heads", self.kv_heads),
            ("FFN width", self.ffn),
            ("vocabulary", self.vocab),
        ];
        for (what, size) in sizes {
            if size == 0 || u32::try_from(size).is_err() {
                return Err(invalid(format!(
                    "unsupported {what} {size}: must be from 1 to {}",
                    u32::MAX
                )));
            }
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(4) || self.head_dim > MAX_HEAD_DIM {
            return Err(invalid(format!(
                "unsupported head dimension {}: must be a multiple of 4 and at most {MAX_HEAD_DIM}",
                self.head_dim
            )));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(invalid(format!(
                "{} query heads are not a multiple of {} key heads",
                self.heads, self.kv_heads
            )));
        }
        for rotation in &self.rotations {
            let dims = 2 * rotation.frequencies().shape().count();
            if dims > self.head_dim {
                return Err(invalid(format!(
                    "{dims} elements of a head are rotated, it has {}",
                    self.head_dim
                )));
            }
        }
        matrix("the embedding", &self.embedding, self.vocab, self.width)?;
        matrix("the head", &self.head, self.vocab, self.width)?;
        vector("the output norm", Some(&self.output_norm), self.width)?;
        self.layers.iter().try_for_each(|layer| layer.check(self))
    }
}

impl Layer {
    fn check(&self, spec: &Spec) -> Result<()> {
        let (width, ffn, dim) = (spec.width, spec.ffn, spec.head_dim);
        let (q_rows, k_rows) = (spec.heads * dim, spec.kv_heads * dim);
        let projections = [
            ("q", Some(&self.q), q_rows, width),
            ("k", Some(&self.k), k_rows, width),
            ("v", Some(&self.v), k_rows, width),
            ("the output", Some(&self.output), width, q_rows),
            ("gate", self.gate.as_ref(), ffn, width),
            ("up", Some(&self.up), ffn, width),
            ("down", Some(&self.down), width, ffn),
        ];
        for (what, projection, rows, cols) in projections {
            if let Some(projection) = projection {
                matrix(what, &projection.weight, rows, cols)?;
                vector(
                    &format!("the bias of {what}"),
                    projection.bias.as_ref(),
                    rows,
                )?;
            }
        }
        let norms = [
            ("the attention norm", Some(&self.attn_norm), width),
            ("the query head norm", self.q_norm.as_ref(), dim),
            ("the key head norm", self.k_norm.as_ref(), dim),
            (
                "the attention post-norm",
                self.post_attention_norm.as_ref(),
                width,
            ),
            ("the FFN norm", Some(&self.ffn_norm), width),
            ("the FFN post-norm", self.post_ffn_norm.as_ref(), width),
        ];
        for (what, norm, len) in norms {
            vector(what, norm, len)?;
        }
        if self.q_norm.is_some() != self.k_norm.is_some() {
            return Err(invalid(
                "queries and keys both have norms, or neither has".to_owned(),
            ));
        }
        if self.window == Some(0) {
            return Err(invalid("a window of 0 positions".to_owned()));
        }
        Ok(())
    }
}
