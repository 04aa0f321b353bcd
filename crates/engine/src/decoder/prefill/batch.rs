//! The launches of a batch of rows.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use bessemer_hal::BufferSlice;
use bytemuck::{NoUninit, Pod, Zeroable};

use super::super::weight::{LayerWeights, Place, Weights};
use super::super::{Decoder, OP, Sequences, Spec};
use crate::kernel::CacheType;
use crate::metal::{Block, Kernel, Metal, Recorder};
use crate::{DType, Result};

/// A token of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) slot: u32,
    pub(super) position: u32,
    pub(super) token: u32,
    /// Whether its logits are.
    pub(super) wanted: bool,
    /// What the sequence holds with all its rows.
    pub(super) len: u32,
}

/// `Row` of `msl/prefill_turn.metal`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Spot {
    slot: u32,
    position: u32,
}

/// `Rows` of `msl/prefill_attention.metal`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Rows {
    first: u32,
    count: u32,
    slot: u32,
    position: u32,
    len: u32,
}

/// `Embed` of `msl/prefill_embed.metal`, and `Norm` of `msl/prefill_norm.metal`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Width {
    width: u32,
    scale_or_eps: f32,
}

/// `Turn` of `msl/prefill_turn.metal`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Turn {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    pairs: u32,
    rows: u32,
    positions: u32,
    eps: f32,
    factor: f32,
}

/// `Attend` of `msl/prefill_attention.metal`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Attend {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    positions: u32,
    window: u32,
    scale: f32,
    cap: f32,
    stride: u32,
    share: u32,
    shares: u32,
}

/// Elements of a head, queries and keys of a tile of attention, so that tiles fit 32 KB of threadgroup memory.
fn tiles(dim: usize) -> (usize, usize, usize) {
    match dim {
        ..=64 => (64, 32, 32),
        65..=128 => (128, 32, 16),
        _ => (256, 16, 8),
    }
}

/// Rows with the memory they need.
pub(super) struct Batch<'a> {
    pub(super) spec: &'a Spec,
    pub(super) weights: &'a Weights,
    sequences: &'a Sequences,
    pub(super) rows: usize,
    tokens: Block,
    spots: Block,
    /// Rows of a tile of attention.
    tiles: Block,
    tile_count: usize,
    /// The rows whose logits are wanted.
    picked: Option<Block>,
    /// What rows are between layers, what their norm is, and what a part adds where that is normed first.
    pub(super) x: Block,
    pub(super) normed: Block,
    pub(super) added: Option<Block>,
    pub(super) qkv: Block,
    pub(super) mixed: Block,
    pub(super) inner: Block,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        decoder: &'a Decoder,
        sequences: &'a Sequences,
        rows: &[Row],
    ) -> Result<Self> {
        let (metal, spec) = (decoder.metal(), decoder.spec());
        let tokens: Vec<u32> = rows.iter().map(|r| r.token).collect();
        let spot = |r: &Row| Spot {
            slot: r.slot,
            position: r.position,
        };
        let spots: Vec<Spot> = rows.iter().map(spot).collect();
        let tiles = tiles_of(spec, rows);
        let picked: Vec<u32> = (0_u32..)
            .zip(rows)
            .filter(|(_, r)| r.wanted)
            .map(|(i, _)| i)
            .collect();
        let picked = match picked.is_empty() {
            true => None,
            false => Some(copy_of(metal, &picked)?),
        };
        let memory = |numbers: usize| Block::idle(metal, OP, 4 * rows.len() * numbers);
        let (q, k) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let layers = &decoder.0.weights.layers;
        let is_normed =
            |l: &LayerWeights| l.post_attention_norm.is_some() || l.post_ffn_norm.is_some();
        let added = match layers.iter().any(is_normed) {
            true => Some(memory(spec.width)?),
            false => None,
        };
        Ok(Self {
            spec,
            weights: &decoder.0.weights,
            sequences,
            rows: rows.len(),
            tokens: copy_of(metal, &tokens)?,
            spots: copy_of(metal, &spots)?,
            tile_count: tiles.len(),
            tiles: copy_of(metal, &tiles)?,
            picked,
            x: memory(spec.width)?,
            normed: memory(spec.width)?,
            added,
            qkv: memory(q + 2 * k)?,
            mixed: memory(q)?,
            inner: memory(spec.ffn)?,
        })
    }

    /// How many rows' logits are wanted.
    pub(super) fn wanted(&self) -> usize {
        self.picked.as_ref().map_or(0, |p| p.len() / 4)
    }

    /// Records all layers, from tokens on.
    pub(super) fn layers(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        self.embed(recorder)?;
        // Weights of the norm of what is still to be added.
        let mut missing = None;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.norm(recorder, &layer.attn_norm, missing, None)?;
            self.project_heads(recorder, layer)?;
            self.turn(recorder, index, layer)?;
            self.attend(recorder, index)?;
            missing = layer.post_attention_norm.as_ref();
            let output = (&layer.output, layer.output_bias.as_ref());
            self.project(recorder, output, &self.mixed, missing.is_some())?;
            self.norm(recorder, &layer.ffn_norm, missing, None)?;
            self.feed(recorder, layer)?;
            missing = layer.post_ffn_norm.as_ref();
            let down = (&layer.down, layer.down_bias.as_ref());
            self.project(recorder, down, &self.inner, missing.is_some())?;
        }
        Ok(())
    }

    /// Records the logits of some of the rows that are wanted.
    pub(super) fn head(
        &self,
        recorder: &mut Recorder<'_>,
        some: Range<usize>,
        to: &BufferSlice,
    ) -> Result<()> {
        let missing = self.weights.layers.last();
        let missing = missing.and_then(|l| l.post_ffn_norm.as_ref());
        let count = some.len();
        self.norm(recorder, &self.weights.output_norm, missing, Some(some))?;
        self.project_head(recorder, count, to)
    }

    fn embed(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let table = &self.weights.embedding;
        let kernel = Kernel::new("prefill_embed", "prefill_embed").with("E_FORMAT", table.format);
        let embed = Width {
            width: self.spec.width as u32,
            scale_or_eps: self.spec.embedding_scale,
        };
        recorder
            .launch(&kernel)?
            .read_part(
                &table.slice,
                table.slice.length().min(table.row * self.rows),
            )
            .read(self.tokens.all())
            .write(self.x.all())
            .value(&embed)
            .threads(recorder, (self.spec.width.div_ceil(16), self.rows));
        Ok(())
    }

    /// Records the norm of all rows, or of some that are wanted, after adding what is missing.
    fn norm(
        &self,
        recorder: &mut Recorder<'_>,
        weight: &Place,
        missing: Option<&Place>,
        picked: Option<Range<usize>>,
    ) -> Result<()> {
        let width = self.spec.width;
        let rows = picked.as_ref().map_or(self.rows, |p| p.len());
        let added = self.added.as_ref().zip(missing);
        let changes = added.is_some() && picked.is_none();
        let kernel = Kernel::new("prefill_norm", "prefill_norm")
            .flag(0, added.is_some())
            .flag(1, picked.is_some())
            .flag(2, changes)
            .flag(3, !changes);
        let launch = recorder.launch(&kernel)?;
        let bytes = 4 * rows * width;
        let launch = match changes {
            true => launch.skip().update(self.x.all()),
            false => launch.read_part(self.x.all(), bytes).skip(),
        };
        let launch = launch.read(self.weights.vector(weight));
        let launch = match added {
            Some((added, post)) => launch
                .read_part(added.all(), bytes)
                .read(self.weights.vector(post)),
            None => launch.skip().skip(),
        };
        let launch = match self.picked.as_ref().zip(picked) {
            Some((all, some)) => launch.read(all.slice(4 * some.start..4 * some.end)),
            None => launch.skip(),
        };
        let norm = Width {
            width: width as u32,
            scale_or_eps: self.spec.eps,
        };
        launch
            .write(self.normed.slice(0..bytes))
            .value(&norm)
            .groups(recorder, rows, width.next_multiple_of(32).min(256));
        Ok(())
    }

    fn cache_dtype(&self) -> DType {
        match self.sequences.cache_type() {
            CacheType::F32 => DType::F32,
            // `Sequences::new` refuses blocks.
            CacheType::F16 | CacheType::Q8_0 => DType::F16,
        }
    }

    /// Records norms of heads, turns, and what goes to the cache.
    fn turn(&self, recorder: &mut Recorder<'_>, index: usize, layer: &LayerWeights) -> Result<()> {
        let spec = self.spec;
        let rotation = &self.weights.rotations[usize::from(spec.layers[index].is_local)];
        let kernel = Kernel::new("prefill_turn", "prefill_turn")
            .of("T", self.cache_dtype())
            .flag(0, rotation.interleaved)
            .flag(1, layer.head_norms.is_some());
        let launch = recorder.launch(&kernel)?.update(self.qkv.all());
        let launch = match &layer.head_norms {
            Some([q, k]) => launch
                .read(self.weights.vector(q))
                .read(self.weights.vector(k)),
            None => launch.skip().skip(),
        };
        let [keys, values] = self.sequences.caches(index);
        let size = self.sequences.cache_type().size();
        let written = self.rows * spec.kv_heads * spec.head_dim * size;
        let turn = Turn {
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
            .read(self.weights.vector(&rotation.turns))
            .read(self.spots.all())
            .write_part(keys, written)
            .write_part(values, written)
            .value(&turn)
            .groups(recorder, heads.div_ceil(4), 4 * 32);
        Ok(())
    }

    fn attend(&self, recorder: &mut Recorder<'_>, index: usize) -> Result<()> {
        let spec = self.spec;
        let (dims, queries, keys) = tiles(spec.head_dim);
        let window = spec.layers[index].window.map(u32::try_from);
        let window = window.and_then(|w| w.ok());
        let kernel = Kernel::new("prefill_attention", "prefill_attention")
            .of("T", self.cache_dtype())
            .with("DIMS", dims as i64)
            .with("QUERIES", queries as i64)
            .with("KEYS", keys as i64)
            .flag(0, spec.causal)
            .flag(1, window.is_some())
            .flag(2, spec.attention_softcap.is_some())
            .constant(3, spec.head_dim.div_ceil(8) as u32);
        let together = spec.heads / spec.kv_heads;
        let share = together.min(queries);
        let attend = Attend {
            heads: spec.heads as u32,
            kv_heads: spec.kv_heads as u32,
            dim: spec.head_dim as u32,
            positions: self.sequences.positions() as u32,
            window: window.unwrap_or(0),
            scale: spec.attention_scale,
            cap: spec.attention_softcap.unwrap_or(0.0),
            stride: ((spec.heads + 2 * spec.kv_heads) * spec.head_dim) as u32,
            share: share as u32,
            shares: together.div_ceil(share) as u32,
        };
        let [keys, values] = self.sequences.caches(index);
        let grid = (self.tile_count, spec.kv_heads * together.div_ceil(share));
        let read = 4 * self.rows * spec.heads * spec.head_dim;
        // What is read of keys and values depends on how many there are; whoever counts adds it.
        recorder
            .launch(&kernel)?
            .read_part(self.qkv.all(), read)
            .read_part(keys, 0)
            .read_part(values, 0)
            .read(self.tiles.all())
            .write(self.mixed.all())
            .value(&attend)
            .groups(recorder, grid, queries * 4);
        Ok(())
    }
}

/// Rows that go together through attention, those that see most first.
fn tiles_of(spec: &Spec, rows: &[Row]) -> Vec<Rows> {
    let (_, queries, _) = tiles(spec.head_dim);
    let share = (spec.heads / spec.kv_heads).min(queries);
    let most = queries / share;
    let mut tiles = Vec::new();
    let mut first = 0;
    for run in rows.chunk_by(|a, b| a.slot == b.slot) {
        for (i, part) in run.chunks(most).enumerate() {
            tiles.push(Rows {
                first: (first + i * most) as u32,
                count: part.len() as u32,
                slot: part[0].slot,
                position: part[0].position,
                // Later batches of the sequence are not there yet, and nobody in order sees them.
                len: match spec.causal {
                    true => part[0].position + part.len() as u32,
                    false => part[0].len,
                },
            });
        }
        first += run.len();
    }
    tiles.sort_by_key(|tile| Reverse(tile.position));
    tiles
}

fn copy_of<T: NoUninit>(metal: &Arc<Metal>, values: &[T]) -> Result<Block> {
    Block::copy_of(metal, OP, bytemuck::cast_slice(values))
}
