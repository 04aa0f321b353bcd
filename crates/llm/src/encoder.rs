//! BERT encoder: text embeddings.

mod device;

use bessemer::CacheType;
use bessemer::Device;
use bessemer::quant::{self, Precision, Product, QuantMatrix};
use bessemer::slice_kernel::{self as kernel, Attend, KvCache};

use crate::config::{Architecture, Pooling};
use crate::model::{matrix, vector};
use crate::{Config, Error, Result, file};

/// A text encoder on the CPU or a Metal device. Can be shared between threads.
#[derive(Debug)]
pub struct Encoder {
    config: Config,
    device: Device,
    tokens: QuantMatrix,
    positions: QuantMatrix,
    token_type: Vec<f32>,
    norm: EncoderNorm,
    layers: Vec<EncoderLayer>,
}

#[derive(Debug)]
struct EncoderNorm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct EncoderProjection {
    weight: QuantMatrix,
    bias: Option<Vec<f32>>,
}

#[derive(Debug)]
struct EncoderLayer {
    q: EncoderProjection,
    k: EncoderProjection,
    v: EncoderProjection,
    output: EncoderProjection,
    attention_norm: EncoderNorm,
    up: EncoderProjection,
    down: EncoderProjection,
    output_norm: EncoderNorm,
}

impl EncoderProjection {
    fn run(&self, x: &[f32]) -> Result<Vec<f32>> {
        let rows = x.len() / self.weight.cols();
        let mut to = vec![0.0; rows * self.weight.rows()];
        let product = Product {
            matrix: &self.weight,
            to: &mut to,
        };
        quant::multiply(x, Precision::Exact, &mut [product])?;
        if let Some(bias) = &self.bias {
            for row in to.chunks_exact_mut(bias.len()) {
                kernel::add(row, bias);
            }
        }
        Ok(to)
    }
}

impl Encoder {
    /// Loads an encoder on the CPU.
    pub fn new(model: &file::Model) -> Result<Self> {
        Self::on(&Device::cpu(), model)
    }

    /// Loads an encoder on a device.
    pub fn on(device: &Device, model: &file::Model) -> Result<Self> {
        bessemer::env::check()?;
        let config = Config::of(model)?;
        if config.architecture != Architecture::Bert {
            return Err(Error::unsupported(
                format_args!("embedding with architecture `{}`", config.architecture),
                "use an encoder (bert)",
            ));
        }
        let norm = |stem: &str| {
            Ok::<_, Error>(EncoderNorm {
                weight: vector(&config.weight(model, &format!("{stem}.weight"))?)?,
                bias: vector(&config.weight(model, &format!("{stem}.bias"))?)?,
            })
        };
        let layer = |i: usize| {
            let projection = |stem: &str| {
                let name = |token_type: &str| format!("blk.{i}.{stem}.{token_type}");
                let bias = config.optional_weight(model, &name("bias"))?;
                Ok::<_, Error>(EncoderProjection {
                    weight: matrix(&config.weight(model, &name("weight"))?)?,
                    bias: bias.as_ref().map(vector).transpose()?,
                })
            };
            Ok::<_, Error>(EncoderLayer {
                q: projection("attn_q")?,
                k: projection("attn_k")?,
                v: projection("attn_v")?,
                output: projection("attn_output")?,
                attention_norm: norm(&format!("blk.{i}.attn_output_norm"))?,
                up: projection("ffn_up")?,
                down: projection("ffn_down")?,
                output_norm: norm(&format!("blk.{i}.layer_output_norm"))?,
            })
        };
        let token_types = matrix(&model.tensor("token_types.weight")?)?;
        let mut token_type = vec![0.0; config.width];
        token_types.row(0, &mut token_type);
        Ok(Self {
            tokens: matrix(&model.tensor("token_embd.weight")?)?,
            positions: matrix(&model.tensor("position_embd.weight")?)?,
            token_type,
            norm: norm("token_embd_norm")?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            device: device.clone(),
            config,
        })
    }

    /// The model's config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Embeds a text; the result is normalised to length 1.
    pub fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let config = &self.config;
        let (width, n) = (config.width, tokens.len());
        if n == 0 || n > config.context {
            return Err(Error::ContextFull {
                needed: n,
                context: config.context,
            });
        }
        let mut x = vec![0.0; n * width];
        let mut position = vec![0.0; width];
        for (i, (&token, x)) in tokens.iter().zip(x.chunks_exact_mut(width)).enumerate() {
            if token as usize >= config.vocab {
                return Err(Error::Invalid {
                    what: format!("token {token}"),
                    reason: format!("the vocabulary has {}", config.vocab),
                });
            }
            self.tokens.row(token as usize, x);
            self.positions.row(i, &mut position);
            kernel::add(x, &self.token_type);
            kernel::add(x, &position);
        }
        let x = if self.device.is_cpu() {
            self.run(x)?
        } else {
            self.run_on(&self.device, &x)?
        };
        let mut pooled = vec![0.0_f64; width];
        let rows = match config.pooling {
            Pooling::First => 1,
            Pooling::Mean => n,
        };
        for row in x.chunks_exact(width).take(rows) {
            for (sum, &v) in pooled.iter_mut().zip(row) {
                *sum += f64::from(v);
            }
        }
        // Normalising also divides by the number of rows.
        let length = pooled.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-12);
        Ok(pooled.iter().map(|v| (v / length) as f32).collect())
    }

    /// Runs the layers on a text's summed embeddings.
    fn run(&self, mut x: Vec<f32>) -> Result<Vec<f32>> {
        let config = &self.config;
        let n = x.len() / config.width;
        let eps = config.norm.eps;
        kernel::layer_norm(&mut x, &self.norm.weight, &self.norm.bias, eps);
        let (heads, dim) = (config.kv_heads, config.head_dim);
        let mut cache = KvCache::new(CacheType::F32, heads, dim, n)?;
        let activation = config.activation.kernel();
        for layer in &self.layers {
            let q = layer.q.run(&x)?;
            cache.write(0, &layer.k.run(&x)?, &layer.v.run(&x)?);
            let mut mixed = vec![0.0; q.len()];
            let attend = Attend {
                q: &q,
                first: 0,
                len: n,
                scale: config.attention_scale as f32,
                soft_cap: None,
                window: None,
                causal: config.is_causal,
            };
            cache.attend(&attend, &mut mixed);
            kernel::add(&mut x, &layer.output.run(&mixed)?);
            let norm = &layer.attention_norm;
            kernel::layer_norm(&mut x, &norm.weight, &norm.bias, eps);
            let mut inner = layer.up.run(&x)?;
            kernel::activate(activation, &mut inner, None);
            kernel::add(&mut x, &layer.down.run(&inner)?);
            let norm = &layer.output_norm;
            kernel::layer_norm(&mut x, &norm.weight, &norm.bias, eps);
        }
        Ok(x)
    }
}
