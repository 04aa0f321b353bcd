//! Parallel compilation of the kernels of a token.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::weight::LayerWeights;
use super::super::{Decoder, OP};
use super::{PlanContext, ResidualInput};
use crate::metal::Recorder;
use crate::{Error, Result};

/// Records launches whose kernels are to be compiled.
pub(in super::super) type CompileTask<'a> =
    Box<dyn Fn(&mut Recorder<'_>) -> Result<()> + Send + Sync + 'a>;

/// Runs all tasks on several threads, and drops what they record.
pub(in super::super) fn compile(decoder: &Decoder, tasks: &[CompileTask<'_>]) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            task(&mut Recorder::new(decoder.metal(), OP))?;
        }
        Ok(())
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers.min(tasks.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let own = work();
        others.into_iter().fold(own, |outcome, worker| {
            let split_traffic = worker.join().unwrap_or_else(|_| {
                Err(Error::Invalid {
                    op: OP,
                    reason: "a thread panicked".to_owned(),
                })
            });
            outcome.and(split_traffic)
        })
    })
}

impl PlanContext<'_> {
    /// Compiles the kernels of a token. Recording its launches would, too, but one kernel after the other.
    pub(super) fn compile(&self, decoder: &Decoder) -> Result<()> {
        let mut tasks: Vec<CompileTask<'_>> = Vec::new();
        let mut known = Vec::new();
        let mut post_norm = None;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let residual = ResidualInput {
                buffer: 0,
                pending_post_norm: post_norm,
            };
            post_norm = layer.post_ffn_norm.clone();
            let kind = self.kind(index, layer, &residual);
            if !known.contains(&kind) {
                known.push(kind);
                self.tasks(index, layer, residual, &mut tasks);
            }
        }
        tasks.push(Box::new(move |recorder| {
            let residual = ResidualInput {
                buffer: 0,
                pending_post_norm: post_norm.clone(),
            };
            self.head(recorder, &residual)
        }));
        tasks.push(Box::new(|_| self.embed(decoder, None).map(|_| ())));
        compile(decoder, &tasks)
    }

    /// The properties of a layer that its kernels depend on.
    fn kind(&self, index: usize, layer: &LayerWeights, residual: &ResidualInput) -> [i64; 12] {
        let [q, k, v] = &layer.qkv;
        let gate = layer.gate.as_ref().map_or(-1, |gate| gate.format);
        let spec = &self.spec.layers[index];
        [
            q.format,
            k.format,
            v.format,
            layer.output.matrix.format,
            gate,
            layer.up.format,
            layer.down.matrix.format,
            i64::from(layer.head_norms.is_some()),
            i64::from(residual.pending_post_norm.is_some()),
            i64::from(layer.post_attention_norm.is_some()),
            i64::from(spec.is_local),
            i64::from(self.heads(index).splits),
        ]
    }

    /// Adds the compile tasks of a layer.
    fn tasks<'a>(
        &'a self,
        index: usize,
        layer: &'a LayerWeights,
        residual: ResidualInput,
        to: &mut Vec<CompileTask<'a>>,
    ) {
        let scratch = self.sequences.scratch();
        to.push(Box::new(move |recorder| {
            self.project_qkv(recorder, index, layer, &residual)?;
            Ok(())
        }));
        to.push(Box::new(move |recorder| {
            let residual = ResidualInput {
                buffer: 0,
                pending_post_norm: layer.post_attention_norm.clone(),
            };
            self.gate_up(recorder, layer, &residual)?;
            Ok(())
        }));
        to.push(Box::new(move |recorder| self.attend(recorder, index)));
        to.push(Box::new(move |recorder| {
            let has_post_norm = layer.post_attention_norm.is_some();
            let from = scratch.attn_output.clone();
            self.project(recorder, &layer.output, from, 0, has_post_norm)
        }));
        to.push(Box::new(move |recorder| {
            let has_post_norm = layer.post_ffn_norm.is_some();
            let from = scratch.ffn_hidden.clone();
            self.project(recorder, &layer.down, from, 0, has_post_norm)
        }));
        to.push(Box::new(move |recorder| self.rope(recorder, index, layer)));
    }
}
