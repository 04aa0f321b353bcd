//! What sequences have seen.

use bessemer::CacheType;
use bessemer::decoder::Sequences;
use bessemer::kernel::KvCache;

use crate::{Config, Error, Result, Transformer};

/// The keys and values of some sequences in all layers, and the tokens they are of. Sequences are numbered from 0
/// and know nothing of each other. Memory for all positions is asked for when it is made.
#[derive(Debug)]
pub struct Cache {
    sequences: Vec<Sequence>,
    kind: CacheType,
    capacity: usize,
    /// Layers, heads, and numbers of a head.
    sizes: [usize; 3],
    /// Keys and values, where the transformer is on a device.
    device: Option<Sequences>,
}

#[derive(Debug)]
struct Sequence {
    /// Keys and values, where the transformer is on the CPU.
    layers: Vec<KvCache>,
    tokens: Vec<u32>,
}

impl Cache {
    /// Empty sequences of up to `positions` tokens, on the device of the transformer.
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
                    reason: "there must be room for a token".to_owned(),
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
        Ok(Self {
            sequences: (0..sequences).map(sequence).collect::<Result<_>>()?,
            kind,
            capacity: positions,
            sizes: [config.layers, config.kv_heads, config.head_dim],
            device,
        })
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// The tokens that a sequence holds; none where there is no such sequence.
    pub fn tokens(&self, sequence: usize) -> &[u32] {
        self.sequences.get(sequence).map_or(&[], |s| &s.tokens)
    }

    /// How many tokens a sequence holds.
    pub fn len(&self, sequence: usize) -> usize {
        self.tokens(sequence).len()
    }

    /// Whether a sequence holds none.
    pub fn is_empty(&self, sequence: usize) -> bool {
        self.tokens(sequence).is_empty()
    }

    /// How many tokens every sequence can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What keys and values are kept as.
    pub fn kind(&self) -> CacheType {
        self.kind
    }

    /// Bytes of all positions of all sequences.
    pub fn bytes(&self) -> usize {
        if let Some(sequences) = &self.device {
            return sequences.bytes()[0];
        }
        let layers = self.sequences.iter().flat_map(|s| &s.layers);
        layers.map(KvCache::bytes).sum()
    }

    /// Forgets all tokens of a sequence from `len` on.
    pub fn truncate(&mut self, sequence: usize, len: usize) -> Result<()> {
        if let Some(device) = &mut self.device {
            device.truncate(sequence, len)?;
        }
        if let Some(sequence) = self.sequences.get_mut(sequence) {
            sequence.tokens.truncate(len);
        }
        Ok(())
    }

    /// Keeps what a sequence and a text begin with in common, less the last token of the text so that there is
    /// something left to compute, and returns how much that is.
    pub fn reuse(&mut self, sequence: usize, tokens: &[u32]) -> Result<usize> {
        let pairs = self.tokens(sequence).iter().zip(tokens);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = same.min(tokens.len().saturating_sub(1));
        self.truncate(sequence, kept)?;
        Ok(kept)
    }

    /// Whether keys and values are of a description's sizes, and on the CPU or not.
    pub(crate) fn fits(&self, config: &Config, is_cpu: bool) -> bool {
        let sizes = [config.layers, config.kv_heads, config.head_dim];
        self.sizes == sizes && self.device.is_none() == is_cpu
    }

    /// A layer of a sequence that there is, on the CPU.
    pub(crate) fn layer(&mut self, sequence: usize, layer: usize) -> &mut KvCache {
        &mut self.sequences[sequence].layers[layer]
    }

    /// The sequences on a device, if that is where they are.
    pub(crate) fn on_device(&mut self) -> Option<&mut Sequences> {
        self.device.as_mut()
    }

    /// Notes tokens whose keys and values were written.
    pub(crate) fn push(&mut self, sequence: usize, tokens: &[u32]) {
        self.sequences[sequence].tokens.extend_from_slice(tokens);
    }
}

impl Sequence {
    fn new(config: &Config, layers: usize, kind: CacheType, positions: usize) -> Result<Self> {
        let layer = |_| KvCache::new(kind, config.kv_heads, config.head_dim, positions);
        Ok(Self {
            layers: (0..layers).map(layer).collect::<Result<_, _>>()?,
            tokens: Vec::with_capacity(positions),
        })
    }
}
