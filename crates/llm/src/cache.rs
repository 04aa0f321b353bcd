//! What a sequence has seen.

use bessemer::kernel::{CacheType, KvCache};

use crate::{Config, Error, Result};

/// The keys and values of a sequence in all layers, and the tokens they are of. Memory for all positions is asked
/// for when it is made.
#[derive(Debug)]
pub struct Cache {
    layers: Vec<KvCache>,
    tokens: Vec<u32>,
    capacity: usize,
}

impl Cache {
    /// An empty cache for sequences of up to `positions` tokens.
    pub fn new(config: &Config, kind: CacheType, positions: usize) -> Result<Self> {
        if positions == 0 {
            return Err(Error::Invalid {
                what: "a context of 0".to_owned(),
                reason: "there must be room for a token".to_owned(),
            });
        }
        let layer = |_| KvCache::new(kind, config.kv_heads, config.head_dim, positions);
        Ok(Self {
            layers: (0..config.layers).map(layer).collect::<Result<_, _>>()?,
            tokens: Vec::with_capacity(positions),
            capacity: positions,
        })
    }

    /// The tokens it holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many tokens it holds.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// How many tokens it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of all positions.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(KvCache::bytes).sum()
    }

    /// Forgets all tokens from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
    }

    /// Keeps what the cache and a text begin with in common, less the last token of the text so that there is
    /// something left to compute, and returns how much that is.
    pub fn reuse(&mut self, tokens: &[u32]) -> usize {
        let pairs = self.tokens.iter().zip(tokens);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = same.min(tokens.len().saturating_sub(1));
        self.truncate(kept);
        kept
    }

    pub(crate) fn layer(&mut self, i: usize) -> &mut KvCache {
        &mut self.layers[i]
    }

    pub(crate) fn push(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }
}
