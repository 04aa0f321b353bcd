//! `swiglu`, `geglu`: gated activations.

use super::group_norm::computed_in;
use crate::Tensor;

impl Tensor {
    /// `silu(gate) * up`, where this is the gate: SwiGLU, the activation of Llama's layers. A formula of
    /// elementwise ops, joined into one pass with whatever is around it.
    ///
    /// Shape: both broadcast. Type: the float in which they meet; `f16` and `bf16` are computed in `f32` and
    /// rounded once. NaN: if one is. Empty: stays empty.
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

    /// `gelu_tanh(gate) * up`, where this is the gate: GeGLU, the activation of Gemma's layers. Otherwise as
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
