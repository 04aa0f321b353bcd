//! `layer_norm`: layer normalization.

use super::group_norm::computed_in;
use super::rms_norm::{expect_parameter, parameter};
use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::{Result, Tensor};

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` along the last axis. The inputs are `x`, then the optional
/// weights and biases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerNorm {
    pub(crate) weight: bool,
    pub(crate) bias: bool,
    /// The bits of an `f64`: equal ops must compare equal.
    eps: u64,
}

impl LayerNorm {
    pub(crate) fn eps(&self) -> f64 {
        f64::from_bits(self.eps)
    }
}

impl Rule for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let dtype = expect_float(self.name(), inputs[0])?;
        inputs[0].shape().axis(self.name(), -1)?;
        for p in &inputs[1..] {
            expect_parameter(self.name(), inputs[0], p, -1)?;
        }
        Ok((dtype, *inputs[0].shape()))
    }
}

impl Tensor {
    /// Layer normalization along the last axis: each row is normalised to mean 0 and variance 1, then scaled and
    /// shifted by parameters: `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`, with the population variance.
    ///
    /// Shape: unchanged; `weight` and `bias` are vectors as long as the last axis. Type: floats are kept, others become
    /// floats ([`DType::to_float`](crate::DType::to_float)); the parameters may be of any float type. `f16`, `bf16` and
    /// `f32` are computed in `f32` in two passes, the mean and then the squared differences, both with block sums that
    /// are added up in `f64`, and rounded once. NaN: a NaN or an infinity makes its row NaN. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, 3.0, 10.0, 30.0], [2, 2]);
    /// assert_eq!(x.layer_norm(None, None, 0.0).to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f64) -> Self {
        let x = self.cast(self.dtype().to_float());
        let op = LayerNorm {
            weight: weight.is_some(),
            bias: bias.is_some(),
            eps: eps.to_bits(),
        };
        let parameters: Vec<_> = weight
            .into_iter()
            .chain(bias)
            .map(|p| parameter(&x, p))
            .collect();
        let inputs: Vec<_> = std::iter::once(&x).chain(&parameters).collect();
        Self::apply(op, &inputs)
    }

    /// [`Tensor::layer_norm`] as a formula of simpler ops, for tests.
    #[doc(hidden)]
    pub fn decompose_layer_norm(
        &self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> Self {
        let dtype = self.dtype().to_float();
        let wide = computed_in(dtype);
        let x = self.cast(wide);
        let centered = &x - x.mean(&[-1], true);
        let mut y = &centered * (centered.square().mean(&[-1], true) + eps).rsqrt();
        if let Some(weight) = weight {
            y = y * weight.cast(wide);
        }
        if let Some(bias) = bias {
            y = y + bias.cast(wide);
        }
        y.cast(dtype)
    }
}
