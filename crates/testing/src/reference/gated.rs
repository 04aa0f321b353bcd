//! Gated activations.

use super::unary::{gelu_tanh, sigmoid};
use crate::Array;

/// silu(gate) · up, broadcast.
pub fn swiglu(gate: &Array, up: &Array) -> Array {
    pairs(gate, up, |g, u| g * sigmoid(g) * u)
}

/// gelu(gate) · up, broadcast, with the tanh form of gelu.
pub fn geglu(gate: &Array, up: &Array) -> Array {
    pairs(gate, up, |g, u| gelu_tanh(g) * u)
}

fn pairs(gate: &Array, up: &Array, f: impl Fn(f64, f64) -> f64) -> Array {
    let shape = crate::array::broadcast(&gate.shape, &up.shape);
    let dtype = gate.dtype.promote(up.dtype).to_float();
    Array::from_float_fn(dtype, &shape, |i| {
        f(gate.at_broadcast(i).float(), up.at_broadcast(i).float())
    })
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn the_gate_scales_the_up_projection() {
        let gate = Array::floats(DType::F64, &[2], &[1.0, -1.0]);
        let up = Array::floats(DType::F64, &[2], &[2.0, 10.0]);
        let got = swiglu(&gate, &up).to_floats();
        assert!((got[0] - 1.462_117_157_260_009_8).abs() < 1e-15);
        assert!((got[1] + 2.689_414_213_699_951).abs() < 1e-15);
        assert!((geglu(&gate, &up).to_floats()[0] - 1.682_383_981_216_553_6).abs() < 1e-15);
    }
}
