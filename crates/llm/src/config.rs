//! Model hyperparameters, read from the file.

use std::fmt;

use crate::file::{Container, Metadata, Model, TensorView, Value};
use crate::{Error, Result};

mod rope;
#[cfg(test)]
mod tests;
mod weight;

pub use rope::{Rope, Scaling};

/// A model family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM, Mistral.
    Llama,
    /// Qwen2 and Qwen2.5: QKV biases.
    Qwen2,
    /// Qwen3: QK-norm.
    Qwen3,
    /// Gemma 2: post-norms, softcapped attention scores.
    Gemma2,
    /// Gemma 3: post-norms, QK-norm, local and global layers.
    Gemma3,
    /// Phi-3: fused weights.
    Phi3,
    /// BERT: an encoder.
    Bert,
}

impl Architecture {
    /// All families.
    pub const ALL: [Self; 7] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
        Self::Bert,
    ];

    /// Name in model files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
            Self::Bert => "bert",
        }
    }

    fn of(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|a| a.name() == name);
        found.ok_or_else(|| Error::Architecture {
            name: name.to_owned(),
            supported: Self::ALL.map(Self::name).join(", "),
        })
    }

    fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// FFN activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU with the tanh approximation.
    GeluTanh,
}

impl Activation {
    /// The engine's equivalent.
    pub(crate) fn kernel(self) -> bessemer::Activation {
        match self {
            Self::Silu => bessemer::Activation::Silu,
            Self::Gelu => bessemer::Activation::Gelu,
            Self::GeluTanh => bessemer::Activation::GeluTanh,
        }
    }
}

/// Normalisation of activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// LayerNorm with a bias; RMSNorm otherwise.
    pub is_layer_norm: bool,
    /// Epsilon, added under the square root.
    pub eps: f64,
    /// Added to the weights: 1 for Gemma, unless the file already includes it.
    pub offset: f64,
}

/// How token vectors are pooled into a text embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooling {
    /// Mean pooling.
    Mean,
    /// First token (CLS).
    First,
}

/// Hyperparameters of a transformer: everything that differs between families, as data.
///
/// A decoder layer computes
///
/// ```text
/// h = x + post_attention_norm?(attention(attn_norm(x)))
/// y = h + post_ffw_norm?(ffn(ffn_norm(h)))
/// ```
///
/// where the norms with `?` exist only with [`Config::post_norms`]. BERT normalises after the residual additions.
/// [`Config::weight`] finds weights by their GGUF names, fused or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Model family.
    pub architecture: Architecture,
    /// Model name in the file, if any.
    pub name: Option<String>,
    /// Number of layers.
    pub layers: usize,
    /// Hidden size (residual stream).
    pub width: usize,
    /// FFN size.
    pub ffn: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads; each is shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Head dimension; `heads * head_dim` may differ from `width`.
    pub head_dim: usize,
    /// Vocabulary size (rows of the embedding).
    pub vocab: usize,
    /// Context length the model was trained for.
    pub context: usize,
    /// Parameters of the norms.
    pub norm: Norm,
    /// Rotary embedding; `None` for learned position embeddings (BERT).
    pub rope: Option<Rope>,
    /// Scale of attention scores before the softmax.
    pub attention_scale: f64,
    /// Attention softcap: scores become `cap * tanh(score / cap)`.
    pub attention_softcap: Option<f64>,
    /// Final softcap: logits become `cap * tanh(logit / cap)`.
    pub final_softcap: Option<f64>,
    /// Sliding window in positions, including the current one, of the layers selected by [`Config::window`].
    pub sliding_window: Option<usize>,
    /// Whether each layer uses the sliding window.
    pub local_layers: Vec<bool>,
    /// Whether attention is causal.
    pub is_causal: bool,
    /// Whether Q, K and V have biases.
    pub qkv_bias: bool,
    /// Whether the attention output has a bias.
    pub output_bias: bool,
    /// Whether the FFN has biases.
    pub ffn_bias: bool,
    /// Whether queries and keys are normalised per head before RoPE (QK-norm).
    pub qk_norm: bool,
    /// Whether there are norms after attention and FFN.
    pub post_norms: bool,
    /// Whether the FFN is `down(activation(gate(x)) * up(x))`; `down(activation(up(x)))` otherwise.
    pub is_gated: bool,
    /// FFN activation.
    pub activation: Activation,
    /// Scale of the token embeddings.
    pub embedding_scale: f64,
    /// Whether the output head is tied to the embedding.
    pub tied_head: bool,
    /// How an encoder pools token vectors.
    pub pooling: Pooling,
}

/// Metadata keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn text(&self, name: &str) -> Result<Option<&str>> {
        self.metadata.text(&self.key(name))
    }

    /// A count above 0, if present.
    fn count(&self, name: &str) -> Result<Option<usize>> {
        let key = self.key(name);
        match self.metadata.count(&key)? {
            Some(0) => Err(Error::metadata(key, "must not be 0")),
            other => Ok(other),
        }
    }

    fn required(&self, name: &str) -> Result<usize> {
        self.metadata.required(&self.key(name), self.count(name))
    }

    /// A number above 0, if present.
    fn positive(&self, name: &str) -> Result<Option<f64>> {
        let key = self.key(name);
        match self.metadata.number(&key)? {
            Some(n) if n <= 0.0 => Err(Error::metadata(key, format_args!("{n} must be above 0"))),
            other => Ok(other),
        }
    }

    /// A count that newer files store per layer; only equal values are supported.
    fn uniform(&self, name: &str) -> Result<Option<usize>> {
        let key = self.key(name);
        let Some(Value::Array(_)) = self.metadata.get(&key) else {
            return self.count(name);
        };
        let all = self.metadata.numbers(&key)?.unwrap_or_default();
        match all.split_first() {
            Some((&first, rest)) if rest.iter().all(|&n| n == first) && first >= 1.0 => {
                Ok(Some(first as usize))
            }
            _ => Err(Error::unsupported(
                format_args!("a `{key}` that differs between layers"),
                "all layers must be alike",
            )),
        }
    }
}

/// More layers than any known model has.
const MAX_LAYERS: usize = 4096;

impl Config {
    /// Reads the config of a model, and checks that it has all required tensors.
    pub fn of(model: &Model) -> Result<Self> {
        let metadata = model.metadata();
        let key = "general.architecture";
        let name = metadata.text(key)?.ok_or_else(|| {
            let reason = match model.container() {
                Container::Safetensors => {
                    "is missing: there is no config.json in the model's folder"
                }
                _ => "is missing",
            };
            Error::metadata(key, reason)
        })?;
        let architecture = Architecture::of(name)?;
        let keys = Keys {
            metadata,
            architecture: architecture.name(),
        };
        let config = Self::read(model, architecture, &keys)?;
        config.check()?;
        config.check_weights(model)?;
        Ok(config)
    }

    fn read(model: &Model, architecture: Architecture, keys: &Keys<'_>) -> Result<Self> {
        let is_bert = architecture == Architecture::Bert;
        let layers = keys.required("block_count")?;
        if layers > MAX_LAYERS {
            return Err(Error::metadata(
                keys.key("block_count"),
                format_args!("{layers} layers are more than the {MAX_LAYERS} supported"),
            ));
        }
        let width = keys.required("embedding_length")?;
        let heads = keys.metadata.required(
            &keys.key("attention.head_count"),
            keys.uniform("attention.head_count"),
        )?;
        let kv_heads = keys.uniform("attention.head_count_kv")?.unwrap_or(heads);
        let head_dim = keys.count("attention.key_length")?.unwrap_or(width / heads);
        let value_dim = keys.count("attention.value_length")?.unwrap_or(head_dim);
        if value_dim != head_dim {
            return Err(Error::unsupported(
                format_args!("key heads of {head_dim} and value heads of {value_dim}"),
                "both must be the same",
            ));
        }
        let embedding = model.tensor("token_embd.weight")?;
        let &[vocab, embedding_width] = embedding.shape() else {
            return Err(bad_shape(model, &embedding, "must have two axes"));
        };
        if embedding_width != width {
            let reason = format!("must have rows of {width}");
            return Err(bad_shape(model, &embedding, &reason));
        }
        let has = |name: &str| model.has(&format!("blk.0.{name}"));
        let ffn = keys.metadata.required(
            &keys.key("feed_forward_length"),
            keys.uniform("feed_forward_length"),
        )?;
        let sliding_window = window(keys)?;
        Ok(Self {
            architecture,
            name: keys.metadata.text("general.name")?.map(str::to_owned),
            layers,
            width,
            ffn,
            heads,
            kv_heads,
            head_dim,
            vocab,
            context: keys.required("context_length")?,
            norm: norm(model, architecture, keys)?,
            rope: if is_bert {
                None
            } else {
                Some(Rope::read(model, keys, head_dim)?)
            },
            attention_scale: match keys.positive("attention.scale")? {
                Some(scale) => scale,
                None => attention_scale(architecture, layers, width, heads, head_dim),
            },
            attention_softcap: softcap(architecture, keys, "attn_logit_softcapping", 50.0)?,
            final_softcap: softcap(architecture, keys, "final_logit_softcapping", 30.0)?,
            sliding_window,
            local_layers: match sliding_window {
                Some(_) => local_layers(architecture, keys, layers)?,
                None => vec![false; layers],
            },
            is_causal: match keys.metadata.flag(&keys.key("attention.causal"))? {
                Some(is_causal) => is_causal,
                None => !is_bert,
            },
            qkv_bias: has("attn_q.bias") || has("attn_qkv.bias"),
            output_bias: has("attn_output.bias"),
            ffn_bias: has("ffn_up.bias"),
            qk_norm: has("attn_q_norm.weight"),
            post_norms: has("post_attention_norm.weight"),
            is_gated: !is_bert,
            activation: activation(architecture, keys)?,
            embedding_scale: if architecture.is_gemma() {
                (width as f64).sqrt()
            } else {
                1.0
            },
            tied_head: !model.has("output.weight"),
            pooling: match keys.metadata.natural(&keys.key("pooling_type"))? {
                Some(2) => Pooling::First,
                _ => Pooling::Mean,
            },
        })
    }

    fn check(&self) -> Result<()> {
        let wrong = |name: &str, reason: String| {
            let key = format!("{}.{name}", self.architecture);
            Err(Error::metadata(key, reason))
        };
        let Self {
            heads, kv_heads, ..
        } = *self;
        if heads % kv_heads != 0 {
            let reason = format!("{kv_heads} does not divide the {heads} query heads");
            return wrong("attention.head_count_kv", reason);
        }
        if self.head_dim == 0 || self.head_dim % 2 == 1 {
            let reason = format!("heads of {} elements are not supported", self.head_dim);
            return wrong("attention.key_length", reason);
        }
        // Keeps the product of any two sizes within `usize`.
        let largest = 1 << 28;
        for (name, n) in [
            ("embedding_length", self.width),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", heads),
            ("attention.key_length", self.head_dim),
            ("attention.head_count", heads.saturating_mul(self.head_dim)),
        ] {
            if n > largest {
                return wrong(name, format!("{n} is out of range"));
            }
        }
        Ok(())
    }

    /// Sliding window of a layer in positions, including the current one; `None` for full attention.
    pub fn window(&self, layer: usize) -> Option<usize> {
        match self.local_layers.get(layer) {
            Some(true) => self.sliding_window,
            _ => None,
        }
    }

    /// RoPE table of a layer for a given context length; `None` with learned position embeddings.
    pub fn rope_table(&self, layer: usize, context: usize) -> Result<Option<bessemer::RopeTable>> {
        let is_local = self.local_layers.get(layer).copied().unwrap_or(false);
        let table = |rope: &Rope| rope.table(self.head_dim, context, is_local);
        self.rope.as_ref().map(table).transpose()
    }

    /// A tensor of the model by its name. For fused weights (`attn_qkv`, or `ffn_up` that includes the gate), the
    /// matching rows.
    pub fn weight(&self, model: &Model, name: &str) -> Result<TensorView> {
        let Some((name, part)) = self.fused(model, name) else {
            return model.tensor(name);
        };
        let fused = model.tensor(&name)?;
        let (queries, keys) = (self.query_width(), self.key_width());
        let (start, len) = match part {
            FusedPart::Query => (0, queries),
            FusedPart::Key => (queries, keys),
            FusedPart::Value => (queries.saturating_add(keys), keys),
            FusedPart::Gate => (0, self.ffn),
            FusedPart::Up => (self.ffn, self.ffn),
        };
        fused.rows(start..start.saturating_add(len))
    }

    /// Elements of all query heads. Saturates, as [`Config::key_width`] does: no tensor has a shape that a hostile file
    /// states so.
    fn query_width(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Elements of all key heads.
    fn key_width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim)
    }

    /// [`Config::weight`], if the model has it.
    pub fn optional_weight(&self, model: &Model, name: &str) -> Result<Option<TensorView>> {
        match self.fused(model, name) {
            None if !model.has(name) => Ok(None),
            _ => self.weight(model, name).map(Some),
        }
    }

    /// The fused tensor that contains a weight.
    fn fused(&self, model: &Model, name: &str) -> Option<(String, FusedPart)> {
        let (prefix, kind) = name.rsplit_once('.')?;
        let (block, stem) = prefix.rsplit_once('.')?;
        let (fused, part) = match stem {
            "attn_q" => ("attn_qkv", FusedPart::Query),
            "attn_k" => ("attn_qkv", FusedPart::Key),
            "attn_v" => ("attn_qkv", FusedPart::Value),
            "ffn_gate" => ("ffn_up", FusedPart::Gate),
            "ffn_up" => ("ffn_up", FusedPart::Up),
            _ => return None,
        };
        let fused = format!("{block}.{fused}.{kind}");
        let is_fused = match part {
            FusedPart::Query | FusedPart::Key | FusedPart::Value => !model.has(name),
            // Gate and up are fused in a tensor with twice the rows.
            FusedPart::Gate | FusedPart::Up => {
                self.is_gated && !model.has(&format!("{block}.ffn_gate.{kind}"))
            }
        };
        (is_fused && model.has(&fused)).then_some((fused, part))
    }
}

/// One of the matrices in a fused weight.
enum FusedPart {
    Query,
    Key,
    Value,
    Gate,
    Up,
}

fn bad_shape(model: &Model, tensor: &TensorView, expected: &str) -> Error {
    Error::BadTensor {
        path: model.path().display().to_string(),
        name: tensor.name().to_owned(),
        reason: format!("shape {:?} {expected}", tensor.shape()),
    }
}

fn norm(model: &Model, architecture: Architecture, keys: &Keys<'_>) -> Result<Norm> {
    let is_layer_norm = architecture == Architecture::Bert;
    let name = if is_layer_norm {
        "attention.layer_norm_epsilon"
    } else {
        "attention.layer_norm_rms_epsilon"
    };
    let key = keys.key(name);
    // GGUF files of Gemma already include the 1.
    let is_offset = architecture.is_gemma() && model.container() == Container::Safetensors;
    Ok(Norm {
        is_layer_norm,
        eps: keys.metadata.required(&key, keys.positive(name))?,
        offset: if is_offset { 1.0 } else { 0.0 },
    })
}

fn attention_scale(
    architecture: Architecture,
    layers: usize,
    width: usize,
    heads: usize,
    head_dim: usize,
) -> f64 {
    // The largest Gemma models scale by `width / heads` instead of the head dimension. Their GGUF files do not say
    // so; only the number of layers identifies them.
    let is_largest = matches!(
        (architecture, layers),
        (Architecture::Gemma2, 46) | (Architecture::Gemma3, 62)
    );
    let dim = if is_largest { width / heads } else { head_dim };
    (dim as f64).powf(-0.5)
}

fn softcap(
    architecture: Architecture,
    keys: &Keys<'_>,
    name: &str,
    gemma2: f64,
) -> Result<Option<f64>> {
    // 0 disables it.
    match keys.metadata.number(&keys.key(name))? {
        Some(0.0) => Ok(None),
        Some(_) => keys.positive(name),
        None => Ok((architecture == Architecture::Gemma2).then_some(gemma2)),
    }
}

/// The sliding window, if the file has one; 0 disables it.
fn window(keys: &Keys<'_>) -> Result<Option<usize>> {
    let key = keys.key("attention.sliding_window");
    Ok(keys.metadata.count(&key)?.filter(|&n| n > 0))
}

/// Layers with a sliding window: a list in the file, or all but every n-th layer.
fn local_layers(architecture: Architecture, keys: &Keys<'_>, layers: usize) -> Result<Vec<bool>> {
    let key = keys.key("attention.sliding_window_pattern");
    if let Some(Value::Array(array)) = keys.metadata.get(&key) {
        let boolean = |i| match array.get(i)? {
            Value::Bool(is_local) => Some(is_local),
            other => other.natural().map(|n| n != 0),
        };
        let list: Option<Vec<bool>> = (0..array.len()).map(boolean).collect();
        return match list {
            Some(list) if list.len() == layers => Ok(list),
            _ => Err(Error::metadata(key, "is not a boolean for each layer")),
        };
    }
    let every = match (
        keys.count("attention.sliding_window_pattern")?,
        architecture,
    ) {
        (Some(every), _) => every,
        (None, Architecture::Gemma2) => 2,
        (None, Architecture::Gemma3) => 6,
        (None, _) => return Ok(vec![true; layers]),
    };
    Ok((1..=layers).map(|i| i % every != 0).collect())
}

fn activation(architecture: Architecture, keys: &Keys<'_>) -> Result<Activation> {
    match keys.text("hidden_activation")? {
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu") if !architecture.is_gemma() => Ok(Activation::Gelu),
        Some("gelu" | "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast") => Ok(Activation::GeluTanh),
        Some(other) => Err(Error::unsupported(
            format_args!("activation `{other}`"),
            "use silu, gelu or gelu_pytorch_tanh",
        )),
        None => Ok(match architecture {
            Architecture::Gemma2 | Architecture::Gemma3 => Activation::GeluTanh,
            Architecture::Bert => Activation::Gelu,
            _ => Activation::Silu,
        }),
    }
}
