//! The encoder as a graph of tensors, for a Metal device.

use bessemer::Activation;
use bessemer::{AttentionOptions, Device, Tensor};

use super::{Encoder, EncoderNorm, EncoderProjection};
use crate::Result;

/// A vector on the device.
fn vector(numbers: &[f32], device: &Device) -> Tensor {
    Tensor::from_slice(numbers, [numbers.len()]).to(device)
}

impl EncoderNorm {
    fn apply(&self, x: &Tensor, eps: f64) -> Tensor {
        let device = x.device();
        let (weight, bias) = (vector(&self.weight, device), vector(&self.bias, device));
        x.layer_norm(Some(&weight), Some(&bias), eps)
    }
}

impl EncoderProjection {
    fn apply(&self, x: &Tensor) -> Tensor {
        let y = x.quant_matmul(&self.weight);
        match &self.bias {
            Some(bias) => y + vector(bias, x.device()),
            None => y,
        }
    }
}

impl Encoder {
    /// Runs the layers on a text's summed embeddings.
    pub(super) fn run_on(&self, device: &Device, x: &[f32]) -> Result<Vec<f32>> {
        let config = &self.config;
        let (width, heads, dim) = (config.width, config.kv_heads, config.head_dim);
        let n = x.len() / width;
        let eps = config.norm.eps;
        let options = AttentionOptions {
            scale: Some(config.attention_scale),
            causal: config.is_causal,
            ..AttentionOptions::default()
        };
        let split = |x: &Tensor| x.reshape([1, n, heads, dim]).transpose(1, 2);
        let mut x = Tensor::from_slice(x, [n, width]).to(device);
        x = self.norm.apply(&x, eps);
        for layer in &self.layers {
            let [q, k, v] = [&layer.q, &layer.k, &layer.v].map(|p| split(&p.apply(&x)));
            let mixed = q.attention(&k, &v, &options);
            let mixed = mixed.transpose(1, 2).reshape([n, heads * dim]);
            x = layer
                .attention_norm
                .apply(&(&x + layer.output.apply(&mixed)), eps);
            let inner = layer.up.apply(&x);
            let inner = match config.activation.kernel() {
                Activation::Silu => inner.silu(),
                Activation::Gelu => inner.gelu(),
                Activation::GeluTanh => inner.gelu_tanh(),
            };
            x = layer
                .output_norm
                .apply(&(&x + layer.down.apply(&inner)), eps);
        }
        Ok(x.to_vec()?)
    }
}
