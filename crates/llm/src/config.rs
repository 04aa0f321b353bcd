//! One description of a transformer, read from the file.

use std::fmt;

use bessemer::kernel;

use crate::file::{Container, Metadata, Model, TensorView, Value};
use crate::{Error, Result};

mod rope;
#[cfg(test)]
mod tests;
mod weight;

pub use rope::{Rope, Scaling};

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM, Mistral.
    Llama,
    /// Qwen2 and Qwen2.5: biases of queries, keys and values.
    Qwen2,
    /// Qwen3: norms of queries and keys.
    Qwen3,
    /// Gemma 2: norms after attention and feed-forward, capped scores.
    Gemma2,
    /// Gemma 3: norms after attention and feed-forward and of queries and keys, local and global layers.
    Gemma3,
    /// Phi-3: fused weights.
    Phi3,
    /// BERT: an encoder.
    Bert,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
        Self::Bert,
    ];

    /// The name in files.
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

/// The function between the two halves of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU with its approximation by `tanh`.
    GeluTanh,
}

impl Activation {
    /// The engine's name for it.
    pub(crate) fn kernel(self) -> kernel::Activation {
        match self {
            Self::Silu => kernel::Activation::Silu,
            Self::Gelu => kernel::Activation::Gelu,
            Self::GeluTanh => kernel::Activation::GeluTanh,
        }
    }
}

/// How activations are normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// By mean and variance, with a bias; by the root of the mean square otherwise.
    pub is_layer_norm: bool,
    /// Added below the root.
    pub eps: f64,
    /// Added to the weights: 1 for Gemma's in files where this has not been done.
    pub offset: f64,
}

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one.
    First,
}

/// One description of a transformer: everything that its families differ in, as data.
///
/// A decoder's layer is
///
/// ```text
/// h = x + post_attention_norm?(attention(attn_norm(x)))
/// y = h + post_ffw_norm?(ffn(ffn_norm(h)))
/// ```
///
/// where the norms with `?` are there with [`Config::post_norms`]; BERT's has its norms after the sums.
/// Weights are found by [`Config::weight`] under GGUF's names, fused or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// What the file calls the model.
    pub name: Option<String>,
    /// Layers.
    pub layers: usize,
    /// Length of the vectors between layers.
    pub width: usize,
    /// Length of the vectors inside the feed-forward parts.
    pub ffn: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` heads of queries.
    pub kv_heads: usize,
    /// Length of a head's vectors; `heads * head_dim` need not be `width`.
    pub head_dim: usize,
    /// Tokens in the vocabulary, which is rows of the embedding.
    pub vocab: usize,
    /// Positions the model was made for.
    pub context: usize,
    /// The norms.
    pub norm: Norm,
    /// Rotary embedding of positions; `None` where positions have vectors that are added (BERT).
    pub rope: Option<Rope>,
    /// What scores are multiplied with before the softmax.
    pub attention_scale: f64,
    /// Scores become `cap * tanh(score / cap)`.
    pub attention_softcap: Option<f64>,
    /// Logits become `cap * tanh(logit / cap)`.
    pub final_softcap: Option<f64>,
    /// How many positions, its own included, a position sees in the layers that [`Config::window`] says.
    pub sliding_window: Option<usize>,
    /// For each layer whether it sees only the window.
    pub local_layers: Vec<bool>,
    /// Whether a position sees only those before it.
    pub is_causal: bool,
    /// Biases of queries, keys and values.
    pub qkv_bias: bool,
    /// Bias of the attention's output.
    pub output_bias: bool,
    /// Biases of the feed-forward part.
    pub ffn_bias: bool,
    /// Norms of queries and keys, head by head, before they are turned.
    pub qk_norm: bool,
    /// Norms after attention and feed-forward.
    pub post_norms: bool,
    /// Whether the feed-forward part is `down(activation(gate(x)) * up(x))`; `down(activation(up(x)))`
    /// otherwise.
    pub is_gated: bool,
    /// The function of the feed-forward part.
    pub activation: Activation,
    /// What embeddings are multiplied with.
    pub embedding_scale: f64,
    /// Whether the embedding is also the matrix that makes logits.
    pub tied_head: bool,
    /// How an encoder's vectors become one.
    pub pooling: Pooling,
}

/// Metadata of one architecture.
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

    /// A count that is not 0, if it is there.
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

    /// A number above 0, if it is there.
    fn positive(&self, name: &str) -> Result<Option<f64>> {
        let key = self.key(name);
        match self.metadata.number(&key)? {
            Some(n) if n <= 0.0 => Err(Error::metadata(key, format_args!("{n} must be above 0"))),
            other => Ok(other),
        }
    }

    /// A count that newer files give for each layer; only one and the same for all is supported.
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

/// More layers than any model has.
const MOST_LAYERS: usize = 4096;

impl Config {
    /// Reads the description of a model, and checks that the model has every tensor it must have.
    pub fn of(model: &Model) -> Result<Self> {
        let metadata = model.metadata();
        let key = "general.architecture";
        let name = metadata.text(key)?.ok_or_else(|| {
            let reason = match model.container() {
                Container::Safetensors => "is missing: there is no config.json beside the model",
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
        if layers > MOST_LAYERS {
            return Err(Error::metadata(
                keys.key("block_count"),
                format_args!("{layers} layers are more than the {MOST_LAYERS} supported"),
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
                format_args!("heads of {head_dim} for keys and {value_dim} for values"),
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
            let reason = format!("{kv_heads} does not divide the {heads} heads of queries");
            return wrong("attention.head_count_kv", reason);
        }
        if self.head_dim == 0 || self.head_dim % 2 == 1 {
            let reason = format!("heads of {} elements are not supported", self.head_dim);
            return wrong("attention.key_length", reason);
        }
        // So that no product of two of these numbers is too large to count.
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

    /// The window of a layer: how many positions a position sees, its own included; `None` for all.
    pub fn window(&self, layer: usize) -> Option<usize> {
        match self.local_layers.get(layer) {
            Some(true) => self.sliding_window,
            _ => None,
        }
    }

    /// The rotary embedding's table for a layer, for a context of that many positions in use; `None`
    /// where positions have vectors.
    pub fn rope_table(&self, layer: usize, context: usize) -> Result<Option<bessemer::RopeTable>> {
        let is_local = self.local_layers.get(layer).copied().unwrap_or(false);
        let table = |rope: &Rope| rope.table(self.head_dim, context, is_local);
        self.rope.as_ref().map(table).transpose()
    }

    /// A tensor of the model by its name; of fused weights (`attn_qkv`, `ffn_up` with the gate in it), the
    /// rows that a name stands for.
    pub fn weight(&self, model: &Model, name: &str) -> Result<TensorView> {
        let Some((place, part)) = self.fused(model, name) else {
            return model.tensor(name);
        };
        let whole = model.tensor(&place)?;
        let queries = self.heads * self.head_dim;
        let keys = self.kv_heads * self.head_dim;
        whole.rows(match part {
            Part::Query => 0..queries,
            Part::Key => queries..queries + keys,
            Part::Value => queries + keys..queries + 2 * keys,
            Part::Gate => 0..self.ffn,
            Part::Up => self.ffn..2 * self.ffn,
        })
    }

    /// [`Config::weight`], where the model has it.
    pub fn optional_weight(&self, model: &Model, name: &str) -> Result<Option<TensorView>> {
        match self.fused(model, name) {
            None if !model.has(name) => Ok(None),
            _ => self.weight(model, name).map(Some),
        }
    }

    /// The fused tensor that a name is a part of.
    fn fused(&self, model: &Model, name: &str) -> Option<(String, Part)> {
        let (prefix, kind) = name.rsplit_once('.')?;
        let (block, stem) = prefix.rsplit_once('.')?;
        let (fused, part) = match stem {
            "attn_q" => ("attn_qkv", Part::Query),
            "attn_k" => ("attn_qkv", Part::Key),
            "attn_v" => ("attn_qkv", Part::Value),
            "ffn_gate" => ("ffn_up", Part::Gate),
            "ffn_up" => ("ffn_up", Part::Up),
            _ => return None,
        };
        let place = format!("{block}.{fused}.{kind}");
        let is_fused = match part {
            Part::Query | Part::Key | Part::Value => !model.has(name),
            // Twice as many rows as there should be.
            Part::Gate | Part::Up => {
                self.is_gated && !model.has(&format!("{block}.ffn_gate.{kind}"))
            }
        };
        (is_fused && model.has(&place)).then_some((place, part))
    }
}

/// A part of fused weights.
enum Part {
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
    // GGUF files of Gemma have the 1 in their weights.
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
    // The largest Gemmas scale by what a head would have if heads filled the width; their files in GGUF do
    // not say so, and nothing but the number of layers tells them from the others.
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
    // 0 means none.
    match keys.metadata.number(&keys.key(name))? {
        Some(0.0) => Ok(None),
        Some(_) => keys.positive(name),
        None => Ok((architecture == Architecture::Gemma2).then_some(gemma2)),
    }
}

/// The window, where the file has one; 0 means none.
fn window(keys: &Keys<'_>) -> Result<Option<usize>> {
    let key = keys.key("attention.sliding_window");
    Ok(keys.metadata.count(&key)?.filter(|&n| n > 0))
}

/// Which layers see only the window: a list in the file, or every so many layers one that sees all.
fn local_layers(architecture: Architecture, keys: &Keys<'_>, layers: usize) -> Result<Vec<bool>> {
    let key = keys.key("attention.sliding_window_pattern");
    if let Some(Value::Array(array)) = keys.metadata.get(&key) {
        let truth = |i| match array.get(i)? {
            Value::Bool(is_local) => Some(is_local),
            other => other.natural().map(|n| n != 0),
        };
        let list: Option<Vec<bool>> = (0..array.len()).map(truth).collect();
        return match list {
            Some(list) if list.len() == layers => Ok(list),
            _ => Err(Error::metadata(key, "is not a truth value for each layer")),
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
            "silu, gelu and gelu_pytorch_tanh are",
        )),
        None => Ok(match architecture {
            Architecture::Gemma2 | Architecture::Gemma3 => Activation::GeluTanh,
            Architecture::Bert => Activation::Gelu,
            _ => Activation::Silu,
        }),
    }
}
