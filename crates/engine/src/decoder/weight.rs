//! Weights on a device.

use std::ops::Range;
use std::sync::Arc;

use bessemer_hal::BufferSlice;

use super::{Footprint, Layer, OP, Projection, Spec};
use crate::metal::{Block, Metal};
use crate::quant::QuantMatrix;
use crate::{Result, RopeStyle, RopeTable};

/// Alignment of vectors, in bytes.
const VECTOR_ALIGNMENT_BYTES: usize = 64;

/// A weight matrix.
pub(super) struct WeightMatrix {
    /// All rows.
    pub(super) slice: BufferSlice,
    /// Number of its format in `quant.h`.
    pub(super) format: i64,
    /// Bytes of a row.
    pub(super) row: usize,
}

/// Byte range of a vector among all vectors.
pub(super) type WeightRange = Range<usize>;

/// A matrix with an optional bias.
pub(super) struct LinearWeights {
    pub(super) matrix: WeightMatrix,
    pub(super) bias: Option<WeightRange>,
}

/// A layer's weights.
pub(super) struct LayerWeights {
    pub(super) attn_norm: WeightRange,
    pub(super) qkv: [WeightMatrix; 3],
    /// Biases of queries, keys and values, concatenated.
    pub(super) qkv_bias: Option<WeightRange>,
    /// Norms of query and key heads.
    pub(super) head_norms: Option<[WeightRange; 2]>,
    pub(super) output: LinearWeights,
    pub(super) post_attention_norm: Option<WeightRange>,
    pub(super) ffn_norm: WeightRange,
    pub(super) gate: Option<WeightMatrix>,
    pub(super) up: WeightMatrix,
    /// Biases of the gate, if there is one, and of `up`, concatenated.
    pub(super) gate_up_bias: Option<WeightRange>,
    pub(super) down: LinearWeights,
    pub(super) post_ffn_norm: Option<WeightRange>,
}

/// RoPE parameters.
pub(super) struct DeviceRotation {
    /// Frequencies: rotation from one position to the next, in units of 2⁻⁶⁴ turns.
    pub(super) frequencies: WeightRange,
    pub(super) pairs: usize,
    pub(super) interleaved: bool,
    pub(super) factor: f32,
}

/// All weights.
pub(super) struct DecoderWeights {
    pub(super) embedding: WeightMatrix,
    pub(super) head: WeightMatrix,
    pub(super) output_norm: WeightRange,
    pub(super) rotations: [DeviceRotation; 2],
    pub(super) layers: Vec<LayerWeights>,
    vectors: Block,
    footprint: Footprint,
}

/// Weights being loaded onto a device.
struct Loader<'a> {
    metal: &'a Arc<Metal>,
    /// Matrices loaded so far: two with the same bytes share one buffer.
    matrices: Vec<(Range<*const u8>, BufferSlice)>,
    footprint: Footprint,
    bytes: Vec<u8>,
}

impl Loader<'_> {
    fn matrix(&mut self, from: &QuantMatrix) -> Result<WeightMatrix> {
        let at = from.bytes().as_ptr_range();
        let known = self.matrices.iter().find(|(other, _)| *other == at);
        let slice = match known {
            Some((_, slice)) => slice.clone(),
            None => {
                let block = from.on(self.metal)?;
                let slice = block.all();
                self.footprint.matrices += block.len();
                if block.is_borrowed() {
                    self.footprint.shared += block.len();
                }
                self.matrices.push((at, slice.clone()));
                slice
            }
        };
        Ok(WeightMatrix {
            row: slice.length() / from.rows().max(1),
            slice,
            format: i64::from(from.weights().msl()),
        })
    }

    fn vector(&mut self, values: &[f32]) -> WeightRange {
        self.append(bytemuck::cast_slice(values))
    }

    fn append(&mut self, bytes: &[u8]) -> WeightRange {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(VECTOR_ALIGNMENT_BYTES), 0);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Concatenated biases of projections, zeros for those without; `None` if none has a bias.
    fn biases(&mut self, of: &[&Projection]) -> Option<WeightRange> {
        of.iter().find(|p| p.bias.is_some())?;
        let mut all = Vec::new();
        for projection in of {
            match &projection.bias {
                Some(bias) => all.extend_from_slice(bias),
                None => all.resize(all.len() + projection.weight.rows(), 0.0),
            }
        }
        Some(self.vector(&all))
    }

    fn linear(&mut self, from: &Projection) -> Result<LinearWeights> {
        Ok(LinearWeights {
            matrix: self.matrix(&from.weight)?,
            bias: self.biases(&[from]),
        })
    }

    fn layer(&mut self, layer: &Layer) -> Result<LayerWeights> {
        let norms = layer.q_norm.as_ref().zip(layer.k_norm.as_ref());
        let gate_up_biased: Vec<&Projection> = layer.gate.iter().chain([&layer.up]).collect();
        Ok(LayerWeights {
            attn_norm: self.vector(&layer.attn_norm),
            qkv: [
                self.matrix(&layer.q.weight)?,
                self.matrix(&layer.k.weight)?,
                self.matrix(&layer.v.weight)?,
            ],
            qkv_bias: self.biases(&[&layer.q, &layer.k, &layer.v]),
            head_norms: norms.map(|(q, k)| [self.vector(q), self.vector(k)]),
            output: self.linear(&layer.output)?,
            post_attention_norm: layer.post_attention_norm.as_ref().map(|n| self.vector(n)),
            ffn_norm: self.vector(&layer.ffn_norm),
            gate: match &layer.gate {
                Some(gate) => Some(self.matrix(&gate.weight)?),
                None => None,
            },
            up: self.matrix(&layer.up.weight)?,
            gate_up_bias: self.biases(&gate_up_biased),
            down: self.linear(&layer.down)?,
            post_ffn_norm: layer.post_ffn_norm.as_ref().map(|n| self.vector(n)),
        })
    }

    fn rotation(&mut self, table: &RopeTable) -> Result<DeviceRotation> {
        let pairs = table.frequencies().shape().count();
        // The fractions of revolutions come first, then whole revolutions, which do not matter at integer positions.
        let mut frequencies = table.revolutions().to_vec::<u64>()?;
        frequencies.truncate(pairs);
        // At least one, so that it can be bound.
        frequencies.resize(pairs.max(1), 0);
        Ok(DeviceRotation {
            frequencies: self.append(bytemuck::cast_slice(&frequencies)),
            pairs,
            interleaved: table.style() == RopeStyle::Interleaved,
            factor: table.attention_factor() as f32,
        })
    }
}

impl DecoderWeights {
    pub(super) fn new(metal: &Arc<Metal>, spec: &Spec) -> Result<Self> {
        let mut loader = Loader {
            metal,
            matrices: Vec::new(),
            footprint: Footprint::default(),
            bytes: Vec::new(),
        };
        let embedding = loader.matrix(&spec.embedding)?;
        let head = loader.matrix(&spec.head)?;
        let output_norm = loader.vector(&spec.output_norm);
        let [all, local] = &spec.rotations;
        let rotations = [loader.rotation(all)?, loader.rotation(local)?];
        let layers = spec.layers.iter().map(|l| loader.layer(l));
        let layers = layers.collect::<Result<_>>()?;
        Ok(Self {
            embedding,
            head,
            output_norm,
            rotations,
            layers,
            footprint: Footprint {
                vectors: loader.bytes.len(),
                ..loader.footprint
            },
            vectors: Block::copy_of(metal, OP, &loader.bytes)?,
        })
    }

    /// A vector, to be bound.
    pub(super) fn vector(&self, range: &WeightRange) -> BufferSlice {
        self.vectors.slice(range.clone())
    }

    pub(super) fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// Bytes that decoding a token reads.
    pub(super) fn bytes_per_token(&self) -> usize {
        let matrix = |m: &WeightMatrix| m.slice.length();
        let layer = |l: &LayerWeights| {
            let all = l
                .qkv
                .iter()
                .chain([&l.output.matrix, &l.up, &l.down.matrix])
                .chain(&l.gate);
            let vectors = [&l.qkv_bias, &l.output.bias, &l.gate_up_bias, &l.down.bias];
            let norms = [&l.post_attention_norm, &l.post_ffn_norm];
            let vectors = vectors.into_iter().chain(norms).flatten();
            let vectors = vectors.chain(l.head_norms.iter().flatten());
            let vectors = vectors.chain([&l.attn_norm, &l.ffn_norm]);
            all.map(matrix).sum::<usize>() + vectors.map(Range::len).sum::<usize>()
        };
        let layers: usize = self.layers.iter().map(layer).sum();
        layers + self.embedding.row + matrix(&self.head) + self.output_norm.len()
    }
}
