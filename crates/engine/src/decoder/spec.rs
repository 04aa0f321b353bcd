//! What a transformer is.

use crate::kernel::Activation;
use crate::quant::QuantMatrix;
use crate::{Error, Result, RopeTable};

use super::OP;

/// Elements of a head, at most.
pub(super) const MOST_DIMS: usize = 256;

/// A transformer of the decoder kind: sizes, weights, and how its parts go together.
///
/// A layer is `x += output(attend(turn(q), turn(k), v))` and `x += down(bend(gate(n)) * up(n))`, both of the norm of
/// `x`; norms divide by the root of the mean square. What a family adds to the weights of its norms is in them already.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Numbers of a token between layers.
    pub width: usize,
    /// Heads of queries: a multiple of those of keys.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Numbers of a head: a multiple of 4, at most 256.
    pub head_dim: usize,
    /// Numbers inside the feed-forward part.
    pub ffn: usize,
    /// Tokens there are.
    pub vocab: usize,
    /// What norms add to the mean square.
    pub eps: f32,
    /// What the feed-forward part bends its numbers with.
    pub activation: Activation,
    /// What scores are multiplied with.
    pub attention_scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub attention_softcap: Option<f32>,
    /// Whether a token sees only itself and what is before it. A decoder that takes one token after the other knows
    /// nothing else.
    pub causal: bool,
    /// A row for every token.
    pub embedding: QuantMatrix,
    /// What rows of the embedding are multiplied with.
    pub embedding_scale: f32,
    /// From the last layer to logits: a row for every token.
    pub head: QuantMatrix,
    /// Weights of the norm before the head.
    pub output_norm: Vec<f32>,
    /// Logits become `cap * tanh(logit / cap)`.
    pub final_softcap: Option<f32>,
    /// How positions turn queries and keys, in layers that see everything and in local ones.
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
    /// What attention adds: `[width, heads * head_dim]`.
    pub output: Projection,
    /// Weights of a norm of every head of queries, of `head_dim` numbers.
    pub q_norm: Option<Vec<f32>>,
    /// The same of keys; both or none.
    pub k_norm: Option<Vec<f32>>,
    /// Weights of a norm of what attention adds.
    pub post_attention_norm: Option<Vec<f32>>,
    /// Weights of the norm before the feed-forward part.
    pub ffn_norm: Vec<f32>,
    /// What is bent and multiplied with `up`; without it `up` is bent itself. `[ffn, width]`.
    pub gate: Option<Projection>,
    /// `[ffn, width]`.
    pub up: Projection,
    /// `[width, ffn]`.
    pub down: Projection,
    /// Weights of a norm of what the feed-forward part adds.
    pub post_ffn_norm: Option<Vec<f32>>,
    /// Positions that a token sees, itself one of them; all where `None`.
    pub window: Option<usize>,
    /// Which of the rotations turns its queries and keys: the second where it is set.
    pub is_local: bool,
}

/// A matrix, and what is added to the product with it.
#[derive(Clone, Debug)]
pub struct Projection {
    /// The matrix.
    pub weight: QuantMatrix,
    /// A number for every row.
    pub bias: Option<Vec<f32>>,
}

fn wrong(reason: String) -> Error {
    Error::Invalid { op: OP, reason }
}

fn matrix(what: &str, matrix: &QuantMatrix, rows: usize, cols: usize) -> Result<()> {
    if (matrix.rows(), matrix.cols()) == (rows, cols) {
        return Ok(());
    }
    Err(wrong(format!(
        "{what} is [{}, {}], the transformer needs [{rows}, {cols}]",
        matrix.rows(),
        matrix.cols()
    )))
}

fn vector(what: &str, vector: Option<&Vec<f32>>, len: usize) -> Result<()> {
    match vector {
        Some(v) if v.len() != len => Err(wrong(format!(
            "{what} has {} numbers, the transformer needs {len}",
            v.len()
        ))),
        _ => Ok(()),
    }
}

impl Spec {
    /// An error where sizes do not go together.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [
            ("width", self.width),
            ("heads", self.heads),
            ("key heads", self.kv_heads),
            ("feed-forward width", self.ffn),
            ("vocabulary", self.vocab),
        ];
        for (what, size) in sizes {
            if size == 0 || u32::try_from(size).is_err() {
                return Err(wrong(format!("a {what} of {size} makes no transformer")));
            }
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(4) || self.head_dim > MOST_DIMS {
            return Err(wrong(format!(
                "heads of {} numbers: they must be a multiple of 4 and at most {MOST_DIMS}",
                self.head_dim
            )));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(wrong(format!(
                "{} heads of queries cannot share {} of keys",
                self.heads, self.kv_heads
            )));
        }
        for rotation in &self.rotations {
            let dims = 2 * rotation.frequencies().shape().count();
            if dims > self.head_dim {
                return Err(wrong(format!(
                    "{dims} numbers of a head turn, it has {}",
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
            ("the norm of attention", Some(&self.attn_norm), width),
            ("the norm of queries", self.q_norm.as_ref(), dim),
            ("the norm of keys", self.k_norm.as_ref(), dim),
            (
                "the norm after attention",
                self.post_attention_norm.as_ref(),
                width,
            ),
            (
                "the norm of the feed-forward part",
                Some(&self.ffn_norm),
                width,
            ),
            (
                "the norm after the feed-forward part",
                self.post_ffn_norm.as_ref(),
                width,
            ),
        ];
        for (what, norm, len) in norms {
            vector(what, norm, len)?;
        }
        if self.q_norm.is_some() != self.k_norm.is_some() {
            return Err(wrong(
                "queries and keys both have norms, or neither has".to_owned(),
            ));
        }
        if self.window == Some(0) {
            return Err(wrong("a window of 0 sees nothing".to_owned()));
        }
        Ok(())
    }
}
