//! How much memory a model will need, before it is loaded.

use bessemer::kernel::CacheType;
use bessemer::quant::Precision;

use crate::model::BATCH;
use crate::{Config, Error, Result, file};

/// Megabytes of a transformer's weights in half precision, by its sizes: embedding and head, and in every layer
/// queries, keys, values, output, a gated feed-forward part and two norms.
pub fn estimate_model_memory_mb(
    hidden: usize,
    inter: usize,
    layers: usize,
    vocab: usize,
    heads: usize,
    kv_heads: usize,
) -> f64 {
    let n = |v: usize| v as f64;
    let kv = n(hidden) * n(kv_heads) / n(heads.max(1));
    let attention = 2.0 * n(hidden) * n(hidden) + 2.0 * n(hidden) * kv;
    let layer = attention + 3.0 * n(hidden) * n(inter) + 2.0 * n(hidden);
    let all = 2.0 * n(vocab) * n(hidden) + n(layers) * layer + n(hidden);
    all * 2.0 / MEGABYTE
}

/// Megabytes of keys and values in half precision, for one sequence of `max_seq` positions with heads of `dim`.
pub fn estimate_kv_cache_memory_mb(
    layers: usize,
    kv_heads: usize,
    dim: usize,
    max_seq: usize,
) -> f64 {
    2.0 * layers as f64 * kv_heads as f64 * dim as f64 * max_seq as f64 * 2.0 / MEGABYTE
}

const MEGABYTE: f64 = 1024.0 * 1024.0;

/// Bytes that a model will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Weights in the mapped file.
    pub weights: u64,
    /// Weights arranged anew for fast products, at most.
    pub arranged: u64,
    /// Keys and values of one sequence.
    pub cache: u64,
    /// Activations of a batch, rounded ones too, and logits.
    pub scratch: u64,
    /// Keys and values of one position.
    pub cache_per_token: u64,
}

impl Estimate {
    /// What a model needs for a sequence of `context` positions.
    pub fn of(
        model: &file::Model,
        config: &Config,
        context: usize,
        kind: CacheType,
        precision: Precision,
    ) -> Self {
        let weights: u64 = model.tensors().map(|t| t.bytes() as u64).sum();
        // Matrices, but not those of whole precision.
        let arranged = model
            .tensors()
            .filter(|t| t.shape.len() == 2 && t.format != file::Format::F32);
        let arranged: u64 = arranged.map(|t| t.bytes() as u64).sum();
        let n = |v: usize| v as u64;
        let heads = 2 * n(config.layers) * n(config.kv_heads);
        let cache_per_token = heads * n(kind.row_bytes(config.head_dim));
        let row = 3 * config.width
            + 2 * config.heads * config.head_dim
            + 2 * config.kv_heads * config.head_dim
            + 2 * config.ffn;
        // With scales: two bytes and a half in each of two parts, and two more where models have halves besides.
        let widest = config
            .width
            .max(config.heads * config.head_dim)
            .max(config.ffn);
        let rounded = match precision {
            Precision::Fast => 7 * n(widest),
            Precision::Exact => 0,
        };
        Self {
            weights,
            // Scales of a byte make panels of nested formats a little larger, `Q2_K` most.
            arranged: match precision {
                Precision::Fast => arranged + arranged / 6,
                Precision::Exact => 0,
            },
            cache: cache_per_token * n(context.next_multiple_of(64)),
            scratch: n(BATCH.min(context)) * (4 * n(row) + rounded)
                + 4 * n(config.vocab)
                + (8 << 20),
            cache_per_token,
        }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.arranged + self.cache + self.scratch
    }

    /// An error where that is more than is available: with the numbers, and what would fit.
    pub fn check(&self, available: u64) -> Result<()> {
        if self.total() <= available {
            return Ok(());
        }
        let fixed = self.total() - self.cache;
        let context = available.saturating_sub(fixed) / self.cache_per_token.max(1);
        Err(Error::TooLarge {
            needed: self.total(),
            available,
            parts: format!(
                "weights {}, arranged {}, keys and values {}, scratch {}",
                megabytes(self.weights),
                megabytes(self.arranged),
                megabytes(self.cache),
                megabytes(self.scratch)
            ),
            remedy: match context / 64 * 64 {
                0 if self.arranged > 0 => {
                    "try --exact, which arranges nothing, or a smaller or more \
                     heavily quantised model"
                        .to_owned()
                }
                0 => "a smaller or more heavily quantised model is needed".to_owned(),
                n => format!("a context of {n} would fit (--context {n})"),
            },
        })
    }
}

/// Bytes as text.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / MEGABYTE)
}

/// Bytes of memory that the system has to give, where it says so.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests;
