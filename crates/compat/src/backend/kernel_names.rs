//! Kernel names of the documents, and the engine's kernels for them.

use bessemer::{DType, Result, RopeOptions, Tensor, external};
use bessemer_hal::Pipeline;

use super::{Backend as _, MetalBackend};

/// Kernels of [`MetalOps`](crate::minitensor::MetalOps).
pub(crate) const OPS: [&str; 5] = [
    "add_kernel",
    "mul_kernel",
    "matmul_kernel",
    "relu_kernel",
    "sigmoid_kernel",
];

/// The result of a document's kernel for two vectors and a square matrix of the same length; `None` for a name that no
/// document has.
fn result(name: &str, x: &Tensor, y: &Tensor, matrix: &Tensor) -> Option<Tensor> {
    Some(match name {
        "add_kernel" | "vector_add" => x + y,
        "mul_kernel" | "vector_mul" => x * y,
        "relu_kernel" | "relu" => x.relu(),
        "sigmoid_kernel" | "sigmoid" => x.sigmoid(),
        "silu_kernel" => x.silu(),
        "fused_silu_mul_kernel" => x.swiglu(y),
        "softmax_kernel" => x.softmax(-1),
        "rmsnorm_kernel" => x.rms_norm(y, 1e-5),
        "rope_kernel" => matrix.rope(&RopeOptions::default(), 0),
        "matmul_kernel" => matrix.matmul(matrix),
        "matmul_vec_kernel" | "matmul_vec_tiled_kernel" | "attention_scores_kernel" => {
            matrix.matvec(x)
        }
        "weighted_sum_kernel" => x.matmul(matrix),
        _ => return None,
    })
}

/// The pipeline of a document's kernel, for `f32`; `None` for a name that no document has.
pub(crate) fn build(backend: &MetalBackend, name: &str) -> Result<Option<Pipeline>> {
    let data = |shape: &[usize]| -> Result<Tensor> {
        let data = Tensor::zeros(shape, DType::F32)
            .to(backend.device())
            .contiguous();
        data.eval()?;
        Ok(data)
    };
    let (x, y, matrix) = (data(&[256])?, data(&[256])?, data(&[256, 256])?);
    let Some(result) = result(name, &x, &y, &matrix) else {
        return Ok(None);
    };
    external::pipeline(&result)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use bessemer::Device;

    use super::*;

    /// Reference values from plain `f64` loops; no two names of different meaning share one.
    #[test]
    fn every_kernel_name_computes_its_formula() {
        let (x, y) = ([1.5_f64, -2.0, 0.5, 3.0], [2.0_f64, 0.25, -1.0, 4.0]);
        let m: Vec<f64> = (0..16).map(|i| f64::from(i * i % 11) / 4.0 - 1.0).collect();
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        let rows = |f: &dyn Fn(usize) -> f64| (0..4).map(f).collect::<Vec<_>>();
        let cells = |f: &dyn Fn(usize, usize) -> f64| {
            (0..16).map(|i| f(i / 4, i % 4)).collect::<Vec<f64>>()
        };
        let mean_square = x.iter().map(|v| v * v).sum::<f64>() / 4.0;
        let total: f64 = x.iter().map(|v| v.exp()).sum();
        let rotated = |row: usize, col: usize| {
            let angle = row as f64 * 10000_f64.powf(-((col % 2) as f64) / 2.0);
            let (low, high) = (m[row * 4 + col % 2], m[row * 4 + col % 2 + 2]);
            match col {
                0 | 1 => low * angle.cos() - high * angle.sin(),
                _ => low * angle.sin() + high * angle.cos(),
            }
        };
        let matvec = rows(&|i| (0..4).map(|k| m[i * 4 + k] * x[k]).sum());
        let silu = |i: usize| x[i] * sigmoid(x[i]);
        let cases: [(&str, Vec<f64>); 18] = [
            ("add_kernel", rows(&|i| x[i] + y[i])),
            ("vector_add", rows(&|i| x[i] + y[i])),
            ("mul_kernel", rows(&|i| x[i] * y[i])),
            ("vector_mul", rows(&|i| x[i] * y[i])),
            ("relu_kernel", rows(&|i| x[i].max(0.0))),
            ("relu", rows(&|i| x[i].max(0.0))),
            ("sigmoid_kernel", rows(&|i| sigmoid(x[i]))),
            ("sigmoid", rows(&|i| sigmoid(x[i]))),
            ("silu_kernel", rows(&silu)),
            ("fused_silu_mul_kernel", rows(&|i| silu(i) * y[i])),
            ("softmax_kernel", rows(&|i| x[i].exp() / total)),
            (
                "rmsnorm_kernel",
                rows(&|i| x[i] * y[i] / (mean_square + 1e-5).sqrt()),
            ),
            ("rope_kernel", cells(&rotated)),
            (
                "matmul_kernel",
                cells(&|i, j| (0..4).map(|k| m[i * 4 + k] * m[k * 4 + j]).sum()),
            ),
            ("matmul_vec_kernel", matvec.clone()),
            ("matmul_vec_tiled_kernel", matvec.clone()),
            ("attention_scores_kernel", matvec),
            (
                "weighted_sum_kernel",
                rows(&|j| (0..4).map(|i| x[i] * m[i * 4 + j]).sum()),
            ),
        ];
        let device = Device::software().unwrap();
        let tensor = |data: &[f64], shape: &[usize]| {
            let data: Vec<f32> = data.iter().map(|&v| v as f32).collect();
            Tensor::from_slice(&data, shape).to(&device)
        };
        let (tx, ty, tm) = (tensor(&x, &[4]), tensor(&y, &[4]), tensor(&m, &[4, 4]));
        for (name, expected) in cases {
            let found = result(name, &tx, &ty, &tm).unwrap();
            let found = found.to_vec::<f32>().unwrap();
            assert_eq!(found.len(), expected.len(), "{name}");
            for (a, b) in found.iter().zip(&expected) {
                let off = (f64::from(*a) - b).abs();
                assert!(
                    off <= 2e-6 * b.abs().max(1.0),
                    "{name}: {found:?} instead of {expected:?}"
                );
            }
        }
        assert!(result("add_kernal", &tx, &ty, &tm).is_none());
    }
}
