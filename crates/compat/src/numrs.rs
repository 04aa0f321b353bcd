//! The API of numrs: functions on arrays, on the backend that was measured to be the fastest for each.
//!
//! A backend is used only after it has computed known results correctly ([`BackendValidation`]). [`tune`] (or
//! `bessemer tune`) measures the backends on this machine for several sizes and keeps the result in the cache directory;
//! without a measurement, a fixed order of preference decides. `BESSEMER_DEVICE` and [`set_backend_override`] take
//! precedence.

#[cfg(target_vendor = "apple")]
mod accelerate;
mod tune;

use std::sync::{PoisonError, RwLock};

use bessemer::dispatch_table::{BackendKind, OpClass};
use bessemer::{Device, Error, MatrixLibrary, Result, Tensor, pool, simd};

pub use tune::{BackendValidation, Measurement, TUNED_SIZES, dispatch_table, tune};

pub(crate) use tune::computes_correctly;

/// An array is a tensor.
pub type Array = Tensor;

/// Elementwise functions. Unary functions ignore the second argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementwiseKind {
    /// `a + b`
    Add,
    /// `a * b`
    Mul,
    /// `a - b`
    Sub,
    /// `a / b`
    Div,
    /// `a` to the power of `b`
    Pow,
    /// `√a`
    Sqrt,
    /// `sin(a)`
    Sin,
    /// `cos(a)`
    Cos,
    /// `tan(a)`
    Tan,
    /// `asin(a)`
    Asin,
    /// `acos(a)`
    Acos,
    /// `atan(a)`
    Atan,
    /// `exp(a)`
    Exp,
    /// `ln(a)`
    Log,
    /// `|a|`
    Abs,
    /// `-a`
    Neg,
    /// `max(a, 0)`
    Relu,
    /// `a` above 0, `0.01 * a` below
    LeakyRelu,
    /// `1 / (1 + exp(-a))`
    Sigmoid,
    /// `tanh(a)`
    Tanh,
    /// `ln(1 + exp(a))`
    Softplus,
}

impl ElementwiseKind {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::Add,
        Self::Mul,
        Self::Sub,
        Self::Div,
        Self::Pow,
        Self::Sqrt,
        Self::Sin,
        Self::Cos,
        Self::Tan,
        Self::Asin,
        Self::Acos,
        Self::Atan,
        Self::Exp,
        Self::Log,
        Self::Abs,
        Self::Neg,
        Self::Relu,
        Self::LeakyRelu,
        Self::Sigmoid,
        Self::Tanh,
        Self::Softplus,
    ];

    fn apply(self, a: &Array, b: &Array) -> Array {
        match self {
            Self::Add => a + b,
            Self::Mul => a * b,
            Self::Sub => a - b,
            Self::Div => a / b,
            Self::Pow => a.pow(b),
            Self::Sqrt => a.sqrt(),
            Self::Sin => a.sin(),
            Self::Cos => a.cos(),
            Self::Tan => a.tan(),
            Self::Asin => a.asin(),
            Self::Acos => a.acos(),
            Self::Atan => a.atan(),
            Self::Exp => a.exp(),
            Self::Log => a.log(),
            Self::Abs => a.abs(),
            Self::Neg => -a,
            Self::Relu => a.relu(),
            Self::LeakyRelu => a.leaky_relu(0.01),
            Self::Sigmoid => a.sigmoid(),
            Self::Tanh => a.tanh(),
            Self::Softplus => a.softplus(),
        }
    }
}

/// Returns `true` if there is a Metal GPU. Cached after the first call.
pub fn is_available_cached() -> bool {
    bessemer_hal::Device::is_metal_available()
}

/// The device of the `_metal` functions: the current Metal device (`BESSEMER_DEVICE=soft` selects the software device),
/// otherwise the Metal GPU.
fn metal() -> Result<Device> {
    let current = Device::current()?;
    if current.is_cpu() {
        Device::metal()
    } else {
        Ok(current)
    }
}

/// An elementwise function on the Metal device, evaluated.
///
/// # Errors
/// [`Error::Device`], if there is none, and errors of the evaluation.
pub fn elementwise_metal(a: &Array, b: &Array, kind: ElementwiseKind) -> Result<Array> {
    elementwise_on(&metal()?, a, b, kind)
}

/// Matrix multiplication on the Metal device.
///
/// # Errors
/// As [`elementwise_metal`].
pub fn matmul_metal(a: &Array, b: &Array) -> Result<Array> {
    matmul_on(&metal()?, a, b)
}

/// Sum over an axis, or over all elements, on the Metal device.
///
/// # Errors
/// As [`elementwise_metal`], and [`Error::BadAxis`].
pub fn reduction_metal(a: &Array, axis: Option<usize>) -> Result<Array> {
    sum_on(&metal()?, a, axis)
}

/// Dot product on the Metal device.
///
/// # Errors
/// As [`elementwise_metal`].
pub fn dot_metal(a: &Array, b: &Array) -> Result<Array> {
    dot_on(&metal()?, a, b)
}

fn elementwise_on(device: &Device, a: &Array, b: &Array, kind: ElementwiseKind) -> Result<Array> {
    let y = kind.apply(&a.to(device), &b.to(device));
    y.eval()?;
    Ok(y)
}

fn matmul_on(device: &Device, a: &Array, b: &Array) -> Result<Array> {
    let y = a.to(device).matmul(&b.to(device));
    y.eval()?;
    Ok(y)
}

fn sum_on(device: &Device, a: &Array, axis: Option<usize>) -> Result<Array> {
    let a = a.to(device);
    let y = match axis {
        None => a.sum(&[], false),
        // An axis past the rank, even one that no `isize` holds, is an error of the sum.
        Some(axis) => a.sum(&[isize::try_from(axis).unwrap_or(isize::MAX)], false),
    };
    y.eval()?;
    Ok(y)
}

fn dot_on(device: &Device, a: &Array, b: &Array) -> Result<Array> {
    let y = a.to(device).dot(&b.to(device));
    y.eval()?;
    Ok(y)
}

/// Matmul on a backend.
fn matmul_with(backend: BackendKind, a: &Array, b: &Array) -> Result<Array> {
    #[cfg(target_vendor = "apple")]
    if backend == BackendKind::Accelerate
        && let Some(product) = accelerate::matmul(a, b)?
    {
        return Ok(product);
    }
    let device = backend.device()?;
    match backend {
        BackendKind::Mps => MatrixLibrary::Mps.scope(|| matmul_on(&device, a, b)),
        // Explicitly: the device may be set to MPS.
        BackendKind::Metal => MatrixLibrary::Msl.scope(|| matmul_on(&device, a, b)),
        _ => matmul_on(&device, a, b),
    }
}

/// Dot product on a backend.
fn dot_with(backend: BackendKind, a: &Array, b: &Array) -> Result<Array> {
    #[cfg(target_vendor = "apple")]
    if backend == BackendKind::Accelerate
        && let Some(product) = accelerate::dot(a, b)?
    {
        return Ok(product);
    }
    dot_on(&backend.device()?, a, b)
}

static OVERRIDE: RwLock<Option<BackendKind>> = RwLock::new(None);

/// Runs every function on one backend, by name (`cpu`, `accelerate`, `metal`, `mps`, `soft`). `None` returns to the
/// table.
///
/// # Errors
/// [`Error::Invalid`] for an unknown name, [`Error::Device`] for a backend that is not available.
pub fn set_backend_override(name: Option<&str>) -> Result<()> {
    let backend = match name {
        None => None,
        Some(name) => Some(BackendKind::from_name(name).ok_or_else(|| Error::Invalid {
            op: "set_backend_override",
            reason: format!(
                "unknown backend `{name}`; expected cpu, accelerate, metal, mps or soft"
            ),
        })?),
    };
    if let Some(backend) = backend {
        backend.device()?;
    }
    *OVERRIDE.write().unwrap_or_else(PoisonError::into_inner) = backend;
    Ok(())
}

/// The backend that an op on `count` elements runs on.
pub fn chosen(op: OpClass, count: usize) -> BackendKind {
    let forced = *OVERRIDE.read().unwrap_or_else(PoisonError::into_inner);
    forced
        .or_else(BackendKind::from_env)
        .unwrap_or_else(|| dispatch_table().choose(op, count))
}

/// An elementwise function, on the fastest backend.
///
/// # Errors
/// Errors of the evaluation.
pub fn elementwise(a: &Array, b: &Array, kind: ElementwiseKind) -> Result<Array> {
    let backend = chosen(OpClass::Elementwise, a.count().max(b.count()));
    elementwise_on(&backend.device()?, a, b, kind)
}

/// Matrix multiplication, batched or not, on the fastest backend.
///
/// # Errors
/// Errors of the evaluation.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    let backend = chosen(OpClass::Matmul, a.count().max(b.count()));
    matmul_with(backend, a, b)
}

/// Dot product, on the fastest backend.
///
/// # Errors
/// Errors of the evaluation.
pub fn dot(a: &Array, b: &Array) -> Result<Array> {
    dot_with(chosen(OpClass::Dot, a.count()), a, b)
}

/// Sum over an axis, or over all elements, on the fastest backend.
///
/// # Errors
/// Errors of the evaluation.
pub fn reduction(a: &Array, axis: Option<usize>) -> Result<Array> {
    sum_on(&chosen(OpClass::Reduction, a.count()).device()?, a, axis)
}

/// Detected backends and the dispatch table, for a log.
pub fn startup_report() -> String {
    let validation = BackendValidation::get();
    let mut found = vec![format!(
        "cpu ({}, {} threads)",
        simd::level().name(),
        pool::threads()
    )];
    if validation.accelerate_validated {
        found.push("accelerate".to_owned());
    }
    if validation.mps_validated {
        found.push("mps".to_owned());
    }
    match Device::metal() {
        Ok(metal) if validation.metal_validated => found.push(format!("metal ({metal})")),
        Ok(metal) => found.push(format!("metal ({metal}: failed validation, not used)")),
        Err(_) => {}
    }
    format!(
        "Detected backends: {}\n{}",
        found.join(", "),
        dispatch_table()
    )
}
