//! Memory estimates, before a model is loaded.

use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer::slice_kernel::KvCache;

use crate::model::{PREFILL_BATCH_TOKENS, weights as weights_of};
use crate::{Config, Error, Result, file};

/// Size in MiB of a transformer's weights in f16: embedding, head and, per layer, Q, K, V and output projections, a
/// gated FFN and two norms.
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
    all * 2.0 / BYTES_PER_MIB
}

/// Size in MiB of a KV cache in f16, for one sequence of `max_seq` positions with heads of `dim`.
pub fn estimate_kv_cache_memory_mb(
    layers: usize,
    kv_heads: usize,
    dim: usize,
    max_seq: usize,
) -> f64 {
    2.0 * layers as f64 * kv_heads as f64 * dim as f64 * max_seq as f64 * 2.0 / BYTES_PER_MIB
}

const BYTES_PER_MIB: f64 = 1024.0 * 1024.0;

/// Estimated memory of a model in bytes: the peak, with a full context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Weights that are used in the mapped file, and vectors, which are copied.
    pub weights: u64,
    /// Repacked weights. The file's pages are released while weights are repacked.
    pub repacked: u64,
    /// KV cache of one sequence.
    pub cache: u64,
    /// Activations of a batch, also quantised, tiles of dequantised weights, and logits.
    pub scratch: u64,
    /// The process without the model: code, metadata and tokenizer.
    pub program: u64,
    /// KV cache of one position.
    pub cache_per_token: u64,
}

impl Estimate {
    /// Estimates the memory for a sequence of `context` positions. `program` includes the current resident memory:
    /// call this after loading the tokenizer.
    pub fn of(
        model: &file::Model,
        config: &Config,
        context: usize,
        kind: CacheType,
        precision: Precision,
    ) -> Self {
        let n = |v: usize| v as u64;
        let (mut weights, mut repacked) = (0, 0);
        for tensor in model.tensors() {
            let &[rows, cols] = &tensor.shape[..] else {
                weights += 4 * n(tensor.count());
                continue;
            };
            if tensor.name == "token_embd.weight" && !config.tied_head {
                // Its rows are read one at a time and do not stay resident.
                continue;
            }
            let panels = weights_of(tensor.format).and_then(|w| w.repacked_bytes(rows, cols));
            match panels.filter(|_| precision == Precision::Fast) {
                Some(bytes) => repacked += n(bytes),
                None => weights += n(tensor.bytes()),
            }
        }
        let threads = THREAD_BYTES * n(bessemer::pool::threads());
        let heads = n(config.layers).saturating_mul(n(config.kv_heads));
        let head_bytes = n(kind.row_bytes(config.head_dim)).saturating_mul(2);
        let cache_per_token = heads.saturating_mul(head_bytes);
        Self {
            weights,
            repacked,
            cache: cache_per_token.saturating_mul(
                n(context.div_ceil(CONTEXT_STEP_TOKENS)).saturating_mul(n(CONTEXT_STEP_TOKENS)),
            ),
            scratch: scratch(model, config, PREFILL_BATCH_TOKENS.min(context), precision),
            program: resident().unwrap_or(PROGRAM_BYTES) + CODE_BYTES + threads,
            cache_per_token,
        }
    }

    /// Total in bytes.
    pub fn total(&self) -> u64 {
        let parts = [
            self.weights,
            self.repacked,
            self.cache,
            self.scratch,
            self.program,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Fails if the total exceeds the available memory, with a breakdown and a context that would fit.
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
                "weights {}, repacked weights {}, keys and values {}, scratch {}, program {}",
                megabytes(self.weights),
                megabytes(self.repacked),
                megabytes(self.cache),
                megabytes(self.scratch),
                megabytes(self.program)
            ),
            remedy: match context / CONTEXT_STEP_TOKENS as u64 * CONTEXT_STEP_TOKENS as u64 {
                0 => "a smaller or more heavily quantised model is needed".to_owned(),
                n => format!("a context of {n} would fit (--context {n})"),
            },
        })
    }
}

/// Tokens by which the capacity of a cache grows.
const CONTEXT_STEP_TOKENS: usize = KvCache::CAPACITY_STEP_POSITIONS;

/// Resident memory before a model is loaded, if the system does not report it: measured with SmolLM2's tokenizer.
const PROGRAM_BYTES: u64 = 24 << 20;

/// Code that only generation touches, and freed memory that the allocator keeps: measured.
const CODE_BYTES: u64 = 4 << 20;

/// A thread's stack and packing buffers for GEMM.
const THREAD_BYTES: u64 = 512 << 10;

/// Size in bytes of the [`Workspace`](crate::model::Workspace) and of the engine's scratch memory for a batch of
/// `rows` tokens.
fn scratch(model: &file::Model, config: &Config, rows: usize, precision: Precision) -> u64 {
    // Sizes of a config, which anybody may change: no sum or product of these overflows.
    let size = |n: usize| (n as u128).min(u32::MAX.into());
    let (rows, vocab, dim) = (size(rows), size(config.vocab), size(config.head_dim));
    let (width, ffn) = (size(config.width), size(config.ffn));
    let (q, kv) = (size(config.heads) * dim, size(config.kv_heads) * dim);
    let row = 2 * width + q + 2 * kv + q.max(width) + 2 * ffn + 2 * dim;
    let widest = width.max(q).max(ffn);
    let is_half = |t: &file::TensorInfo| {
        t.shape.len() == 2 && matches!(t.format, file::Format::F16 | file::Format::BF16)
    };
    let products = match precision {
        // Tiles of dequantised weights, and both operands packed for GEMM.
        Precision::Exact => 4 * (2 * TILE_LEN.max(64 * widest) + rows * widest),
        // Quantised activations: two bytes each, four if any weights are half precision, and 12 bytes of scales per 32.
        Precision::Fast => {
            let bytes = if model.tensors().any(is_half) { 4 } else { 2 };
            rows * widest * bytes + rows * widest / 32 * 12
        }
    };
    u64::try_from(4 * (rows * row + vocab) + products).unwrap_or(u64::MAX)
}

/// Weights in a dequantised tile of the engine.
const TILE_LEN: u128 = 512 << 10;

/// Resident memory of this process in bytes, if the system reports it.
pub fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// Peak resident memory of this process in bytes, if the system reports it.
pub fn peak() -> Option<u64> {
    status("VmHWM:")
}

fn status(field: &str) -> Option<u64> {
    kilobytes("/proc/self/status", field)
}

/// Reads a line `field: 123 kB` of a system file, in bytes.
fn kilobytes(path: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Formats bytes as megabytes.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / BYTES_PER_MIB)
}

/// Available memory in bytes, if the system reports it.
pub fn available() -> Option<u64> {
    kilobytes("/proc/meminfo", "MemAvailable:")
}

#[cfg(test)]
mod tests;
