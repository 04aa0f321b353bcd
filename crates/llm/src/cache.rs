//! KV cache.

use bessemer::CacheType;
use bessemer::decoder::Sequences;
use bessemer::memory::{memory_limit, stats};
use bessemer::slice_kernel::KvCache;

use crate::{Config, Error, Result, Transformer};

/// KV cache of one or more independent sequences, with the tokens it holds. Sequences are numbered from 0. Memory for
/// all positions is allocated up front.
#[derive(Debug)]
pub struct Cache {
    sequences: Vec<Sequence>,
    kind: CacheType,
    capacity: usize,
    /// Layers, KV heads and head dimension.
    sizes: [usize; 3],
    /// Keys and values, if the transformer is on a device other than the CPU.
    device: Option<Sequences>,
}

#[derive(Debug)]
struct Sequence {
    /// Keys and values, if the transformer is on the CPU.
    layers: Vec<KvCache>,
    tokens: Vec<u32>,
}

impl Cache {
    /// Creates empty sequences of up to `positions` tokens, on the transformer's device.
    pub fn new(
        transformer: &Transformer,
        kind: CacheType,
        sequences: usize,
        positions: usize,
    ) -> Result<Self> {
        for (what, n) in [
            ("a context", positions),
            ("a number of sequences", sequences),
        ] {
            if n == 0 {
                return Err(Error::Invalid {
                    what: format!("{what} of 0"),
                    reason: "must be at least 1".to_owned(),
                });
            }
        }
        let config = transformer.config();
        let device = match transformer.decoder() {
            Some(decoder) => Some(Sequences::new(decoder, kind, sequences, positions)?),
            None => None,
        };
        let layers = match device {
            Some(_) => 0,
            None => config.layers,
        };
        let sequence = |_| Sequence::new(config, layers, kind, positions);
        expect_memory(config, kind, sequences, positions)?;
        Ok(Self {
            sequences: (0..sequences).map(sequence).collect::<Result<_>>()?,
            kind,
            capacity: positions,
            sizes: [config.layers, config.kv_heads, config.head_dim],
            device,
        })
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Tokens in a sequence; empty if there is no such sequence.
    pub fn tokens(&self, sequence: usize) -> &[u32] {
        self.sequences.get(sequence).map_or(&[], |s| &s.tokens)
    }

    /// Number of tokens in a sequence.
    pub fn len(&self, sequence: usize) -> usize {
        self.tokens(sequence).len()
    }

    /// Returns whether a sequence is empty.
    pub fn is_empty(&self, sequence: usize) -> bool {
        self.tokens(sequence).is_empty()
    }

    /// Maximum number of tokens in a sequence.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Element type of keys and values.
    pub fn kind(&self) -> CacheType {
        self.kind
    }

    /// Size in bytes of all sequences.
    pub fn bytes(&self) -> usize {
        if let Some(sequences) = &self.device {
            return sequences.bytes()[0];
        }
        let layers = self.sequences.iter().flat_map(|s| &s.layers);
        layers.map(KvCache::bytes).sum()
    }

    /// Bytes of the keys and values of a token, in all layers.
    pub fn bytes_per_token(&self) -> usize {
        let [layers, kv_heads, head_dim] = self.sizes;
        2 * layers * kv_heads * self.kind.row_bytes(head_dim)
    }

    /// Removes all tokens of a sequence from `len` on.
    pub fn truncate(&mut self, sequence: usize, len: usize) -> Result<()> {
        if let Some(device) = &mut self.device {
            device.truncate(sequence, len)?;
        }
        if let Some(sequence) = self.sequences.get_mut(sequence) {
            sequence.tokens.truncate(len);
        }
        Ok(())
    }

    /// Keeps the longest common prefix of a sequence and `tokens`, without the last token, so that at least one is
    /// left to compute. Returns its length.
    pub fn reuse(&mut self, sequence: usize, tokens: &[u32]) -> Result<usize> {
        let pairs = self.tokens(sequence).iter().zip(tokens);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = same.min(tokens.len().saturating_sub(1));
        self.truncate(sequence, kept)?;
        Ok(kept)
    }

    /// Returns whether the sizes match a config, and the cache is on the CPU or not.
    pub(crate) fn fits(&self, config: &Config, is_cpu: bool) -> bool {
        let sizes = [config.layers, config.kv_heads, config.head_dim];
        self.sizes == sizes && self.device.is_none() == is_cpu
    }

    /// One layer of an existing sequence on the CPU.
    pub(crate) fn layer(&mut self, sequence: usize, layer: usize) -> &mut KvCache {
        &mut self.sequences[sequence].layers[layer]
    }

    /// The device's sequences, unless the cache is on the CPU.
    pub(crate) fn on_device(&mut self) -> Option<&mut Sequences> {
        self.device.as_mut()
    }

    /// Appends tokens whose keys and values have been written.
    pub(crate) fn push(&mut self, sequence: usize, tokens: &[u32]) {
        self.sequences[sequence].tokens.extend_from_slice(tokens);
    }
}

/// Returns an error if all sequences together would exceed the memory limit. The system commits memory when it is first
/// written, so that each of them alone could be allocated.
fn expect_memory(
    config: &Config,
    kind: CacheType,
    sequences: usize,
    positions: usize,
) -> Result<()> {
    let heads = config.kv_heads.saturating_mul(2 * config.layers);
    let position = kind.row_bytes(config.head_dim).saturating_mul(heads);
    let tokens = positions.saturating_mul(sequences);
    match position
        .saturating_add(size_of::<u32>())
        .saturating_mul(tokens)
    {
        bytes if bytes > memory_limit() => Err(out_of_memory(bytes)),
        _ => Ok(()),
    }
}

fn out_of_memory(requested: usize) -> Error {
    Error::Engine(bessemer::Error::OutOfMemory {
        op: "attention",
        requested,
        in_use: stats().in_use,
        limit: memory_limit(),
    })
}

impl Sequence {
    fn new(config: &Config, layers: usize, kind: CacheType, positions: usize) -> Result<Self> {
        let layer = |_| KvCache::new(kind, config.kv_heads, config.head_dim, positions);
        let mut tokens = Vec::new();
        tokens
            .try_reserve_exact(positions)
            .map_err(|_| out_of_memory(positions.saturating_mul(size_of::<u32>())))?;
        Ok(Self {
            layers: (0..layers).map(layer).collect::<Result<_, _>>()?,
            tokens,
        })
    }
}
