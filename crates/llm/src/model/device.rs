//! The transformer on a Metal device.

use bessemer::RopeTable;
use bessemer::decoder::{Decoder, Run, Spec};

use super::{Input, Transformer};
use crate::{Cache, Result};

impl Transformer {
    /// The device's decoder; `None` on the CPU.
    pub(crate) fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    /// The model as the engine's decoder takes it.
    pub(super) fn spec(&self, rotations: [RopeTable; 2]) -> Spec {
        let config = &self.config;
        let layers = self.layers.iter().enumerate();
        Spec {
            width: config.width,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            ffn: config.ffn,
            vocab: config.vocab,
            eps: config.norm.eps as f32,
            activation: config.activation.kernel(),
            attention_scale: config.attention_scale as f32,
            attention_softcap: config.attention_softcap.map(|c| c as f32),
            causal: config.is_causal,
            embedding: self.embedding.clone(),
            embedding_scale: config.embedding_scale as f32,
            head: self.head.clone(),
            output_norm: self.output_norm.clone(),
            final_softcap: config.final_softcap.map(|c| c as f32),
            rotations,
            layers: layers.map(|(i, layer)| layer.spec(config, i)).collect(),
        }
    }
}

/// Runs tokens of sequences on the device; the inputs have been checked.
pub(super) fn forward(
    decoder: &Decoder,
    cache: &mut Cache,
    inputs: &[Input<'_>],
    logits: &mut Vec<f32>,
) -> Result<()> {
    let runs: Vec<Run<'_>> = inputs
        .iter()
        .map(|input| Run {
            slot: input.sequence,
            tokens: input.tokens,
            logits: input.logits,
        })
        .collect();
    let sequences = cache
        .on_device()
        .expect("a matching cache is on the device");
    decoder.forward(sequences, &runs, logits)?;
    for input in inputs {
        cache.push(input.sequence, input.tokens);
    }
    Ok(())
}
