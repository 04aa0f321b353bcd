//! Attention of one token over the KV cache of its sequence.

use bessemer_hal::BufferSlice;

use super::super::weight::{DeviceRotation, LayerWeights};
use super::super::{Layer, Spec};
use super::PlanContext;
use crate::kernel::CacheType;
use crate::metal::decoder_args::HeadArgs;
use crate::metal::{Kernel, Recorder};
use crate::{DType, Result};

/// Positions that make one more split worth the launch that merges the splits.
const SPLIT_POSITIONS: usize = 256;
/// Maximum number of threadgroups that share the keys of a head (splits).
const MAX_SPLITS: usize = 32;
/// Minimum positions of a split: `MIN_SPLIT_POSITIONS` of `msl/decode_attention.metal`.
const MIN_SPLIT_POSITIONS: usize = 64;

/// SIMD-groups of a threadgroup.
const SIMD_GROUPS: usize = 8;

/// Number of splits of the keys of a head (flash decoding): it suits the longest sequence, so that launches are the
/// same for every token.
fn splits(layer: &Layer, positions: usize) -> usize {
    let seen = layer.window.map_or(positions, |w| positions.min(w));
    seen.div_ceil(SPLIT_POSITIONS).clamp(1, MAX_SPLITS)
}

/// Bytes of partial results that splits leave in all layers for the `len`-th token.
pub(in super::super) fn split_traffic(spec: &Spec, positions: usize, len: usize) -> u64 {
    let of = |layer: &Layer| {
        let splits = splits(layer, positions);
        if splits == 1 {
            return 0;
        }
        let seen = layer.window.map_or(len, |w| len.min(w));
        let used = seen.div_ceil(seen.div_ceil(splits).max(MIN_SPLIT_POSITIONS));
        (4 * used * spec.heads * (spec.head_dim + 2)) as u64
    };
    spec.layers.iter().map(of).sum()
}

/// Maximum number of splits of any layer.
pub(in super::super) fn max_splits(spec: &Spec, positions: usize) -> usize {
    let all = spec.layers.iter().map(|layer| splits(layer, positions));
    all.max().unwrap_or(1)
}

/// Query heads that a threadgroup computes together over the KV head they share.
fn queries_per_threadgroup(spec: &Spec) -> usize {
    // A lane's share of them must fit its registers.
    let limit = if spec.head_dim > 128 { 4 } else { 8 };
    (spec.heads / spec.kv_heads).min(limit)
}

/// Number of times that keys and values are read.
pub(in super::super) fn passes(spec: &Spec) -> usize {
    (spec.heads / spec.kv_heads).div_ceil(queries_per_threadgroup(spec))
}

/// The type by which kernels know a cache: blocks of 8 bits are bytes.
pub(in super::super) fn cache_dtype(kind: CacheType) -> DType {
    match kind {
        CacheType::F32 => DType::F32,
        CacheType::F16 => DType::F16,
        CacheType::Q8_0 => DType::U8,
    }
}

/// Destination of the keys and values of a token.
pub(super) struct KvTarget {
    pub(super) dtype: DType,
    /// Whether that is scratch memory and not yet the cache.
    pub(super) staged: bool,
    pub(super) row: usize,
    pub(super) slices: [BufferSlice; 2],
}

impl PlanContext<'_> {
    /// Returns where the launches before attention write keys and values: to the cache, or to scratch memory from which
    /// attention quantises them into the cache.
    pub(super) fn target(&self, index: usize) -> KvTarget {
        let kind = self.sequences.cache_type();
        let scratch = self.sequences.scratch();
        match &scratch.staged_kv {
            Some([keys, values]) => KvTarget {
                dtype: DType::F32,
                staged: true,
                row: keys.length(),
                slices: [keys.clone(), values.clone()],
            },
            None => KvTarget {
                dtype: cache_dtype(kind),
                staged: false,
                row: self.spec.cache_row(kind),
                slices: self.sequences.cache(index, self.slot),
            },
        }
    }

    pub(super) fn rotation(&self, index: usize) -> &DeviceRotation {
        &self.weights.rotations[usize::from(self.spec.layers[index].is_local)]
    }

    pub(super) fn heads(&self, index: usize) -> HeadArgs {
        let (spec, rotation) = (self.spec, self.rotation(index));
        let layer = &spec.layers[index];
        let window = layer.window.and_then(|w| u32::try_from(w).ok());
        HeadArgs {
            width: spec.width as u32,
            heads: spec.heads as u32,
            kv_heads: spec.kv_heads as u32,
            dim: spec.head_dim as u32,
            pairs: rotation.pairs as u32,
            capacity: self.sequences.positions() as u32,
            window: window.unwrap_or(u32::MAX),
            splits: splits(layer, self.sequences.positions()) as u32,
            eps: spec.eps,
            factor: rotation.factor,
            scale: spec.attention_scale,
            cap: spec.attention_softcap.unwrap_or(0.0),
            repeats: 1,
        }
    }

    /// Records the norms of query and key heads, for families that have them, then RoPE and the write of keys to the
    /// cache.
    pub(super) fn rope(
        &self,
        recorder: &mut Recorder<'_>,
        index: usize,
        layer: &LayerWeights,
    ) -> Result<()> {
        let Some([q_norm, k_norm]) = &layer.head_norms else {
            return Ok(());
        };
        let (spec, rotation) = (self.spec, self.rotation(index));
        let target = self.target(index);
        let kernel = Kernel::new("decode_rope", "decode_rope")
            .with_type("T", target.dtype)
            .flag("INTERLEAVED", rotation.interleaved)
            .flag("STAGED_KV", target.staged);
        let scratch = self.sequences.scratch();
        let [keys, _] = target.slices;
        let launch = recorder
            .launch(&kernel)?
            .update(&scratch.q)
            .read(&scratch.k)
            .write_part(keys, target.row)
            .read(self.vector(q_norm))
            .read(self.vector(k_norm))
            .read(self.vector(&rotation.frequencies))
            .read(self.sequences.state(self.slot))
            .value(&self.heads(index));
        let heads = spec.heads + spec.kv_heads;
        launch.groups(recorder, heads.div_ceil(4), 4 * 32);
        Ok(())
    }

    /// Records attention, from queries to the output of their heads.
    pub(super) fn attend(&self, recorder: &mut Recorder<'_>, index: usize) -> Result<()> {
        let spec = self.spec;
        let heads = self.heads(index);
        let split = heads.splits > 1;
        let lane_dims = spec.head_dim.div_ceil(32).next_power_of_two();
        let rows = queries_per_threadgroup(spec);
        let kind = self.sequences.cache_type();
        let staged = self.sequences.scratch().staged_kv.as_ref();
        let kernel = |entry| {
            Kernel::new("decode_attention", entry)
                .with_type("T", cache_dtype(kind))
                .define("ROWS", rows as i64)
                .define("LANE_DIMS", lane_dims as i64)
                .define("SIMD_GROUPS", SIMD_GROUPS as i64)
                .flag("CAP", spec.attention_softcap.is_some())
                .flag("SPLIT", split)
                .flag("CACHED_KV", staged.is_none())
                .flag("STAGED_KV", staged.is_some())
        };
        let scratch = self.sequences.scratch();
        let [keys, values] = self.sequences.cache(index, self.slot);
        // Traffic of keys, values and partial results depends on the sequence's length; `split_traffic` and
        // `cache_read` count it.
        let launch = recorder
            .launch(&kernel("decode_attention"))?
            .read(&scratch.q);
        let launch = match staged {
            Some(_) => launch.skip().skip(),
            None => launch.read_part(&keys, 0).read_part(&values, 0),
        };
        let launch = launch.read(self.sequences.state(self.slot));
        let launch = if split {
            launch.write_part(&scratch.partials, 0)
        } else {
            launch.write(&scratch.attn_output)
        };
        let launch = launch.value(&heads);
        let launch = match staged {
            Some([new_keys, new_values]) => {
                let traffic = [0, spec.cache_row(kind)];
                launch
                    .read(new_keys)
                    .read(new_values)
                    .update_part(keys, traffic)
                    .update_part(values, traffic)
            }
            None => launch,
        };
        let grid = (heads.splits as usize, spec.kv_heads, passes(spec));
        launch.groups(recorder, grid, 32 * SIMD_GROUPS);
        if split {
            let launch = recorder
                .launch(&kernel("decode_attention_merge"))?
                .read_part(&scratch.partials, 0)
                .read(self.sequences.state(self.slot))
                .write(&scratch.attn_output)
                .value(&heads);
            launch.groups(recorder, spec.heads, spec.head_dim.next_multiple_of(32));
        }
        Ok(())
    }
}
