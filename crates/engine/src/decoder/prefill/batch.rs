//! The launches of a batch of rows.

use std::ops::Range;
use std::sync::Arc;

use bessemer_hal::BufferSlice;
use bytemuck::NoUninit;

use super::super::plan::{self, Part};
use super::super::weight::{LayerWeights, Place, Weights};
use super::super::{Decoder, OP, Sequences, Spec};
use super::attention::tiles_of;
use crate::Result;
use crate::metal::decoder_args::{PrefillEmbedArgs, PrefillNormArgs, RowPosition};
use crate::metal::{Block, Kernel, Metal, Recorder};

/// A token of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) slot: u32,
    pub(super) position: u32,
    pub(super) token: u32,
    /// Whether its logits are requested.
    pub(super) wanted: bool,
    /// Length of the sequence with all its rows.
    pub(super) len: u32,
}

impl Row {
    /// Positions it attends to, ignoring windows.
    fn seen(&self, spec: &Spec) -> usize {
        if spec.causal {
            self.position as usize + 1
        } else {
            self.len as usize
        }
    }
}

/// A batch of rows with the device memory it needs.
pub(super) struct Batch<'a> {
    decoder: &'a Decoder,
    pub(super) spec: &'a Spec,
    pub(super) weights: &'a Weights,
    pub(super) sequences: &'a Sequences,
    pub(super) rows: usize,
    tokens: Block,
    pub(super) spots: Block,
    /// Attention tiles of the rows.
    pub(super) tiles: Block,
    pub(super) tile_count: usize,
    /// Pairs of a row and a position it attends to, ignoring windows.
    pub(super) seen: usize,
    /// The rows whose logits are requested, and their sequences.
    wanted: Vec<(usize, usize)>,
    picked: Option<Block>,
    /// The residual stream, its norm, and a block's output while it awaits its post-norm.
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
        let spot = |r: &Row| RowPosition {
            slot: r.slot,
            position: r.position,
        };
        let spots: Vec<RowPosition> = rows.iter().map(spot).collect();
        let tiles = tiles_of(spec, rows);
        let wanted: Vec<(usize, usize)> = (0..)
            .zip(rows)
            .filter(|(_, r)| r.wanted)
            .map(|(i, r)| (i, r.slot as usize))
            .collect();
        let picked: Vec<u32> = wanted.iter().map(|&(i, _)| i as u32).collect();
        let picked = if picked.is_empty() {
            None
        } else {
            Some(copy_of(metal, &picked)?)
        };
        let memory = |numbers: usize| Block::idle(metal, OP, 4 * rows.len() * numbers);
        let (q, k) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let layers = &decoder.0.weights.layers;
        let is_normed =
            |l: &LayerWeights| l.post_attention_norm.is_some() || l.post_ffn_norm.is_some();
        let added = if layers.iter().any(is_normed) {
            Some(memory(spec.width)?)
        } else {
            None
        };
        Ok(Self {
            decoder,
            spec,
            weights: &decoder.0.weights,
            sequences,
            rows: rows.len(),
            tokens: copy_of(metal, &tokens)?,
            spots: copy_of(metal, &spots)?,
            tile_count: tiles.len(),
            seen: rows.iter().map(|r| r.seen(spec)).sum(),
            tiles: copy_of(metal, &tiles)?,
            wanted,
            picked,
            x: memory(spec.width)?,
            normed: memory(spec.width)?,
            added,
            qkv: memory(q + 2 * k)?,
            mixed: memory(q)?,
            inner: memory(spec.ffn)?,
        })
    }

    /// Number of rows whose logits are requested.
    pub(super) fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Records the embedding and all layers.
    pub(super) fn layers(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        self.embed(recorder)?;
        // Weights of the post-norm of the block output that is still to be added.
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

    /// Compile tasks of all kinds of layers; launches of one task may share a compiled source.
    pub(super) fn parts<'b>(&'b self, logits: &'b BufferSlice) -> Vec<Part<'b>> {
        let mut parts: Vec<Part<'b>> = vec![Box::new(|recorder| self.embed(recorder))];
        let mut known = Vec::new();
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let [q, k, v] = &layer.qkv;
            let matrices = [q, k, v, &layer.output, &layer.up, &layer.down];
            let kind = (
                matrices.map(|m| m.format),
                layer.gate.as_ref().map(|m| m.format),
                self.spec.layers[index].is_local,
            );
            if known.contains(&kind) {
                continue;
            }
            known.push(kind);
            let post = layer.post_ffn_norm.as_ref();
            parts.push(Box::new(move |recorder| {
                self.project_heads(recorder, layer)?;
                let output = (&layer.output, layer.output_bias.as_ref());
                let missing = layer.post_attention_norm.is_some();
                self.project(recorder, output, &self.mixed, missing)?;
                let down = (&layer.down, layer.down_bias.as_ref());
                self.project(recorder, down, &self.inner, post.is_some())
            }));
            parts.push(Box::new(move |recorder| self.feed(recorder, layer)));
            parts.push(Box::new(move |recorder| self.attend(recorder, index)));
            parts.push(Box::new(move |recorder| self.turn(recorder, index, layer)));
            parts.push(Box::new(move |recorder| {
                self.norm(recorder, &layer.attn_norm, None, None)?;
                self.norm(recorder, &layer.ffn_norm, post, None)
            }));
        }
        parts.push(Box::new(move |recorder| self.head(recorder, 0..1, logits)));
        parts
    }

    /// Records the logits of some of the requested rows; those of a single row go to the sampler's input.
    pub(super) fn head(
        &self,
        recorder: &mut Recorder<'_>,
        some: Range<usize>,
        to: &BufferSlice,
    ) -> Result<()> {
        // The row is aligned for `float4` loads.
        if some.len() == 1 && self.spec.width.is_multiple_of(4) {
            let (row, slot) = self.wanted[some.start];
            let size = 4 * self.spec.width;
            let place = |of: &Block| of.slice(row * size..(row + 1) * size);
            let given = [&self.x, self.added.as_ref().unwrap_or(&self.x)].map(place);
            return plan::head_of(self.decoder, self.sequences, slot, &given, recorder);
        }
        let missing = self.weights.layers.last();
        let missing = missing.and_then(|l| l.post_ffn_norm.as_ref());
        let count = some.len();
        self.norm(recorder, &self.weights.output_norm, missing, Some(some))?;
        self.project_head(recorder, count, to)
    }

    fn embed(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let table = &self.weights.embedding;
        let kernel = Kernel::new("prefill_embed", "prefill_embed").with("E_FORMAT", table.format);
        let embed = PrefillEmbedArgs {
            width: self.spec.width as u32,
            scale: self.spec.embedding_scale,
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

    /// Records the norm of all rows, or of some requested ones, after adding the pending block output.
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
            .flag("ADDED", added.is_some())
            .flag("PICKED", picked.is_some())
            .flag("CHANGED", changes)
            .flag("READ", !changes);
        let launch = recorder.launch(&kernel)?;
        let bytes = 4 * rows * width;
        let launch = if changes {
            launch.skip().update(self.x.all())
        } else {
            launch.read_part(self.x.all(), bytes).skip()
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
        let norm = PrefillNormArgs {
            width: width as u32,
            eps: self.spec.eps,
        };
        launch
            .write(self.normed.slice(0..bytes))
            .value(&norm)
            .groups(recorder, rows, width.next_multiple_of(32).min(256));
        Ok(())
    }
}

fn copy_of<T: NoUninit>(metal: &Arc<Metal>, values: &[T]) -> Result<Block> {
    Block::copy_of(metal, OP, bytemuck::cast_slice(values))
}
