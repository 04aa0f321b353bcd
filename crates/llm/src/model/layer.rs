//! A transformer layer: attention and FFN.

use bessemer::decoder;
use bessemer::quant::{self, Product, QuantMatrix};
use bessemer::slice_kernel::{self as kernel, Attend};

use super::{Input, Transformer, Workspace, grow, offset, vector};
use crate::cache::Cache;
use crate::{Config, Result, file};

#[derive(Debug)]
pub(super) struct Layer {
    attn_norm: Vec<f32>,
    q: Projection,
    k: Projection,
    v: Projection,
    output: Projection,
    q_norm: Option<Vec<f32>>,
    k_norm: Option<Vec<f32>>,
    post_attention_norm: Option<Vec<f32>>,
    ffn_norm: Vec<f32>,
    gate: Option<Projection>,
    up: Projection,
    down: Projection,
    post_ffn_norm: Option<Vec<f32>>,
}

/// Weights and optional bias of a linear layer.
#[derive(Debug)]
struct Projection {
    weight: QuantMatrix,
    bias: Option<Vec<f32>>,
}

impl Projection {
    fn add_bias(&self, to: &mut [f32]) {
        if let Some(bias) = &self.bias {
            for row in to.chunks_exact_mut(bias.len()) {
                kernel::add(row, bias);
            }
        }
    }
}

impl Layer {
    pub(super) fn new(
        config: &Config,
        model: &file::Model,
        index: usize,
        load: &impl Fn(&file::TensorView) -> Result<QuantMatrix>,
    ) -> Result<Self> {
        let name = |stem: &str, kind: &str| format!("blk.{index}.{stem}.{kind}");
        let projection = |stem: &str| {
            let bias = config.optional_weight(model, &name(stem, "bias"))?;
            Ok::<_, crate::Error>(Projection {
                weight: load(&config.weight(model, &name(stem, "weight"))?)?,
                bias: bias.as_ref().map(vector).transpose()?,
            })
        };
        let norm = |stem: &str| {
            let mut weights = vector(&config.weight(model, &name(stem, "weight"))?)?;
            offset(config, &mut weights);
            Ok::<_, crate::Error>(weights)
        };
        let norm_if = |exists: bool, stem: &str| exists.then(|| norm(stem)).transpose();
        Ok(Self {
            attn_norm: norm("attn_norm")?,
            q: projection("attn_q")?,
            k: projection("attn_k")?,
            v: projection("attn_v")?,
            output: projection("attn_output")?,
            q_norm: norm_if(config.qk_norm, "attn_q_norm")?,
            k_norm: norm_if(config.qk_norm, "attn_k_norm")?,
            post_attention_norm: norm_if(config.post_norms, "post_attention_norm")?,
            ffn_norm: norm("ffn_norm")?,
            gate: config
                .is_gated
                .then(|| projection("ffn_gate"))
                .transpose()?,
            up: projection("ffn_up")?,
            down: projection("ffn_down")?,
            post_ffn_norm: norm_if(config.post_norms, "post_ffw_norm")?,
        })
    }

    /// The layer as the engine's decoder takes it.
    pub(super) fn spec(&self, config: &Config, index: usize) -> decoder::Layer {
        let projection = |p: &Projection| decoder::Projection {
            weight: p.weight.clone(),
            bias: p.bias.clone(),
        };
        decoder::Layer {
            attn_norm: self.attn_norm.clone(),
            q: projection(&self.q),
            k: projection(&self.k),
            v: projection(&self.v),
            output: projection(&self.output),
            q_norm: self.q_norm.clone(),
            k_norm: self.k_norm.clone(),
            post_attention_norm: self.post_attention_norm.clone(),
            ffn_norm: self.ffn_norm.clone(),
            gate: self.gate.as_ref().map(projection),
            up: projection(&self.up),
            down: projection(&self.down),
            post_ffn_norm: self.post_ffn_norm.clone(),
            window: config.window(index),
            is_local: config.local_layers.get(index).copied().unwrap_or(false),
        }
    }

    /// Bytes of weights read per token.
    pub(super) fn bytes(&self) -> usize {
        let norms = [Some(&self.attn_norm), Some(&self.ffn_norm)].into_iter();
        let norms = norms
            .chain([&self.q_norm, &self.k_norm].map(Option::as_ref))
            .chain([&self.post_attention_norm, &self.post_ffn_norm].map(Option::as_ref));
        let all = [
            &self.q,
            &self.k,
            &self.v,
            &self.output,
            &self.up,
            &self.down,
        ];
        let matrices = all.into_iter().chain(&self.gate);
        let bias = |p: &Projection| p.bias.as_ref().map_or(0, |b| 4 * b.len());
        let matrices: usize = matrices.map(|p| p.weight.bytes_read() + bias(p)).sum();
        matrices + norms.flatten().map(|n| 4 * n.len()).sum::<usize>()
    }
}

impl Transformer {
    /// Runs a layer on `count` rows of `workspace.x`.
    pub(super) fn layer(
        &self,
        index: usize,
        layer: &Layer,
        cache: &mut Cache,
        inputs: &[Input<'_>],
        count: usize,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let config = &self.config;
        let (width, dim) = (config.width, config.head_dim);
        let (q_row, k_row) = (config.heads * dim, config.kv_heads * dim);
        let eps = config.norm.eps as f32;
        let Workspace {
            cancel,
            x,
            normed,
            q,
            k,
            v,
            mixed,
            gate,
            up,
            angles,
            ..
        } = workspace;
        for (buffer, row) in [
            (&mut *normed, width),
            (&mut *q, q_row),
            (&mut *k, k_row),
            (&mut *v, k_row),
            (&mut *mixed, q_row.max(width)),
            (&mut *up, config.ffn),
            (&mut *gate, config.ffn),
        ] {
            grow(buffer, count * row);
        }
        let x = &mut x[..count * width];
        let normed = &mut normed[..count * width];
        let (q, k, v) = (
            &mut q[..count * q_row],
            &mut k[..count * k_row],
            &mut v[..count * k_row],
        );

        cancel.check()?;
        kernel::rms_norm(x, &layer.attn_norm, eps, normed);
        let products = &mut [
            Product {
                matrix: &layer.q.weight,
                to: q,
            },
            Product {
                matrix: &layer.k.weight,
                to: k,
            },
            Product {
                matrix: &layer.v.weight,
                to: v,
            },
        ];
        quant::multiply(normed, self.precision, products)?;
        layer.q.add_bias(q);
        layer.k.add_bias(k);
        layer.v.add_bias(v);
        if let (Some(q_norm), Some(k_norm)) = (&layer.q_norm, &layer.k_norm) {
            // In place, with a free buffer as scratch.
            for (norm, heads) in [(q_norm, &mut *q), (k_norm, &mut *k)] {
                let workspace = &mut mixed[..heads.len()];
                workspace.copy_from_slice(heads);
                kernel::rms_norm(workspace, norm, eps, heads);
            }
        }
        let is_local = config.local_layers.get(index).copied().unwrap_or(false);
        let rotation = &self.rotations[usize::from(is_local)];
        let angles = &angles[usize::from(is_local)];
        rotation.rotate_rows(q, count, dim, angles);
        rotation.rotate_rows(k, count, dim, angles);
        cancel.check()?;
        let mixed = &mut mixed[..count * q_row.max(width)];
        let mut at = 0;
        for input in inputs {
            let (first, n) = (cache.len(input.sequence), input.tokens.len());
            if n == 0 {
                continue;
            }
            let cache = cache.layer(input.sequence, index);
            let (q_part, k_part) = (at * q_row..(at + n) * q_row, at * k_row..(at + n) * k_row);
            cache.write(first, &k[k_part.clone()], &v[k_part]);
            let attend = Attend {
                q: &q[q_part.clone()],
                first,
                len: first + n,
                scale: config.attention_scale as f32,
                soft_cap: config.attention_softcap.map(|c| c as f32),
                window: config.window(index),
                causal: config.is_causal,
            };
            cache.attend(&attend, &mut mixed[q_part]);
            at += n;
        }
        cancel.check()?;
        self.project(&layer.output, &mixed[..count * q_row], normed)?;
        if let Some(norm) = &layer.post_attention_norm {
            let workspace = &mut mixed[..count * width];
            workspace.copy_from_slice(normed);
            kernel::rms_norm(workspace, norm, eps, normed);
        }
        kernel::add(x, normed);

        cancel.check()?;
        kernel::rms_norm(x, &layer.ffn_norm, eps, normed);
        let up = &mut up[..count * config.ffn];
        let activation = config.activation.kernel();
        let inner = match &layer.gate {
            Some(gated) => {
                let gate = &mut gate[..count * config.ffn];
                let products = &mut [
                    Product {
                        matrix: &gated.weight,
                        to: gate,
                    },
                    Product {
                        matrix: &layer.up.weight,
                        to: up,
                    },
                ];
                quant::multiply(normed, self.precision, products)?;
                gated.add_bias(gate);
                layer.up.add_bias(up);
                kernel::activate(activation, gate, Some(up));
                gate
            }
            None => {
                self.project(&layer.up, normed, up)?;
                kernel::activate(activation, up, None);
                up
            }
        };
        cancel.check()?;
        self.project(&layer.down, inner, normed)?;
        if let Some(norm) = &layer.post_ffn_norm {
            let workspace = &mut mixed[..count * width];
            workspace.copy_from_slice(normed);
            kernel::rms_norm(workspace, norm, eps, normed);
        }
        kernel::add(x, normed);
        Ok(())
    }

    fn project(&self, projection: &Projection, x: &[f32], to: &mut [f32]) -> Result<()> {
        let matrix = &projection.weight;
        quant::multiply(x, self.precision, &mut [Product { matrix, to }])?;
        projection.add_bias(to);
        Ok(())
    }
}
