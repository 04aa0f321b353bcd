//! Attention of the rows of a batch over the KV caches, and RoPE before it.

use std::cmp::Reverse;

use super::super::weight::LayerWeights;
use super::super::{Spec, plan};
use super::batch::{PrefillBatch, PrefillRow};
use crate::metal::decoder_args::{PrefillAttentionArgs, PrefillRopeArgs, QueryTile};
use crate::metal::{Kernel, Recorder, matmul_cost};
use crate::{DType, Result};

/// Elements of a head, queries and keys of an attention tile, so that tiles fit 32 KB of threadgroup memory.
fn tile_shape(dim: usize) -> (usize, usize, usize) {
    match dim {
        ..=64 => (64, 32, 32),
        65..=128 => (128, 32, 16),
        _ => (256, 16, 8),
    }
}

impl PrefillBatch<'_> {
    fn cache_dtype(&self) -> DType {
        plan::cache_dtype(self.sequences.cache_type())
    }

    /// Records head norms, RoPE and the writes to the KV cache.
    pub(super) fn rope(
        &self,
        recorder: &mut Recorder<'_>,
        index: usize,
        layer: &LayerWeights,
    ) -> Result<()> {
        let spec = self.spec;
        let rotation = &self.weights.rotations[usize::from(spec.layers[index].is_local)];
        let kernel = Kernel::new("prefill_rope", "prefill_rope")
            .with_type("T", self.cache_dtype())
            .flag("INTERLEAVED", rotation.interleaved)
            .flag("HEAD_NORMS", layer.head_norms.is_some());
        let launch = recorder.launch(&kernel)?.update(self.qkv.all());
        let launch = match &layer.head_norms {
            Some([q, k]) => launch
                .read(self.weights.vector(q))
                .read(self.weights.vector(k)),
            None => launch.skip().skip(),
        };
        let [keys, values] = self.sequences.caches(index);
        let written = self.rows * spec.cache_row(self.sequences.cache_type());
        let args = PrefillRopeArgs {
            heads: spec.heads as u32,
            kv_heads: spec.kv_heads as u32,
            dim: spec.head_dim as u32,
            pairs: rotation.pairs as u32,
            rows: self.rows as u32,
            positions: self.sequences.positions() as u32,
            eps: spec.eps,
            factor: rotation.factor,
        };
        let heads = self.rows * (spec.heads + 2 * spec.kv_heads);
        launch
            .read(self.weights.vector(&rotation.frequencies))
            .read(self.positions.all())
            .write_part(keys, written)
            .write_part(values, written)
            .value(&args)
            .groups(recorder, heads.div_ceil(4), 4 * 32);
        Ok(())
    }

    pub(super) fn attend(&self, recorder: &mut Recorder<'_>, index: usize) -> Result<()> {
        let spec = self.spec;
        let (dims, queries, keys) = tile_shape(spec.head_dim);
        let window = spec.layers[index].window.map(u32::try_from);
        let window = window.and_then(|w| w.ok());
        let kernel = Kernel::new("prefill_attention", "prefill_attention")
            .with_type("T", self.cache_dtype())
            .define("DIMS", dims as i64)
            .define("QUERIES", queries as i64)
            .define("KEYS", keys as i64)
            .flag("CAUSAL", spec.causal)
            .flag("WINDOW", window.is_some())
            .flag("CAP", spec.attention_softcap.is_some())
            .constant("DIM_BLOCKS", spec.head_dim.div_ceil(8) as u32);
        let group = spec.heads / spec.kv_heads;
        let share = group.min(queries);
        let attend = PrefillAttentionArgs {
            heads: spec.heads as u32,
            kv_heads: spec.kv_heads as u32,
            dim: spec.head_dim as u32,
            positions: self.sequences.positions() as u32,
            window: window.unwrap_or(0),
            scale: spec.attention_scale,
            cap: spec.attention_softcap.unwrap_or(0.0),
            stride: ((spec.heads + 2 * spec.kv_heads) * spec.head_dim) as u32,
            share: share as u32,
            shares: group.div_ceil(share) as u32,
        };
        let [keys, values] = self.sequences.caches(index);
        let grid = (self.tile_count, spec.kv_heads * group.div_ceil(share));
        let read = 4 * self.rows * spec.heads * spec.head_dim;
        // Traffic of keys and values depends on the lengths of the sequences; callers that count add it.
        let cost = matmul_cost(self.seen.saturating_mul(spec.heads), 2 * spec.head_dim);
        recorder
            .launch_in_bands(kernel, cost)?
            .read_part(self.qkv.all(), read)
            .read_part(keys, 0)
            .read_part(values, 0)
            .read(self.tiles.all())
            .write(self.attn_output.all())
            .value(&attend)
            .groups(recorder, grid, queries * 4);
        Ok(())
    }
}

/// Splits rows into attention tiles, ordered by the number of positions they attend to, largest first.
pub(super) fn query_tiles(spec: &Spec, rows: &[PrefillRow]) -> Vec<QueryTile> {
    let (_, queries, _) = tile_shape(spec.head_dim);
    let share = (spec.heads / spec.kv_heads).min(queries);
    let tile_rows = queries / share;
    let mut tiles = Vec::new();
    let mut first = 0;
    for run in rows.chunk_by(|a, b| a.slot == b.slot) {
        for (i, chunk) in run.chunks(tile_rows).enumerate() {
            tiles.push(QueryTile {
                first: (first + i * tile_rows) as u32,
                count: chunk.len() as u32,
                slot: chunk[0].slot,
                position: chunk[0].position,
                // Later batches of the sequence are not in the cache yet, and causal rows do not see them.
                len: if spec.causal {
                    chunk[0].position + chunk.len() as u32
                } else {
                    chunk[0].len
                },
            });
        }
        first += run.len();
    }
    tiles.sort_by_key(|tile| Reverse(tile.position));
    tiles
}
