//! The launches of a batch of rows.

use std::ops::Range;
use std::sync::Arc;

use bessemer_hal::BufferSlice;
use bytemuck::NoUninit;

use super::super::plan::{self, CompileTask, ResidualSlices};
use super::super::weight::{DecoderWeights, LayerWeights, WeightRange};
use super::super::{Decoder, OP, Sequences, Spec};
use super::attention::query_tiles;
use crate::Result;
use crate::metal::decoder_args::{PrefillEmbedArgs, PrefillNormArgs, RowPosition};
use crate::metal::{Block, Kernel, Metal, Recorder};

/// A token of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefillRow {
    pub(super) slot: u32,
    pub(super) position: u32,
    pub(super) token: u32,
    /// Whether its logits are requested.
    pub(super) wants_logits: bool,
    /// Length of the sequence with all its rows.
    pub(super) len: u32,
}

impl PrefillRow {
    /// Positions it attends to, ignoring windows.
    fn seen(&self, spec: &Spec) -> usize {
        if spec.causal {
            self.position as usize + 1
        } else {
            self.len as usize
        }
    }
}

/// A row whose logits are requested.
struct RequestedRow {
    index: usize,
    slot: usize,
}

/// A batch of rows with the device memory it needs.
pub(super) struct PrefillBatch<'a> {
    decoder: &'a Decoder,
    pub(super) spec: &'a Spec,
    pub(super) weights: &'a DecoderWeights,
    pub(super) sequences: &'a Sequences,
    pub(super) rows: usize,
    tokens: Block,
    pub(super) positions: Block,
    /// Attention tiles of the rows.
    pub(super) tiles: Block,
    pub(super) tile_count: usize,
    /// Pairs of a row and a position it attends to, ignoring windows.
    pub(super) seen: usize,
    /// The rows whose logits are requested, and their indices on the device.
    requested: Vec<RequestedRow>,
    requested_indices: Option<Block>,
    /// The residual stream, its norm, and a block's output while it awaits its post-norm.
    pub(super) x: Block,
    pub(super) normed: Block,
    pub(super) block_output: Option<Block>,
    pub(super) qkv: Block,
    pub(super) attn_output: Block,
    pub(super) ffn_hidden: Block,
}

impl<'a> PrefillBatch<'a> {
    pub(super) fn new(
        decoder: &'a Decoder,
        sequences: &'a Sequences,
        rows: &[PrefillRow],
    ) -> Result<Self> {
        let (metal, spec) = (decoder.metal(), decoder.spec());
        let tokens: Vec<u32> = rows.iter().map(|r| r.token).collect();
        let position = |r: &PrefillRow| RowPosition {
            slot: r.slot,
            position: r.position,
        };
        let positions: Vec<RowPosition> = rows.iter().map(position).collect();
        let tiles = query_tiles(spec, rows);
        let requested: Vec<RequestedRow> = (0..)
            .zip(rows)
            .filter(|(_, r)| r.wants_logits)
            .map(|(index, r)| RequestedRow {
                index,
                slot: r.slot as usize,
            })
            .collect();
        let indices: Vec<u32> = requested.iter().map(|r| r.index as u32).collect();
        let requested_indices = if indices.is_empty() {
            None
        } else {
            Some(copy_of(metal, &indices)?)
        };
        let memory = |elements: usize| Block::idle(metal, OP, 4 * rows.len() * elements);
        let (q, k) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let layers = &decoder.0.weights.layers;
        let is_normed =
            |l: &LayerWeights| l.post_attention_norm.is_some() || l.post_ffn_norm.is_some();
        let block_output = if layers.iter().any(is_normed) {
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
            positions: copy_of(metal, &positions)?,
            tile_count: tiles.len(),
            seen: rows.iter().map(|r| r.seen(spec)).sum(),
            tiles: copy_of(metal, &tiles)?,
            requested,
            requested_indices,
            x: memory(spec.width)?,
            normed: memory(spec.width)?,
            block_output,
            qkv: memory(q + 2 * k)?,
            attn_output: memory(q)?,
            ffn_hidden: memory(spec.ffn)?,
        })
    }

    /// Number of rows whose logits are requested.
    pub(super) fn logit_rows(&self) -> usize {
        self.requested.len()
    }

    /// Records the embedding and all layers.
    pub(super) fn layers(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        self.embed(recorder)?;
        // Weights of the post-norm of the block output that is still to be added.
        let mut pending_post_norm = None;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.norm(recorder, &layer.attn_norm, pending_post_norm, None)?;
            self.project_qkv(recorder, layer)?;
            self.rope(recorder, index, layer)?;
            self.attend(recorder, index)?;
            pending_post_norm = layer.post_attention_norm.as_ref();
            let has_post_norm = pending_post_norm.is_some();
            self.project(recorder, &layer.output, &self.attn_output, has_post_norm)?;
            self.norm(recorder, &layer.ffn_norm, pending_post_norm, None)?;
            self.gate_up(recorder, layer)?;
            pending_post_norm = layer.post_ffn_norm.as_ref();
            let has_post_norm = pending_post_norm.is_some();
            self.project(recorder, &layer.down, &self.ffn_hidden, has_post_norm)?;
        }
        Ok(())
    }

    /// Compile tasks of all kinds of layers; launches of one task may share a compiled source.
    pub(super) fn tasks<'b>(&'b self, logits: &'b BufferSlice) -> Vec<CompileTask<'b>> {
        let mut tasks: Vec<CompileTask<'b>> = vec![Box::new(|recorder| self.embed(recorder))];
        let mut known = Vec::new();
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let [q, k, v] = &layer.qkv;
            let matrices = [q, k, v, &layer.output.matrix, &layer.up, &layer.down.matrix];
            let kind = (
                matrices.map(|m| m.format),
                layer.gate.as_ref().map(|m| m.format),
                self.spec.layers[index].is_local,
            );
            if known.contains(&kind) {
                continue;
            }
            known.push(kind);
            let post_norm = layer.post_ffn_norm.as_ref();
            tasks.push(Box::new(move |recorder| {
                self.project_qkv(recorder, layer)?;
                let has_post_norm = layer.post_attention_norm.is_some();
                self.project(recorder, &layer.output, &self.attn_output, has_post_norm)?;
                self.project(recorder, &layer.down, &self.ffn_hidden, post_norm.is_some())
            }));
            tasks.push(Box::new(move |recorder| self.gate_up(recorder, layer)));
            tasks.push(Box::new(move |recorder| self.attend(recorder, index)));
            tasks.push(Box::new(move |recorder| self.rope(recorder, index, layer)));
            tasks.push(Box::new(move |recorder| {
                self.norm(recorder, &layer.attn_norm, None, None)?;
                self.norm(recorder, &layer.ffn_norm, post_norm, None)
            }));
        }
        tasks.push(Box::new(move |recorder| self.head(recorder, 0..1, logits)));
        tasks
    }

    /// Records the logits of some of the requested rows; those of a single row go to the sampler's input.
    pub(super) fn head(
        &self,
        recorder: &mut Recorder<'_>,
        requested: Range<usize>,
        to: &BufferSlice,
    ) -> Result<()> {
        // The row is aligned for `float4` loads.
        if requested.len() == 1 && self.spec.width.is_multiple_of(4) {
            let RequestedRow { index, slot } = self.requested[requested.start];
            let size = 4 * self.spec.width;
            let slice = |of: &Block| of.slice(index * size..(index + 1) * size);
            let residual = ResidualSlices {
                x: slice(&self.x),
                block_output: slice(self.block_output.as_ref().unwrap_or(&self.x)),
            };
            return plan::record_head(self.decoder, self.sequences, slot, &residual, recorder);
        }
        let last = self.weights.layers.last();
        let pending_post_norm = last.and_then(|l| l.post_ffn_norm.as_ref());
        let count = requested.len();
        let weight = &self.weights.output_norm;
        self.norm(recorder, weight, pending_post_norm, Some(requested))?;
        self.project_head(recorder, count, to)
    }

    fn embed(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let table = &self.weights.embedding;
        let kernel = Kernel::new("prefill_embed", "prefill_embed").define("E_FORMAT", table.format);
        let args = PrefillEmbedArgs {
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
            .value(&args)
            .threads(recorder, (self.spec.width.div_ceil(16), self.rows));
        Ok(())
    }

    /// Records the norm of all rows, or of some requested ones, after adding the pending block output.
    fn norm(
        &self,
        recorder: &mut Recorder<'_>,
        weight: &WeightRange,
        pending_post_norm: Option<&WeightRange>,
        requested: Option<Range<usize>>,
    ) -> Result<()> {
        let width = self.spec.width;
        let rows = requested.as_ref().map_or(self.rows, |r| r.len());
        let block_output = self.block_output.as_ref().zip(pending_post_norm);
        let in_place = block_output.is_some() && requested.is_none();
        let kernel = Kernel::new("prefill_norm", "prefill_norm")
            .flag("POST_NORM", block_output.is_some())
            .flag("GATHERED", requested.is_some())
            .flag("IN_PLACE", in_place)
            .flag("READ_ONLY", !in_place);
        let launch = recorder.launch(&kernel)?;
        let bytes = 4 * rows * width;
        let launch = if in_place {
            launch.skip().update(self.x.all())
        } else {
            launch.read_part(self.x.all(), bytes).skip()
        };
        let launch = launch.read(self.weights.vector(weight));
        let launch = match block_output {
            Some((block_output, post_norm)) => launch
                .read_part(block_output.all(), bytes)
                .read(self.weights.vector(post_norm)),
            None => launch.skip().skip(),
        };
        let launch = match self.requested_indices.as_ref().zip(requested) {
            Some((all, range)) => launch.read(all.slice(4 * range.start..4 * range.end)),
            None => launch.skip(),
        };
        let args = PrefillNormArgs {
            width: width as u32,
            eps: self.spec.eps,
        };
        launch
            .write(self.normed.slice(0..bytes))
            .value(&args)
            .groups(recorder, rows, width.next_multiple_of(32).min(256));
        Ok(())
    }
}

fn copy_of<T: NoUninit>(metal: &Arc<Metal>, values: &[T]) -> Result<Block> {
    Block::copy_of(metal, OP, bytemuck::cast_slice(values))
}
