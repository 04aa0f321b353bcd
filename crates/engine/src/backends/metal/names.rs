//! The names that documents give kernels, and what is compiled for them here.

use bessemer_hal::Pipeline;

use super::MetalBackend;
use crate::{DType, Result, RopeOptions, Tensor, graph, metal};

/// The kernels of [`super::MetalOps`].
pub(super) const OPS: [&str; 5] = [
    "add_kernel",
    "mul_kernel",
    "matmul_kernel",
    "relu_kernel",
    "sigmoid_kernel",
];

/// The pipeline of a document's kernel, for `f32`; `None` for a name that no document has.
pub(super) fn build(backend: &MetalBackend, name: &str) -> Result<Option<Pipeline>> {
    let data = |shape: &[usize]| -> Result<Tensor> {
        let data = Tensor::zeros(shape, DType::F32)
            .to(&backend.device)
            .contiguous();
        data.eval()?;
        Ok(data)
    };
    let (vector, matrix) = (data(&[256])?, data(&[256, 256])?);
    let result = match name {
        "add_kernel" | "vector_add" => &vector + &vector,
        "mul_kernel" | "vector_mul" => &vector * &vector,
        "relu_kernel" | "relu" => vector.relu(),
        "sigmoid_kernel" | "sigmoid" => vector.sigmoid(),
        "silu_kernel" => vector.silu(),
        "fused_silu_mul_kernel" => vector.swiglu(&data(&[256])?),
        "softmax_kernel" => vector.softmax(-1),
        "rmsnorm_kernel" => vector.rms_norm(&vector, 1e-5),
        "rope_kernel" => matrix.rope(&RopeOptions::default(), 0),
        "matmul_kernel" => matrix.matmul(&matrix),
        "matmul_vec_kernel" | "matmul_vec_tiled_kernel" | "attention_scores_kernel" => {
            matrix.matvec(&vector)
        }
        "weighted_sum_kernel" => vector.matmul(&matrix),
        _ => return Ok(None),
    };
    match graph::prepared(&result)? {
        Some(work) => metal::pipeline(&backend.metal, &work, &result.node),
        None => Ok(None),
    }
}
