//! `swiglu`, `geglu`: gated activations.

use super::group_norm::computed_in;
use crate::Tensor;

impl Tensor {
    /// SwiGLU, the activation of Llama's layers: `silu(gate) * up`, where this is the gate. A formula of elementwise
    /// ops, which are fused with those around it.
    ///
    /// Shape: both broadcast. Type: the float that both promote to; `f16` and `bf16` are computed in `f32` and
    /// rounded once. NaN: where either is NaN. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let gate = Tensor::from_slice(&[0.0_f32, 1.0], [2]);
    /// let y = gate.swiglu(&Tensor::from_slice(&[5.0_f32, 2.0], [2])).to_vec::<f32>()?;
    /// assert!(y[0] == 0.0 && (y[1] - 2.0 / (1.0 + (-1_f32).exp())).abs() < 1e-6);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn swiglu(&self, up: &Self) -> Self {
        self.gated(up, Self::silu)
    }

    /// GeGLU, the activation of Gemma's layers: `gelu_tanh(gate) * up`, where this is the gate. Otherwise as
    /// [`Tensor::swiglu`].
    pub fn geglu(&self, up: &Self) -> Self {
        self.gated(up, Self::gelu_tanh)
    }

    fn gated(&self, up: &Self, activation: impl Fn(&Self) -> Self) -> Self {
        let dtype = self.dtype().promote(up.dtype()).to_float();
        let wide = computed_in(dtype);
        (activation(&self.cast(wide)) * up.cast(wide)).cast(dtype)
    }
}
