//! The launches of a decoding step: the host side of `msl/decode_*.metal`.

mod attention;
mod product;
mod warm;

use std::sync::Arc;

use bessemer_hal::BufferSlice;

use super::weight::{LayerWeights, Place, Weights};
use super::{Decoder, OP, Sequences, Spec};
use crate::Result;
use crate::metal::decoder_args::DecodeEmbedArgs;
use crate::metal::{Kernel, Launch, Recorder};

pub(super) use attention::{cache_dtype, joined, most_splits, passes};
pub(super) use warm::{Part, compile};

/// The launches that decode a token of one sequence; they are the same for every token.
pub(super) struct Plan {
    embed: Launch,
    layers: Vec<Launch>,
    head: Launch,
}

/// A token that the host gives, and its position.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) token: u32,
    pub(super) position: u32,
}

/// Context in which launches of a sequence are recorded.
struct Site<'a> {
    spec: &'a Spec,
    weights: &'a Weights,
    sequences: &'a Sequences,
    slot: usize,
    /// Location of the residual stream, if it is not the sequences' scratch memory.
    given: Option<&'a [BufferSlice; 2]>,
}

/// The residual stream entering a layer or the output head.
struct Entering {
    /// Index of the ping-pong buffer that holds it.
    place: usize,
    /// Weights of the last block's post-norm, if the block's output has not been added yet (Gemma).
    post: Option<Place>,
}

impl Entering {
    /// The output of the embedding.
    fn embedded() -> Self {
        Self {
            place: 0,
            post: None,
        }
    }
}

impl Plan {
    pub(super) fn new(decoder: &Decoder, sequences: &Sequences, slot: usize) -> Result<Self> {
        let site = Site {
            spec: decoder.spec(),
            weights: &decoder.0.weights,
            sequences,
            slot,
            given: None,
        };
        if !sequences.has_plans() {
            site.compile(decoder)?;
        }
        let mut recorder = Recorder::new(decoder.metal(), OP);
        let mut entering = Entering::embedded();
        for (index, layer) in site.weights.layers.iter().enumerate() {
            entering = site.layer(&mut recorder, index, layer, entering)?;
        }
        let layers = recorder.into_launches()?;
        let mut recorder = Recorder::new(decoder.metal(), OP);
        site.head(&mut recorder, &entering)?;
        let head = only(recorder)?;
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
        taken: Taken,
    ) -> Result<Launch> {
        let site = Site {
            spec: decoder.spec(),
            weights: &decoder.0.weights,
            sequences,
            slot,
            given: None,
        };
        site.embed(decoder, Some(taken))
    }
}

/// Records the output head of a sequence, given the residual stream after the last layer and, with a post-norm, the
/// block output that is still to be added.
pub(super) fn head_of(
    decoder: &Decoder,
    sequences: &Sequences,
    slot: usize,
    given: &[BufferSlice; 2],
    recorder: &mut Recorder<'_>,
) -> Result<()> {
    let site = Site {
        spec: decoder.spec(),
        weights: &decoder.0.weights,
        sequences,
        slot,
        given: Some(given),
    };
    let last = site.weights.layers.last();
    let entering = Entering {
        place: 0,
        post: last.and_then(|layer| layer.post_ffn_norm.clone()),
    };
    site.head(recorder, &entering)
}

/// The only recorded launch.
fn only(recorder: Recorder<'_>) -> Result<Launch> {
    let mut launches = recorder.into_launches()?;
    debug_assert_eq!(launches.len(), 1, "one launch");
    Ok(launches.pop().expect("a launch was recorded"))
}

impl Site<'_> {
    fn embed(&self, decoder: &Decoder, taken: Option<Taken>) -> Result<Launch> {
        let mut recorder = Recorder::new(decoder.metal(), OP);
        let table = &self.weights.embedding;
        let kernel = Kernel::new("decode_embed", "decode_embed")
            .with("E_FORMAT", table.format)
            .flag("GIVEN", taken.is_some());
        let embedding = DecodeEmbedArgs {
            width: self.spec.width as u32,
            vocab: self.spec.vocab as u32,
            scale: self.spec.embedding_scale,
            token: taken.map_or(0, |t| t.token),
            position: taken.map_or(0, |t| t.position),
        };
        let launch = recorder
            .launch(&kernel)?
            .read_part(&table.slice, table.row)
            .update(self.sequences.state(self.slot))
            .write(self.x(0))
            .value(&embedding);
        launch.threads(&mut recorder, self.spec.width.div_ceil(16));
        only(recorder)
    }

    /// Records a layer; returns the residual stream that enters the next.
    fn layer(
        &self,
        recorder: &mut Recorder<'_>,
        index: usize,
        layer: &LayerWeights,
        entering: Entering,
    ) -> Result<Entering> {
        let place = self.project_heads(recorder, index, layer, &entering)?;
        self.turn_heads(recorder, index, layer)?;
        self.attend(recorder, index)?;
        let mixed = self.sequences.scratch().mixed.clone();
        let output = (&layer.output, layer.output_bias.as_ref());
        let post = layer.post_attention_norm.clone();
        self.project(recorder, output, mixed, (place, post.is_some()))?;
        let entering = Entering { place, post };
        let place = self.feed(recorder, layer, &entering)?;
        let inner = self.sequences.scratch().inner.clone();
        let down = (&layer.down, layer.down_bias.as_ref());
        let post = layer.post_ffn_norm.clone();
        self.project(recorder, down, inner, (place, post.is_some()))?;
        Ok(Entering { place, post })
    }

    fn x(&self, place: usize) -> BufferSlice {
        match self.given {
            Some([x, _]) if place == 0 => x.clone(),
            _ => self.sequences.scratch().x[place].clone(),
        }
    }

    /// The last block's output while it awaits its post-norm.
    fn added(&self) -> BufferSlice {
        match self.given {
            Some([_, added]) => added.clone(),
            None => self.sequences.scratch().added.clone(),
        }
    }

    fn vector(&self, place: &Place) -> BufferSlice {
        self.weights.vector(place)
    }
}

const _: fn() = || {
    // Sequences own their plans, and may move between threads.
    fn shared<T: Send + Sync>() {}
    shared::<Arc<Plan>>();
};
