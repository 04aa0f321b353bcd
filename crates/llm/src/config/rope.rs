//! RoPE parameters and tables.

use bessemer::{RopeOptions, RopeScaling, RopeStyle, RopeTable, Tensor};

use super::Keys;
use crate::file::{Container, Model};
use crate::{Error, Result};

/// RoPE parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements form a pair. Llama weights in GGUF and llama2.c files are permuted for interleaved pairs.
    pub style: RopeStyle,
    /// Base of the frequencies.
    pub base: f64,
    /// Base in sliding-window layers, if it differs; they use no scaling.
    pub local_base: Option<f64>,
    /// Number of leading elements of a head that are rotated.
    pub dims: usize,
    /// Context extension.
    pub scaling: Scaling,
    /// Factor of the rotated elements, if the file has one.
    pub attention_factor: Option<f64>,
}

/// Frequency scaling for long contexts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scaling {
    /// One of the engine's scalings, or none.
    Fixed(RopeScaling),
    /// Dynamic NTK: the base grows with the context in use.
    Dynamic {
        /// Context extension factor.
        factor: f64,
        /// Original context length of the model.
        original_context: usize,
    },
    /// A divisor per frequency: Llama 3 in GGUF files, LongRoPE (Phi-3).
    Factors {
        /// For contexts up to the original one.
        short: Vec<f64>,
        /// For longer contexts.
        long: Vec<f64>,
        /// Original context length of the model.
        original_context: usize,
    },
}

impl Rope {
    pub(super) fn read(model: &Model, keys: &Keys<'_>, head_dim: usize) -> Result<Self> {
        let is_permuted =
            keys.architecture == "llama" && model.container() != Container::Safetensors;
        let dims = keys.count("rope.dimension_count")?.unwrap_or(head_dim);
        if dims > head_dim || dims % 2 == 1 {
            return Err(Error::metadata(
                keys.key("rope.dimension_count"),
                format_args!("cannot rotate {dims} of {head_dim} elements in pairs"),
            ));
        }
        let is_gemma3 = keys.architecture == "gemma3";
        let local_base = keys.positive("rope.freq_base_swa")?;
        let context = keys.required("context_length")?;
        let (scaling, attention_factor) = scaling(model, keys, dims, context)?;
        Ok(Self {
            style: if is_permuted {
                RopeStyle::Interleaved
            } else {
                RopeStyle::HalfSplit
            },
            base: keys.positive("rope.freq_base")?.unwrap_or(10_000.0),
            local_base: local_base.or(is_gemma3.then_some(10_000.0)),
            dims,
            scaling,
            attention_factor,
        })
    }

    /// The table for a given context length, in a global or a local (sliding-window) layer.
    pub fn table(&self, head_dim: usize, context: usize, is_local: bool) -> Result<RopeTable> {
        let plain = RopeOptions {
            style: self.style,
            base: self.base,
            dims: Some(self.dims),
            scaling: RopeScaling::None,
            attention_factor: self.attention_factor,
        };
        if let (true, Some(base)) = (is_local, self.local_base) {
            let local = RopeOptions {
                base,
                attention_factor: None,
                ..plain
            };
            return Ok(local.table(head_dim)?);
        }
        let scaling = match &self.scaling {
            Scaling::Fixed(scaling) => *scaling,
            Scaling::Dynamic {
                factor,
                original_context,
            } => {
                let longer = context.max(*original_context) as f64 / *original_context as f64;
                RopeScaling::Ntk {
                    factor: factor * longer - (factor - 1.0),
                }
            }
            Scaling::Factors {
                short,
                long,
                original_context,
            } => {
                let factors = if context > *original_context {
                    long
                } else {
                    short
                };
                let table = plain.table(head_dim)?;
                let factors = Tensor::from_slice(factors, [factors.len()]);
                let frequencies = table.frequencies() / &factors;
                let factor = table.attention_factor();
                return Ok(RopeTable::new(&frequencies, self.style, factor)?);
            }
        };
        Ok(RopeOptions { scaling, ..plain }.table(head_dim)?)
    }
}

/// Reads the scaling and the attention factor.
fn scaling(
    model: &Model,
    keys: &Keys<'_>,
    dims: usize,
    context: usize,
) -> Result<(Scaling, Option<f64>)> {
    let name = |key: &str| format!("rope.scaling.{key}");
    let original = keys.count(&name("original_context_length"))?;
    let total = keys.positive(&name("attention_factor"))?;
    if let Some((short, long)) = factors(model, keys, dims)? {
        let original_context = original.unwrap_or(context);
        let longer = context as f64 / original_context as f64;
        // LongRoPE's default if the file has no attention factor.
        let default = || (1.0 + longer.ln() / (original_context as f64).ln()).sqrt();
        let is_long_rope = keys.text(&name("type"))? == Some("longrope");
        let factor = match total.or(keys.positive(&name("attn_factor"))?) {
            None if is_long_rope && longer > 1.0 && original_context > 1 => Some(default()),
            other => other,
        };
        let scaling = Scaling::Factors {
            short,
            long,
            original_context,
        };
        return Ok((scaling, factor));
    }
    let factor = match keys.positive(&name("factor"))? {
        Some(factor) => factor,
        // Legacy key.
        None => keys.positive("rope.scale_linear")?.unwrap_or(1.0),
    };
    let kind = match keys.text(&name("type"))? {
        Some(kind) => kind,
        None if factor != 1.0 => "linear",
        None => "none",
    };
    let original_context = original.unwrap_or(context);
    let number = |key: &str, default: f64| -> Result<f64> {
        Ok(keys.positive(&name(key))?.unwrap_or(default))
    };
    let fixed = match kind {
        "none" | "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor },
        "ntk" => RopeScaling::Ntk { factor },
        "yarn" => RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast: number("yarn_beta_fast", 32.0)?,
            beta_slow: number("yarn_beta_slow", 1.0)?,
        },
        "llama3" => RopeScaling::Llama3 {
            factor,
            low_factor: number("low_freq_factor", 1.0)?,
            high_factor: number("high_freq_factor", 4.0)?,
            original_context,
        },
        "dynamic" => {
            let dynamic = Scaling::Dynamic {
                factor,
                original_context,
            };
            return Ok((dynamic, total));
        }
        other => {
            return Err(Error::unsupported(
                format_args!("RoPE scaling `{other}`"),
                "use none, linear, ntk, dynamic, yarn, llama3 or longrope",
            ));
        }
    };
    // GGUF's factor multiplies YaRN's own.
    let own = keys.positive(&name("attn_factor"))?;
    let attention_factor = match (total, own, fixed) {
        (Some(total), ..) => Some(total),
        (None, Some(own), RopeScaling::Yarn { .. }) => Some(own * (1.0 + 0.1 * factor.ln())),
        (None, own, _) => own,
    };
    Ok((Scaling::Fixed(fixed), attention_factor))
}

/// Divisors of the frequencies for short and for long contexts, from tensors or metadata.
fn factors(model: &Model, keys: &Keys<'_>, dims: usize) -> Result<Option<(Vec<f64>, Vec<f64>)>> {
    let tensor = |name: &str| -> Result<Option<Vec<f64>>> {
        if model.has(name) {
            let numbers = model.tensor(name)?.to_f32()?;
            Ok(Some(numbers.into_iter().map(f64::from).collect()))
        } else {
            Ok(None)
        }
    };
    let list = |name: &str| {
        keys.metadata
            .numbers(&keys.key(&format!("rope.scaling.{name}")))
    };
    let both = if let Some(all) = tensor("rope_freqs.weight")? {
        Some((all.clone(), all))
    } else {
        let short = tensor("rope_factors_short.weight")?.or(list("short_factor")?);
        let long = tensor("rope_factors_long.weight")?.or(list("long_factor")?);
        short.zip(long)
    };
    let Some((short, long)) = both else {
        return Ok(None);
    };
    for factors in [&short, &long] {
        let fits = factors.len() == dims / 2 && factors.iter().all(|&f| f > 0.0);
        if !fits {
            return Err(Error::metadata(
                keys.key("rope.scaling"),
                format_args!("factors must be {} numbers above 0", dims / 2),
            ));
        }
    }
    Ok(Some((short, long)))
}
