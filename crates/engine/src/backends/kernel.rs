//! The calls that a transformer makes, on a backend of one's choice.
//!
//! ```
//! use bessemer::Tensor;
//! use bessemer::backends::kernel::{BackendPreference, init_backend};
//!
//! let backend = init_backend(BackendPreference::Auto)?;
//! println!("Using backend: {}", backend.name());
//! let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
//! let input = Tensor::from_slice(&[1.0_f32, 1.0], [2]);
//! assert_eq!(backend.matmul_vec(&weights, &input).to_vec::<f32>()?, [3.0, 7.0]);
//! # Ok::<(), bessemer::Error>(())
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::Backend;
use super::CpuBackend;
use super::metal::{MetalBackend, MetalTensor};
use crate::memory::memory_limit;
use crate::{Device, Error, Result, Tensor};

/// Which backend is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendPreference {
    /// Metal where there is a GPU, otherwise the CPU.
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

/// The backend that is wanted.
///
/// # Errors
/// [`Error::Device`]: there is none here.
pub fn init_backend(preference: BackendPreference) -> Result<Box<dyn KernelBackend>> {
    let device = preference.device()?;
    Ok(match device.is_cpu() {
        true => Box::new(CpuBackend::new()),
        false => Box::new(MetalBackend::on(&device)?),
    })
}

/// As [`init_backend`], for a model that needs so many bytes.
///
/// # Errors
/// [`Error::OutOfMemory`]: the device has less, with the numbers.
pub fn init_backend_with_memory_check(
    preference: BackendPreference,
    bytes: usize,
) -> Result<Box<dyn KernelBackend>> {
    DeviceInfo::of(&preference.device()?).expect_room("init_backend", bytes)?;
    init_backend(preference)
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its place in the list.
    pub index: usize,
    /// `cpu`, `metal` or `software`.
    pub backend: &'static str,
    /// Its name.
    pub name: String,
    /// Bytes that values may use.
    pub total_memory: usize,
    /// Bytes of these that no value uses.
    pub free_memory: usize,
    /// The family of a GPU.
    pub compute_capability: Option<String>,
    /// Whether it shares its memory with the host.
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

    fn expect_room(&self, op: &'static str, bytes: usize) -> Result<()> {
        match bytes <= self.free_memory {
            true => Ok(()),
            false => Err(Error::OutOfMemory {
                op,
                requested: bytes,
                in_use: self.total_memory - self.free_memory,
                limit: self.total_memory,
            }),
        }
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

/// All backends that can be had here, the best first.
pub fn discover_backends() -> Vec<DeviceInfo> {
    let devices = [Device::metal(), Ok(Device::cpu()), Device::software()];
    let mut found: Vec<_> = devices.iter().flatten().map(DeviceInfo::of).collect();
    for (i, info) in found.iter_mut().enumerate() {
        info.index = i;
    }
    found
}

/// All backends that can be had here, in words.
pub fn backend_summary() -> String {
    let lines = discover_backends()
        .iter()
        .map(|info| format!("{} {info}", info.index))
        .collect::<Vec<_>>();
    lines.join("\n")
}

/// The backend that [`BackendPreference::Auto`] means here.
pub fn best_available_backend() -> BackendPreference {
    match MetalBackend::is_available() {
        true => BackendPreference::Metal,
        false => BackendPreference::Cpu,
    }
}

/// The best backend with room for a model of so many bytes.
///
/// # Errors
/// [`Error::OutOfMemory`]: none has.
pub fn select_backend_for_model(bytes: usize) -> Result<BackendPreference> {
    let mut all = vec![BackendPreference::Cpu];
    if MetalBackend::is_available() {
        all.insert(0, BackendPreference::Metal);
    }
    let mut last = Err(Error::Invalid {
        op: "select_backend_for_model",
        reason: "there is no backend".to_owned(),
    });
    for preference in all {
        last = init_backend_with_memory_check(preference, bytes).map(|_| preference);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// The calls that a transformer makes. Tensors may live anywhere; results live on the backend's device, and
/// carry errors as tensors do.
pub trait KernelBackend: Backend {
    /// `cpu`, `metal` or `software`.
    fn name(&self) -> &'static str {
        DeviceInfo::of(self.device()).backend
    }

    /// The device's name.
    fn device_name(&self) -> &str {
        self.device().name()
    }

    /// Whether it can compute: it is asked to, and what it says is compared.
    fn is_available(&self) -> bool {
        use super::array::{ArrayBackend, computes};
        computes(match self.name() {
            "cpu" => ArrayBackend::Cpu,
            "metal" => ArrayBackend::Metal,
            _ => ArrayBackend::Software,
        })
    }

    /// `w·x` of a matrix `[rows, cols]` and a vector `[cols]`.
    fn matmul_vec(&self, w: &Tensor, x: &Tensor) -> Tensor {
        w.to(self.device()).matvec(&x.to(self.device()))
    }

    /// As [`KernelBackend::matmul_vec`], in the place of `out`, a vector `[rows]`; with another shape, `out`
    /// becomes an error.
    fn matmul_vec_into(&self, w: &Tensor, x: &Tensor, out: &mut Tensor) {
        let y = self.matmul_vec(w, x);
        *out = Tensor::attempt(|| {
            let (expected, found) = (*y.check()?.shape(), *out.check()?.shape());
            match found == expected {
                true => Ok(y),
                false => Err(Error::ShapeMismatch {
                    op: "matmul_vec_into",
                    left: expected,
                    right: found,
                    reason: "they must be the same",
                }),
            }
        });
    }

    /// `a·b` of matrices.
    fn matmul(&self, a: &Tensor, b: &Tensor) -> Tensor {
        a.to(self.device()).matmul(&b.to(self.device()))
    }

    /// Divides rows by their root mean square and multiplies them by weights.
    fn rmsnorm(&self, x: &mut Tensor, weight: &Tensor, eps: f32) {
        let weight = weight.to(self.device());
        *x = x.to(self.device()).rms_norm(&weight, eps.into());
    }

    /// Softmax of rows.
    fn softmax(&self, x: &mut Tensor) {
        *x = x.to(self.device()).softmax(-1);
    }

    /// Softmax of a part of each row, as of the scores of the positions that are there; the rest stays as it
    /// is. A range outside of the rows makes `x` an error.
    fn softmax_view(&self, x: &mut Tensor, range: Range<usize>) {
        let all = x.to(self.device());
        *x = Tensor::attempt(|| {
            let op = "softmax_view";
            let row = all.check()?.shape().last().copied().unwrap_or(0);
            if range.start > range.end || range.end > row {
                let reason = format!("positions {range:?} are not all among the {row} of a row");
                return Err(Error::Invalid { op, reason });
            }
            let (start, end) = (range.start as isize, range.end as isize);
            let mut place = vec![0; all.rank()];
            if let Some(last) = place.last_mut() {
                *last = range.start;
            }
            Ok(all.slice_update(&all.slice(-1, start, end, 1).softmax(-1), &place))
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

    /// Rotates the halves of each row of `[heads, dim]` by angles whose cosines and sines are given, `dim / 2`
    /// of each.
    fn apply_rope(&self, x: &mut Tensor, cos: &Tensor, sin: &Tensor) {
        let half = cos.shape().last().copied().unwrap_or(0) as isize;
        let all = x.to(self.device());
        let (a, b) = (all.slice(-1, 0, half, 1), all.slice(-1, half, None, 1));
        let (cos, sin) = (cos.to(self.device()), sin.to(self.device()));
        let (low, high) = (&a * &cos - &b * &sin, &a * &sin + &b * &cos);
        *x = Tensor::concat(&[&low, &high], -1);
    }

    /// `scale * q·kᵀ` of a query `[dim]` and keys `[seq, dim]`.
    fn compute_attention_scores(&self, q: &Tensor, keys: &Tensor, scale: f32) -> Tensor {
        keys.to(self.device()).matvec(&q.to(self.device())) * scale
    }

    /// `Σ weights[i] * rows[i]` of a vector `[n]` and a matrix `[n, d]`.
    fn weighted_sum_rows(&self, weights: &Tensor, rows: &Tensor) -> Tensor {
        weights.to(self.device()).matmul(&rows.to(self.device()))
    }

    /// Waits until all that was asked for is computed.
    ///
    /// # Errors
    /// What the device says.
    fn synchronize(&self) -> Result<()> {
        self.device().synchronize()
    }
}

impl KernelBackend for CpuBackend {}

impl KernelBackend for MetalBackend {}

impl MetalBackend {
    /// A vector in memory that host and device share.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn to_device_1d(self: &Arc<Self>, values: &[f32]) -> Result<MetalTensor> {
        let buffer = self.create_buffer_with_data(values, bessemer_hal::StorageMode::Shared)?;
        MetalTensor::new_1d(self, buffer, values.len())
    }

    /// A matrix, given in row-major order, in memory that host and device share.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of values, [`Error::Device`].
    pub fn to_device_2d(
        self: &Arc<Self>,
        values: &[f32],
        rows: usize,
        cols: usize,
    ) -> Result<MetalTensor> {
        let shape = crate::Shape::new("to_device_2d", &[rows, cols])?;
        if shape.count() != values.len() {
            return Err(Error::BadShape {
                op: "to_device_2d",
                shape,
                reason: format!("there are {} values", values.len()),
            });
        }
        let buffer = self.create_buffer_with_data(values, bessemer_hal::StorageMode::Shared)?;
        MetalTensor::new_2d(self, buffer, rows, cols)
    }

    /// The values of a vector.
    ///
    /// # Errors
    /// What computing them gives.
    pub fn to_host_1d(&self, tensor: &MetalTensor) -> Result<Vec<f32>> {
        tensor.to_vec()
    }

    /// The rows of a matrix.
    ///
    /// # Errors
    /// [`Error::BadShape`] for what is no matrix, and what computing it gives.
    pub fn to_host_2d(&self, tensor: &MetalTensor) -> Result<Vec<Vec<f32>>> {
        let (_, cols) = tensor.shape_2d()?;
        let all = tensor.to_vec()?;
        Ok(all.chunks(cols.max(1)).map(<[f32]>::to_vec).collect())
    }

    /// `w·x` in memory of its own.
    ///
    /// # Errors
    /// What computing it gives; as all of these.
    pub fn matmul_vec(self: &Arc<Self>, w: &MetalTensor, x: &MetalTensor) -> Result<MetalTensor> {
        let mut result = MetalTensor::zeros(self, [w.nrows()?])?;
        result.assign(w.to_tensor()?.matvec(&x.to_tensor()?))?;
        Ok(result)
    }

    /// Makes rows exponentials that add up to 1.
    ///
    /// # Errors
    /// What computing it gives.
    pub fn softmax(&self, x: &mut MetalTensor) -> Result<()> {
        let y = x.to_tensor()?.softmax(-1);
        x.assign(y)
    }

    /// Divides rows by their root mean square and multiplies them by weights.
    ///
    /// # Errors
    /// What computing it gives.
    pub fn rmsnorm(&self, x: &mut MetalTensor, weight: &MetalTensor, eps: f32) -> Result<()> {
        let y = x.to_tensor()?.rms_norm(&weight.to_tensor()?, eps.into());
        x.assign(y)
    }

    /// `x * sigmoid(x)`, in memory of its own.
    ///
    /// # Errors
    /// What computing it gives.
    pub fn silu(self: &Arc<Self>, x: &MetalTensor) -> Result<MetalTensor> {
        let mut result = MetalTensor::zeros(self, *x.shape())?;
        result.assign(x.to_tensor()?.silu())?;
        Ok(result)
    }
}

/// A [`Backend`] for memory by handle and pointer, as is wanted.
///
/// # Errors
/// [`Error::Device`]: there is none here.
pub fn get_backend(preference: BackendPreference) -> Result<Box<dyn Backend>> {
    let device = preference.device()?;
    Ok(match device.is_cpu() {
        true => Box::new(CpuBackend::new()),
        false => Box::new(MetalBackend::on(&device)?),
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
        assert_eq!(info.expect_room("test", 60), Ok(()));
        let error = Error::OutOfMemory {
            op: "test",
            requested: 61,
            in_use: 40,
            limit: 100,
        };
        assert_eq!(info.expect_room("test", 61), Err(error));
    }
}
