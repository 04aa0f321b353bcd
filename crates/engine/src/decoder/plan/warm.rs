//! Parallel compilation of the kernels of a token.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::weight::LayerWeights;
use super::super::{Decoder, OP};
use super::{Entering, Site};
use crate::metal::Recorder;
use crate::{Error, Result};

/// Records launches whose kernels are to be compiled.
pub(in super::super) type Part<'a> =
    Box<dyn Fn(&mut Recorder<'_>) -> Result<()> + Send + Sync + 'a>;

/// Runs all tasks on several threads, and drops what they record.
pub(in super::super) fn compile(decoder: &Decoder, parts: &[Part<'_>]) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            part(&mut Recorder::new(decoder.metal(), OP))?;
        }
        Ok(())
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers.min(parts.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let own = work();
        others.into_iter().fold(own, |outcome, worker| {
            let joined = worker.join().unwrap_or_else(|_| {
                Err(Error::Invalid {
                    op: OP,
                    reason: "a thread panicked".to_owned(),
                })
            });
            outcome.and(joined)
        })
    })
}

impl Site<'_> {
    /// Compiles the kernels of a token. Recording its launches would, too, but one kernel after the other.
    pub(super) fn compile(&self, decoder: &Decoder) -> Result<()> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        let mut known = Vec::new();
        let mut post = None;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let entering = Entering { place: 0, post };
            post = layer.post_ffn_norm.clone();
            let kind = self.kind(index, layer, &entering);
            if !known.contains(&kind) {
                known.push(kind);
                self.parts(index, layer, entering, &mut parts);
            }
        }
        parts.push(Box::new(move |recorder| {
            let entering = Entering {
                place: 0,
                post: post.clone(),
            };
            self.head(recorder, &entering)
        }));
        parts.push(Box::new(|_| self.embed(decoder, None).map(|_| ())));
        compile(decoder, &parts)
    }

    /// The properties of a layer that its kernels depend on.
    fn kind(&self, index: usize, layer: &LayerWeights, entering: &Entering) -> [i64; 12] {
        let [q, k, v] = &layer.qkv;
        let gate = layer.gate.as_ref().map_or(-1, |gate| gate.format);
        let spec = &self.spec.layers[index];
        [
            q.format,
            k.format,
            v.format,
            layer.output.format,
            gate,
            layer.up.format,
            layer.down.format,
            i64::from(layer.head_norms.is_some()),
            i64::from(entering.post.is_some()),
            i64::from(layer.post_attention_norm.is_some()),
            i64::from(spec.is_local),
            i64::from(self.heads(index).splits),
        ]
    }

    /// Adds the compile tasks of a layer.
    fn parts<'a>(
        &'a self,
        index: usize,
        layer: &'a LayerWeights,
        entering: Entering,
        to: &mut Vec<Part<'a>>,
    ) {
        let scratch = self.sequences.scratch();
        to.push(Box::new(move |recorder| {
            self.project_heads(recorder, index, layer, &entering)?;
            Ok(())
        }));
        to.push(Box::new(move |recorder| {
            let entering = Entering {
                place: 0,
                post: layer.post_attention_norm.clone(),
            };
            self.feed(recorder, layer, &entering)?;
            Ok(())
        }));
        to.push(Box::new(move |recorder| self.attend(recorder, index)));
        to.push(Box::new(move |recorder| {
            let normed = (0, layer.post_attention_norm.is_some());
            let output = (&layer.output, layer.output_bias.as_ref());
            self.project(recorder, output, scratch.mixed.clone(), normed)
        }));
        to.push(Box::new(move |recorder| {
            let normed = (0, layer.post_ffn_norm.is_some());
            let down = (&layer.down, layer.down_bias.as_ref());
            self.project(recorder, down, scratch.inner.clone(), normed)
        }));
        to.push(Box::new(move |recorder| {
            self.turn_heads(recorder, index, layer)
        }));
    }
}
