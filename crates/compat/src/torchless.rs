//! The API of torchless: the ops of a transformer, on a chosen backend.
//!
//! ```
//! use bessemer::Tensor;
//! use bessemer_compat::torchless::{BackendPreference, init_backend};
//!
//! let backend = init_backend(BackendPreference::Auto)?;
//! println!("Using backend: {}", backend.name());
//! let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
//! let input = Tensor::from_slice(&[1.0_f32, 1.0], [2]);
//! assert_eq!(backend.matmul_vec(&weights, &input).to_vec::<f32>()?, [3.0, 7.0]);
//! # Ok::<(), bessemer::Error>(())
//! ```

mod kv_cache;
mod memory_pool;
mod tensor;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bessemer::dispatch_table::BackendKind;
use bessemer::memory::memory_limit;
use bessemer::{Device, Error, Result, Shape, Tensor};
use bessemer_hal::StorageMode;

pub use bessemer::external::PooledBuffer;
pub use kv_cache::MetalKVCache;
pub use memory_pool::{
    MetalMemoryPool, MetalMemoryPoolStats, compute_tensor_bytes, round_up_power_of_2,
};
pub use tensor::{MetalTensor, MetalTensorBatch};

pub use crate::backend::{Backend, CpuBackend, MetalBackend};
use crate::numrs;

/// Backend preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendPreference {
    /// The Metal GPU if there is one, otherwise the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The system's Metal GPU.
    Metal,
    /// The software Metal device.
    Software,
}

impl BackendPreference {
    fn device(self) -> Result<Device> {
        match self {
            Self::Auto => Ok(Device::auto()),
            Self::Cpu => Ok(Device::cpu()),
            Self::Metal => Device::metal(),
            Self::Software => Device::software(),
        }
    }
}

/// Creates the preferred backend.
///
/// # Errors
/// [`Error::Device`], if it is not available.
pub fn init_backend(preference: BackendPreference) -> Result<Box<dyn KernelBackend>> {
    let device = preference.device()?;
    Ok(if device.is_cpu() {
        Box::new(CpuBackend::new())
    } else {
        Box::new(MetalBackend::on(&device)?)
    })
}

/// As [`init_backend`], for a model of `bytes` bytes.
///
/// # Errors
/// [`Error::OutOfMemory`], if the device has less free memory.
pub fn init_backend_with_memory_check(
    preference: BackendPreference,
    bytes: usize,
) -> Result<Box<dyn KernelBackend>> {
    DeviceInfo::of(&preference.device()?).expect_free("init_backend", bytes)?;
    init_backend(preference)
}

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Index in the list of [`discover_backends`].
    pub index: usize,
    /// `cpu`, `metal` or `software`.
    pub backend: &'static str,
    /// Name of the device.
    pub name: String,
    /// Memory limit in bytes.
    pub total_memory: usize,
    /// Free memory in bytes.
    pub free_memory: usize,
    /// GPU family.
    pub compute_capability: Option<String>,
    /// `true` if host and device share memory.
    pub unified_memory: bool,
}

impl DeviceInfo {
    fn of(device: &Device) -> Self {
        let (backend, total, family, unified) = match device.hal().map(|d| d.info()) {
            None => ("cpu", memory_limit(), None, true),
            Some(info) => (
                match info.kind {
                    bessemer_hal::DeviceKind::Apple => "metal",
                    _ => "software",
                },
                info.recommended_working_set,
                Some(info.family.to_string()),
                info.unified_memory,
            ),
        };
        Self {
            index: 0,
            backend,
            name: device.name().to_owned(),
            total_memory: total,
            free_memory: total.saturating_sub(device.memory().in_use),
            compute_capability: family,
            unified_memory: unified,
        }
    }

    fn expect_free(&self, op: &'static str, bytes: usize) -> Result<()> {
        if bytes <= self.free_memory {
            return Ok(());
        }
        Err(Error::OutOfMemory {
            op,
            requested: bytes,
            in_use: self.total_memory - self.free_memory,
            limit: self.total_memory,
        })
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        write!(
            f,
            "{}: {} ({:.1} of {:.1} GiB free",
            self.backend,
            self.name,
            gigabytes(self.free_memory),
            gigabytes(self.total_memory)
        )?;
        if let Some(family) = &self.compute_capability {
            write!(f, ", {family}")?;
        }
        f.write_str(if self.unified_memory {
            ", unified memory)"
        } else {
            ")"
        })
    }
}

/// All backends available on this machine, best first.
pub fn discover_backends() -> Vec<DeviceInfo> {
    let devices = [Device::metal(), Ok(Device::cpu()), Device::software()];
    let mut found: Vec<_> = devices.iter().flatten().map(DeviceInfo::of).collect();
    for (i, info) in found.iter_mut().enumerate() {
        info.index = i;
    }
    found
}

/// A listing of [`discover_backends`], one line each.
pub fn backend_summary() -> String {
    let lines = discover_backends()
        .iter()
        .map(|info| format!("{} {info}", info.index))
        .collect::<Vec<_>>();
    lines.join("\n")
}

/// The backend that [`BackendPreference::Auto`] selects on this machine.
pub fn best_available_backend() -> BackendPreference {
    if MetalBackend::is_available() {
        BackendPreference::Metal
    } else {
        BackendPreference::Cpu
    }
}

/// The best backend with enough free memory for a model of `bytes` bytes.
///
/// # Errors
/// [`Error::OutOfMemory`], if there is none.
pub fn select_backend_for_model(bytes: usize) -> Result<BackendPreference> {
    let mut all = vec![BackendPreference::Cpu];
    if MetalBackend::is_available() {
        all.insert(0, BackendPreference::Metal);
    }
    let mut last = Err(Error::Invalid {
        op: "select_backend_for_model",
        reason: "no backend is available".to_owned(),
    });
    for preference in all {
        last = init_backend_with_memory_check(preference, bytes).map(|_| preference);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// The ops of a transformer. Inputs may be on any device; results are on the backend's device. Errors are carried by the
/// results, as by all tensors.
pub trait KernelBackend: Backend {
    /// `cpu`, `metal` or `software`.
    fn name(&self) -> &'static str {
        DeviceInfo::of(self.device()).backend
    }

    /// Name of the device.
    fn device_name(&self) -> &str {
        self.device().name()
    }

    /// Returns `true` if the backend computes correctly: it runs every op and the results are compared.
    fn is_available(&self) -> bool {
        numrs::computes_correctly(match self.name() {
            "cpu" => BackendKind::Cpu,
            "metal" => BackendKind::Metal,
            _ => BackendKind::Software,
        })
    }

    /// Matrix-vector product of `w`, `[rows, cols]`, and `x`, `[cols]`.
    fn matmul_vec(&self, w: &Tensor, x: &Tensor) -> Tensor {
        w.to(self.device()).matvec(&x.to(self.device()))
    }

    /// As [`KernelBackend::matmul_vec`], replacing `out`, `[rows]`; if the shape does not match, `out` becomes an error.
    fn matmul_vec_into(&self, w: &Tensor, x: &Tensor, out: &mut Tensor) {
        let y = self.matmul_vec(w, x);
        *out = Tensor::attempt(|| {
            let (expected, found) = (*y.check()?.shape(), *out.check()?.shape());
            if found == expected {
                return Ok(y);
            }
            Err(Error::ShapeMismatch {
                op: "matmul_vec_into",
                left: expected,
                right: found,
                reason: "shapes must match",
            })
        });
    }

    /// Matrix multiplication.
    fn matmul(&self, a: &Tensor, b: &Tensor) -> Tensor {
        a.to(self.device()).matmul(&b.to(self.device()))
    }

    /// RMSNorm of rows.
    fn rmsnorm(&self, x: &mut Tensor, weight: &Tensor, eps: f32) {
        let weight = weight.to(self.device());
        *x = x.to(self.device()).rms_norm(&weight, eps.into());
    }

    /// Softmax of rows.
    fn softmax(&self, x: &mut Tensor) {
        *x = x.to(self.device()).softmax(-1);
    }

    /// Softmax over a range of each row, such as the scores of the filled positions; the rest is unchanged. A range
    /// outside the rows makes `x` an error.
    fn softmax_view(&self, x: &mut Tensor, range: Range<usize>) {
        let all = x.to(self.device());
        *x = Tensor::attempt(|| {
            let op = "softmax_view";
            let row = all.check()?.shape().last().copied().unwrap_or(0);
            if range.start > range.end || range.end > row {
                let reason = format!("range {range:?} is out of range for rows of {row}");
                return Err(Error::Invalid { op, reason });
            }
            let (start, end) = (range.start as isize, range.end as isize);
            let mut start_index = vec![0; all.rank()];
            if let Some(last) = start_index.last_mut() {
                *last = range.start;
            }
            Ok(all.slice_update(&all.slice(-1, start, end, 1).softmax(-1), &start_index))
        });
    }

    /// `x * sigmoid(x)`
    fn silu(&self, x: &Tensor) -> Tensor {
        x.to(self.device()).silu()
    }

    /// `silu(gate) * up`
    fn fused_silu_mul(&self, gate: &Tensor, up: &Tensor) -> Tensor {
        gate.to(self.device()).swiglu(&up.to(self.device()))
    }

    /// Rotary embedding (RoPE) of `[heads, dim]`, half-split, with `dim / 2` cosines and sines.
    fn apply_rope(&self, x: &mut Tensor, cos: &Tensor, sin: &Tensor) {
        let half = cos.shape().last().copied().unwrap_or(0) as isize;
        let all = x.to(self.device());
        let (a, b) = (all.slice(-1, 0, half, 1), all.slice(-1, half, None, 1));
        let (cos, sin) = (cos.to(self.device()), sin.to(self.device()));
        let (low, high) = (&a * &cos - &b * &sin, &a * &sin + &b * &cos);
        *x = Tensor::concat(&[&low, &high], -1);
    }

    /// Attention scores `scale * q·kᵀ` of a query `[dim]` and keys `[seq, dim]`.
    fn compute_attention_scores(&self, q: &Tensor, keys: &Tensor, scale: f32) -> Tensor {
        keys.to(self.device()).matvec(&q.to(self.device())) * scale
    }

    /// Weighted sum of rows, `Σ weights[i] * rows[i]`, of weights `[n]` and rows `[n, d]`.
    fn weighted_sum_rows(&self, weights: &Tensor, rows: &Tensor) -> Tensor {
        weights.to(self.device()).matmul(&rows.to(self.device()))
    }

    /// Waits for all pending work.
    ///
    /// # Errors
    /// Errors of the device.
    fn synchronize(&self) -> Result<()> {
        self.device().synchronize()
    }
}

impl KernelBackend for CpuBackend {}

impl KernelBackend for MetalBackend {}

impl MetalBackend {
    /// Copies a vector to memory that host and device share.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn to_device_1d(self: &Arc<Self>, values: &[f32]) -> Result<MetalTensor> {
        let buffer = self.create_buffer_with_data(values, StorageMode::Shared)?;
        MetalTensor::new_1d(self, buffer, values.len())
    }

    /// Copies a row-major matrix to memory that host and device share.
    ///
    /// # Errors
    /// [`Error::BadShape`], if the number of values does not match, [`Error::Device`].
    pub fn to_device_2d(
        self: &Arc<Self>,
        values: &[f32],
        rows: usize,
        cols: usize,
    ) -> Result<MetalTensor> {
        let shape = Shape::new("to_device_2d", &[rows, cols])?;
        if shape.count() != values.len() {
            return Err(Error::BadShape {
                op: "to_device_2d",
                shape,
                reason: format!("{} values were given", values.len()),
            });
        }
        let buffer = self.create_buffer_with_data(values, StorageMode::Shared)?;
        MetalTensor::new_2d(self, buffer, rows, cols)
    }

    /// Copies a vector to the host.
    ///
    /// # Errors
    /// Errors of pending writes.
    pub fn to_host_1d(&self, tensor: &MetalTensor) -> Result<Vec<f32>> {
        tensor.to_vec()
    }

    /// Copies a matrix to the host, as rows.
    ///
    /// # Errors
    /// [`Error::BadShape`] unless the rank is 2, and errors of pending writes.
    pub fn to_host_2d(&self, tensor: &MetalTensor) -> Result<Vec<Vec<f32>>> {
        let (_, cols) = tensor.shape_2d()?;
        let all = tensor.to_vec()?;
        Ok(all.chunks(cols.max(1)).map(<[f32]>::to_vec).collect())
    }

    /// Matrix-vector product, as a new tensor.
    ///
    /// # Errors
    /// Errors of shapes and of the evaluation, as for the ops below.
    pub fn matmul_vec(self: &Arc<Self>, w: &MetalTensor, x: &MetalTensor) -> Result<MetalTensor> {
        let mut result = MetalTensor::zeros(self, [w.nrows()?])?;
        result.assign(w.to_tensor()?.matvec(&x.to_tensor()?))?;
        Ok(result)
    }

    /// Softmax of rows, in place.
    ///
    /// # Errors
    /// Errors of shapes and of the evaluation.
    pub fn softmax(&self, x: &mut MetalTensor) -> Result<()> {
        let y = x.to_tensor()?.softmax(-1);
        x.assign(y)
    }

    /// RMSNorm of rows.
    ///
    /// # Errors
    /// Errors of shapes and of the evaluation.
    pub fn rmsnorm(&self, x: &mut MetalTensor, weight: &MetalTensor, eps: f32) -> Result<()> {
        let y = x.to_tensor()?.rms_norm(&weight.to_tensor()?, eps.into());
        x.assign(y)
    }

    /// `x * sigmoid(x)`, as a new tensor.
    ///
    /// # Errors
    /// Errors of shapes and of the evaluation.
    pub fn silu(self: &Arc<Self>, x: &MetalTensor) -> Result<MetalTensor> {
        let mut result = MetalTensor::zeros(self, *x.shape())?;
        result.assign(x.to_tensor()?.silu())?;
        Ok(result)
    }
}

/// Creates the preferred [`Backend`], for memory by handle and pointer.
///
/// # Errors
/// [`Error::Device`], if it is not available.
pub fn get_backend(preference: BackendPreference) -> Result<Box<dyn Backend>> {
    let device = preference.device()?;
    Ok(if device.is_cpu() {
        Box::new(CpuBackend::new())
    } else {
        Box::new(MetalBackend::on(&device)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_may_take_all_that_is_free_and_no_more() {
        let info = DeviceInfo {
            index: 0,
            backend: "cpu",
            name: "test".to_owned(),
            total_memory: 100,
            free_memory: 60,
            compute_capability: None,
            unified_memory: true,
        };
        assert_eq!(info.expect_free("test", 60), Ok(()));
        let error = Error::OutOfMemory {
            op: "test",
            requested: 61,
            in_use: 40,
            limit: 100,
        };
        assert_eq!(info.expect_free("test", 61), Err(error));
    }
}
