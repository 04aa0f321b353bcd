//! Attention of one token over what its sequence has seen.

use bessemer_hal::BufferSlice;

use super::super::weight::{LayerWeights, Rotation};
use super::super::{Layer, Spec};
use super::Site;
use crate::kernel::CacheType;
use crate::metal::decoder_args::HeadArgs;
use crate::metal::{Kernel, Recorder};
use crate::{DType, Result};

/// Positions for which another threadgroup is worth a launch that joins them.
const SPLIT: usize = 256;
/// Threadgroups that share the keys of a head, at most.
const MOST_SPLITS: usize = 32;
/// Positions of a share, at least: `LEAST` of `msl/decode_attention.metal`.
const LEAST: usize = 64;

/// SIMD-groups of a threadgroup.
const SIMDS: usize = 8;

/// Threadgroups that share the keys of a head in a layer: as many as suit the longest sequence, so that they are the
/// same for every token.
fn splits(layer: &Layer, positions: usize) -> usize {
    let seen = layer.window.map_or(positions, |w| positions.min(w));
    seen.div_ceil(SPLIT).clamp(1, MOST_SPLITS)
}

/// Bytes that threadgroups which share keys leave for each other in all layers, after a token that is the `len`-th.
pub(in super::super) fn joined(spec: &Spec, positions: usize, len: usize) -> u64 {
    let of = |layer: &Layer| {
        let splits = splits(layer, positions);
        if splits == 1 {
            return 0;
        }
        let seen = layer.window.map_or(len, |w| len.min(w));
        let used = seen.div_ceil(seen.div_ceil(splits).max(LEAST));
        (4 * used * spec.heads * (spec.head_dim + 2)) as u64
    };
    spec.layers.iter().map(of).sum()
}

/// The most of any layer.
pub(in super::super) fn most_splits(spec: &Spec, positions: usize) -> usize {
    let all = spec.layers.iter().map(|layer| splits(layer, positions));
    all.max().unwrap_or(1)
}

/// HeadArgs of queries that go together over the keys they share.
fn together(spec: &Spec) -> usize {
    // What a lane holds of them should fit its registers.
    let most = if spec.head_dim > 128 { 4 } else { 8 };
    (spec.heads / spec.kv_heads).min(most)
}

/// How often keys and values are read.
pub(in super::super) fn passes(spec: &Spec) -> usize {
    (spec.heads / spec.kv_heads).div_ceil(together(spec))
}

/// The type that kernels know a cache by: blocks of 8 bits are bytes.
pub(in super::super) fn cache_dtype(kind: CacheType) -> DType {
    match kind {
        CacheType::F32 => DType::F32,
        CacheType::F16 => DType::F16,
        CacheType::Q8_0 => DType::U8,
    }
}

/// Where keys and values of a token go.
pub(super) struct Target {
    pub(super) dtype: DType,
    /// Whether that is not the cache yet.
    pub(super) fresh: bool,
    pub(super) row: usize,
    pub(super) places: [BufferSlice; 2],
}

impl Site<'_> {
    /// Where the launches before attention leave keys and values, as what, and how many bytes of each: in the cache, or
    /// for attention to keep.
    pub(super) fn target(&self, index: usize) -> Target {
        let kind = self.sequences.cache_type();
        let scratch = self.sequences.scratch();
        match &scratch.fresh {
            Some([keys, values]) => Target {
                dtype: DType::F32,
                fresh: true,
                row: keys.length(),
                places: [keys.clone(), values.clone()],
            },
            None => Target {
                dtype: cache_dtype(kind),
                fresh: false,
                row: self.spec.cache_row(kind),
                places: self.sequences.cache(index, self.slot),
            },
        }
    }

    pub(super) fn rotation(&self, index: usize) -> &Rotation {
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

    /// Records norms of queries and keys, for families that have them, what is then left of turning them, and keys into
    /// the cache.
    pub(super) fn turn_heads(
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
            .of("T", target.dtype)
            .flag("INTERLEAVED", rotation.interleaved)
            .flag("FRESH", target.fresh);
        let scratch = self.sequences.scratch();
        let [keys, _] = target.places;
        let launch = recorder
            .launch(&kernel)?
            .update(&scratch.q)
            .read(&scratch.k)
            .write_part(keys, target.row)
            .read(self.vector(q_norm))
            .read(self.vector(k_norm))
            .read(self.vector(&rotation.turns))
            .read(self.sequences.state(self.slot))
            .value(&self.heads(index));
        let heads = spec.heads + spec.kv_heads;
        launch.groups(recorder, heads.div_ceil(4), 4 * 32);
        Ok(())
    }

    /// Records attention, from queries to what their heads give.
    pub(super) fn attend(&self, recorder: &mut Recorder<'_>, index: usize) -> Result<()> {
        let spec = self.spec;
        let heads = self.heads(index);
        let split = heads.splits > 1;
        let lane_dims = spec.head_dim.div_ceil(32).next_power_of_two();
        let rows = together(spec);
        let kind = self.sequences.cache_type();
        let fresh = self.sequences.scratch().fresh.as_ref();
        let kernel = |entry| {
            Kernel::new("decode_attention", entry)
                .of("T", cache_dtype(kind))
                .with("ROWS", rows as i64)
                .with("LANE_DIMS", lane_dims as i64)
                .with("SIMDS", SIMDS as i64)
                .flag("CAP", spec.attention_softcap.is_some())
                .flag("SPLIT", split)
                .flag("KEPT", fresh.is_none())
                .flag("FRESH", fresh.is_some())
        };
        let scratch = self.sequences.scratch();
        let [keys, values] = self.sequences.cache(index, self.slot);
        // What is read of keys and values, and left for each other, depends on how many there are; `joined` and
        // `cache_read` count it.
        let launch = recorder
            .launch(&kernel("decode_attention"))?
            .read(&scratch.q);
        let launch = match fresh {
            Some(_) => launch.skip().skip(),
            None => launch.read_part(&keys, 0).read_part(&values, 0),
        };
        let launch = launch.read(self.sequences.state(self.slot));
        let launch = match split {
            true => launch.write_part(&scratch.parts, 0),
            false => launch.write(&scratch.mixed),
        };
        let launch = launch.value(&heads);
        let launch = match fresh {
            Some([new_keys, new_values]) => {
                let moved = [0, spec.cache_row(kind)];
                launch
                    .read(new_keys)
                    .read(new_values)
                    .update_part(keys, moved)
                    .update_part(values, moved)
            }
            None => launch,
        };
        let grid = (heads.splits as usize, spec.kv_heads, passes(spec));
        launch.groups(recorder, grid, 32 * SIMDS);
        if split {
            let launch = recorder
                .launch(&kernel("decode_join"))?
                .read_part(&scratch.parts, 0)
                .read(self.sequences.state(self.slot))
                .write(&scratch.mixed)
                .value(&heads);
            launch.groups(recorder, spec.heads, spec.head_dim.next_multiple_of(32));
        }
        Ok(())
    }
}
