//! The launches of a decoding step: the host side of `msl/decode_*.metal`.

mod attention;
mod gemv;
mod warm_up;

use bessemer_hal::BufferSlice;

use super::weight::{DecoderWeights, LayerWeights, WeightRange};
use super::{Decoder, OP, Sequences, Spec};
use crate::Result;
use crate::metal::decoder_args::DecodeEmbedArgs;
use crate::metal::{Kernel, Launch, Recorder};

pub(super) use attention::{cache_dtype, max_splits, passes, split_traffic};
pub(super) use warm_up::{CompileTask, compile};

/// The launches that decode a token of one sequence; they are the same for every token.
pub(super) struct DecodePlan {
    embed: Launch,
    layers: Vec<Launch>,
    head: Launch,
}

/// A token that the host gives, and its position.
#[derive(Clone, Copy)]
pub(super) struct HostToken {
    pub(super) token: u32,
    pub(super) position: u32,
}

/// Context in which launches of a sequence are recorded.
struct PlanContext<'a> {
    spec: &'a Spec,
    weights: &'a DecoderWeights,
    sequences: &'a Sequences,
    slot: usize,
    /// Location of the residual stream, if it is not the sequences' scratch memory.
    external: Option<&'a ResidualSlices>,
}

/// Slices of a residual stream.
pub(super) struct ResidualSlices {
    pub(super) x: BufferSlice,
    /// The last block's output, if it awaits its post-norm.
    pub(super) block_output: BufferSlice,
}

/// The residual stream entering a layer or the output head.
struct ResidualInput {
    /// Index of the ping-pong buffer that holds it.
    buffer: usize,
    /// Weights of the last block's post-norm, if the block's output has not been added yet (Gemma).
    pending_post_norm: Option<WeightRange>,
}

impl ResidualInput {
    /// The output of the embedding.
    fn embedded() -> Self {
        Self {
            buffer: 0,
            pending_post_norm: None,
        }
    }
}

impl DecodePlan {
    pub(super) fn new(decoder: &Decoder, sequences: &Sequences, slot: usize) -> Result<Self> {
        let site = PlanContext {
            spec: decoder.spec(),
            weights: &decoder.0.weights,
            sequences,
            slot,
            external: None,
        };
        if !sequences.has_plan() {
            site.compile(decoder)?;
        }
        let mut recorder = Recorder::new(decoder.metal(), OP);
        let mut residual = ResidualInput::embedded();
        for (index, layer) in site.weights.layers.iter().enumerate() {
            residual = site.layer(&mut recorder, index, layer, residual)?;
        }
        let layers = recorder.into_launches()?;
        let mut recorder = Recorder::new(decoder.metal(), OP);
        site.head(&mut recorder, &residual)?;
        let head = single_launch(recorder)?;
        Ok(Self {
            embed: site.embed(decoder, None)?,
            layers,
            head,
        })
    }

    /// All launches.
    pub(super) fn token(&self) -> impl Iterator<Item = &Launch> {
        [&self.embed].into_iter().chain(self.after_embedding(true))
    }

    /// The launches after the embedding; the output head only if logits are wanted.
    pub(super) fn after_embedding(&self, logits: bool) -> impl Iterator<Item = &Launch> {
        let head = logits.then_some(&self.head);
        self.layers.iter().chain(head)
    }

    /// An embedding launch for a token that the host knows.
    pub(super) fn embed_given(
        &self,
        decoder: &Decoder,
        sequences: &Sequences,
        slot: usize,
        host_token: HostToken,
    ) -> Result<Launch> {
        let site = PlanContext {
            spec: decoder.spec(),
            weights: &decoder.0.weights,
            sequences,
            slot,
            external: None,
        };
        site.embed(decoder, Some(host_token))
    }
}

/// Records the output head of a sequence, given the residual stream after the last layer and, with a post-norm, the
/// block output that is still to be added.
pub(super) fn record_head(
    decoder: &Decoder,
    sequences: &Sequences,
    slot: usize,
    external: &ResidualSlices,
    recorder: &mut Recorder<'_>,
) -> Result<()> {
    let site = PlanContext {
        spec: decoder.spec(),
        weights: &decoder.0.weights,
        sequences,
        slot,
        external: Some(external),
    };
    let last = site.weights.layers.last();
    let residual = ResidualInput {
        buffer: 0,
        pending_post_norm: last.and_then(|layer| layer.post_ffn_norm.clone()),
    };
    site.head(recorder, &residual)
}

/// The only recorded launch.
fn single_launch(recorder: Recorder<'_>) -> Result<Launch> {
    let mut launches = recorder.into_launches()?;
    debug_assert_eq!(launches.len(), 1, "one launch");
    Ok(launches.pop().expect("a launch was recorded"))
}

impl PlanContext<'_> {
    fn embed(&self, decoder: &Decoder, host_token: Option<HostToken>) -> Result<Launch> {
        let mut recorder = Recorder::new(decoder.metal(), OP);
        let table = &self.weights.embedding;
        let kernel = Kernel::new("decode_embed", "decode_embed")
            .define("E_FORMAT", table.format)
            .flag("HOST_TOKEN", host_token.is_some());
        let embedding = DecodeEmbedArgs {
            width: self.spec.width as u32,
            vocab: self.spec.vocab as u32,
            scale: self.spec.embedding_scale,
            token: host_token.map_or(0, |t| t.token),
            position: host_token.map_or(0, |t| t.position),
        };
        let launch = recorder
            .launch(&kernel)?
            .read_part(&table.slice, table.row)
            .update(self.sequences.state(self.slot))
            .write(self.x(0))
            .value(&embedding);
        launch.threads(&mut recorder, self.spec.width.div_ceil(16));
        single_launch(recorder)
    }

    /// Records a layer; returns the residual stream that enters the next.
    fn layer(
        &self,
        recorder: &mut Recorder<'_>,
        index: usize,
        layer: &LayerWeights,
        residual: ResidualInput,
    ) -> Result<ResidualInput> {
        let scratch = self.sequences.scratch();
        let buffer = self.project_qkv(recorder, index, layer, &residual)?;
        self.rope(recorder, index, layer)?;
        self.attend(recorder, index)?;
        let post_norm = &layer.post_attention_norm;
        let from = scratch.attn_output.clone();
        self.project(recorder, &layer.output, from, buffer, post_norm.is_some())?;
        let residual = ResidualInput {
            buffer,
            pending_post_norm: post_norm.clone(),
        };
        let buffer = self.gate_up(recorder, layer, &residual)?;
        let post_norm = &layer.post_ffn_norm;
        let from = scratch.ffn_hidden.clone();
        self.project(recorder, &layer.down, from, buffer, post_norm.is_some())?;
        Ok(ResidualInput {
            buffer,
            pending_post_norm: post_norm.clone(),
        })
    }

    fn x(&self, buffer: usize) -> BufferSlice {
        match self.external {
            Some(residual) if buffer == 0 => residual.x.clone(),
            _ => self.sequences.scratch().x[buffer].clone(),
        }
    }

    /// The last block's output while it awaits its post-norm.
    fn block_output(&self) -> BufferSlice {
        match self.external {
            Some(residual) => residual.block_output.clone(),
            None => self.sequences.scratch().block_output.clone(),
        }
    }

    fn vector(&self, range: &WeightRange) -> BufferSlice {
        self.weights.vector(range)
    }
}
