//! Functions of arrays, on the backend that was measured to be the quickest for each.
//!
//! A backend takes part once it has computed something and been right ([`BackendValidation`]); that it exists
//! is not enough. Which one does an op is measured on the machine, for several sizes, by [`tune`] (or
//! `bessemer tune`), and kept in the cache directory; without a measurement the order of preference decides.
//! The variable `BESSEMER_DEVICE` and [`set_backend_override`] have the last word.

use std::fmt;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::cpu::simd;
pub use crate::dispatch_table::DispatchTable;
use crate::{DType, Device, Error, MatrixLibrary, Result, Tensor, dispatch_table, env};

/// An array is a tensor.
pub type Array = Tensor;

/// Elementwise functions by kind. Functions of one argument leave the second one unused.
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
    /// All of them.
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

/// Whether there is a Metal GPU. Cheap after the first call.
pub fn is_available_cached() -> bool {
    bessemer_hal::Device::is_metal_available()
}

/// The device of the functions whose names end in `_metal`: the Metal GPU, or the software device where
/// `BESSEMER_DEVICE` asks for it.
fn metal() -> Result<Device> {
    let current = Device::current()?;
    match current.is_cpu() {
        false => Ok(current),
        true => Device::metal(),
    }
}

/// An elementwise function on the Metal device; the result is computed.
///
/// # Errors
/// [`Error::Device`] without one, and what computing gives.
pub fn elementwise_metal(a: &Array, b: &Array, kind: ElementwiseKind) -> Result<Array> {
    elementwise_on(&metal()?, a, b, kind)
}

/// The product of two matrices on the Metal device.
///
/// # Errors
/// As [`elementwise_metal`].
pub fn matmul_metal(a: &Array, b: &Array) -> Result<Array> {
    matmul_on(&metal()?, a, b)
}

/// The sum over an axis, or over all elements, on the Metal device.
///
/// # Errors
/// As [`elementwise_metal`], and [`Error::BadAxis`].
pub fn reduction_metal(a: &Array, axis: Option<usize>) -> Result<Array> {
    sum_on(&metal()?, a, axis)
}

/// The product of two vectors on the Metal device.
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
        Some(axis) => a.sum(&[axis as isize], false),
    };
    y.eval()?;
    Ok(y)
}

fn dot_on(device: &Device, a: &Array, b: &Array) -> Result<Array> {
    let y = a.to(device).dot(&b.to(device));
    y.eval()?;
    Ok(y)
}

/// A backend that array functions can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ArrayBackend {
    /// The CPU: the widest vectors it has, all its cores.
    Cpu,
    /// Apple's Accelerate, for products; the CPU for the rest.
    Accelerate,
    /// The system's Metal GPU.
    Metal,
    /// The system's Metal GPU with its own library, Metal Performance Shaders, for products.
    Mps,
    /// The software Metal device: only by request.
    Software,
}

impl ArrayBackend {
    /// Those that may be chosen by measurement.
    const CHOICES: [Self; 4] = [Self::Cpu, Self::Accelerate, Self::Metal, Self::Mps];

    /// `cpu`, `accelerate`, `metal`, `mps` or `soft`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Accelerate => "accelerate",
            Self::Metal => "metal",
            Self::Mps => "mps",
            Self::Software => "soft",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::CHOICES
            .into_iter()
            .chain([Self::Software])
            .find(|b| b.name() == name)
    }

    /// Its device.
    ///
    /// # Errors
    /// [`Error::Device`], where there is none.
    pub fn device(self) -> Result<Device> {
        match self {
            Self::Cpu => Ok(Device::cpu()),
            Self::Accelerate if cfg!(target_vendor = "apple") => Ok(Device::cpu()),
            Self::Accelerate => Err(Error::Unsupported {
                op: "accelerate",
                what: "Accelerate is a part of macOS and iOS".to_owned(),
                device: "this system".to_owned(),
            }),
            Self::Metal => Device::metal(),
            Self::Mps => {
                let device = Device::metal()?;
                let has = device.hal().is_some_and(|d| d.multiplies_matrices());
                match has {
                    true => Ok(device),
                    false => Err(Error::Unsupported {
                        op: "mps",
                        what: "Metal Performance Shaders".to_owned(),
                        device: device.name().to_owned(),
                    }),
                }
            }
            Self::Software => Device::software(),
        }
    }

    /// Whether it does an op in a way of its own.
    fn does(self, op: ArrayOp) -> bool {
        match self {
            Self::Accelerate => matches!(op, ArrayOp::Matmul | ArrayOp::Dot),
            Self::Mps => op == ArrayOp::Matmul,
            Self::Cpu | Self::Metal | Self::Software => true,
        }
    }

    fn matmul(self, a: &Array, b: &Array) -> Result<Array> {
        #[cfg(target_vendor = "apple")]
        if self == Self::Accelerate
            && let Some(product) = super::accelerate::matmul(a, b)?
        {
            return Ok(product);
        }
        let device = self.device()?;
        match self {
            Self::Mps => MatrixLibrary::Mps.scope(|| matmul_on(&device, a, b)),
            // Whatever the device was told: this is the other one.
            Self::Metal => MatrixLibrary::Msl.scope(|| matmul_on(&device, a, b)),
            _ => matmul_on(&device, a, b),
        }
    }

    fn dot(self, a: &Array, b: &Array) -> Result<Array> {
        #[cfg(target_vendor = "apple")]
        if self == Self::Accelerate
            && let Some(product) = super::accelerate::dot(a, b)?
        {
            return Ok(product);
        }
        dot_on(&self.device()?, a, b)
    }
}

impl fmt::Display for ArrayBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The ops that are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArrayOp {
    /// [`elementwise`]
    Elementwise,
    /// [`matmul`]
    Matmul,
    /// [`dot`]
    Dot,
    /// [`reduction`]
    Reduction,
}

impl ArrayOp {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Elementwise, Self::Matmul, Self::Dot, Self::Reduction];

    /// The name of its function.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elementwise => "elementwise",
            Self::Matmul => "matmul",
            Self::Dot => "dot",
            Self::Reduction => "reduction",
        }
    }

    /// Elements of an input that choices are measured at.
    pub const SIZES: [usize; 4] = [1 << 10, 1 << 14, 1 << 17, 1 << 20];

    /// Inputs of about this size.
    fn inputs(self, count: usize) -> [Array; 2] {
        let wave = |shift: f64| {
            let n = count as f64;
            Tensor::linspace(shift - 1.0, shift + n.ln(), count, DType::F32)
        };
        let (a, b) = (wave(0.0), wave(0.5));
        match self {
            Self::Matmul => {
                let n = count.isqrt();
                let square = |t: &Array| t.slice(0, 0, (n * n) as isize, 1).reshape([n, n]);
                [square(&a).contiguous(), square(&b).contiguous()]
            }
            _ => [a, b],
        }
    }

    fn run(self, backend: ArrayBackend, [a, b]: &[Array; 2]) -> Result<Array> {
        match self {
            Self::Elementwise => elementwise_on(&backend.device()?, a, b, ElementwiseKind::Mul),
            Self::Matmul => backend.matmul(a, b),
            Self::Dot => backend.dot(a, b),
            Self::Reduction => sum_on(&backend.device()?, a, None),
        }
    }
}

/// Whether a backend computes what plain loops over the same numbers do, for each of the ops.
pub(super) fn computes(backend: ArrayBackend) -> bool {
    ArrayOp::ALL.into_iter().all(|op| {
        let inputs = op.inputs(257);
        let values = |t: &Array| -> Result<Vec<f64>> {
            let all = t.to_vec::<f32>()?;
            Ok(all.into_iter().map(f64::from).collect())
        };
        let (Ok(a), Ok(b)) = (values(&inputs[0]), values(&inputs[1])) else {
            return false;
        };
        let products = a.iter().zip(&b).map(|(x, y)| x * y);
        let expected: Vec<f64> = match op {
            ArrayOp::Elementwise => products.collect(),
            ArrayOp::Dot => vec![products.sum()],
            ArrayOp::Reduction => vec![a.iter().sum()],
            ArrayOp::Matmul => {
                let n = a.len().isqrt();
                let cell = |i: usize| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum();
                (0..n * n).map(cell).collect()
            }
        };
        let found = op.run(backend, &inputs).and_then(|t| t.to_vec::<f32>());
        found.is_ok_and(|found| agrees(&found, &expected))
    })
}

/// Whether numbers are those expected, to a few parts in a million.
fn agrees(found: &[f32], expected: &[f64]) -> bool {
    let near = |(&x, &y): (&f32, &f64)| (f64::from(x) - y).abs() <= 1e-5 * y.abs().max(1.0);
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

/// Which backends have computed something and been right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendValidation {
    /// The CPU.
    pub cpu_validated: bool,
    /// Apple's Accelerate.
    pub accelerate_validated: bool,
    /// The Metal GPU.
    pub metal_validated: bool,
    /// Its own library.
    pub mps_validated: bool,
}

impl BackendValidation {
    /// Lets every backend compute, once a process.
    pub fn get() -> Self {
        static FOUND: OnceLock<BackendValidation> = OnceLock::new();
        *FOUND.get_or_init(|| Self {
            cpu_validated: computes(ArrayBackend::Cpu),
            accelerate_validated: computes(ArrayBackend::Accelerate),
            metal_validated: computes(ArrayBackend::Metal),
            mps_validated: computes(ArrayBackend::Mps),
        })
    }

    fn has(self, backend: ArrayBackend) -> bool {
        match backend {
            ArrayBackend::Cpu => self.cpu_validated,
            ArrayBackend::Accelerate => self.accelerate_validated,
            ArrayBackend::Metal => self.metal_validated,
            ArrayBackend::Mps => self.mps_validated,
            ArrayBackend::Software => false,
        }
    }
}

static OVERRIDE: RwLock<Option<ArrayBackend>> = RwLock::new(None);

impl DispatchTable {
    /// The order of preference where nothing was measured: Accelerate for products, then the GPU, then the CPU. It
    /// knows no sizes: from which one on a backend is worth it is what [`tune`] measures.
    fn preferred(validation: BackendValidation) -> Self {
        let preferred = |op: ArrayOp| {
            if validation.accelerate_validated && ArrayBackend::Accelerate.does(op) {
                ArrayBackend::Accelerate
            } else if validation.metal_validated {
                ArrayBackend::Metal
            } else {
                ArrayBackend::Cpu
            }
        };
        let rows = ArrayOp::ALL.map(|op| (op, 0, preferred(op)));
        Self {
            rows: rows.into(),
            measured: false,
        }
    }

    /// The table that the functions of this module use: what was measured on this machine, or the order of
    /// preference.
    pub fn get() -> Self {
        let validation = BackendValidation::get();
        let table = dispatch_table::measured();
        match table.filter(|t| t.rows.iter().all(|row| validation.has(row.2))) {
            Some(table) => (*table).clone(),
            None => Self::preferred(validation),
        }
    }
}

/// What [`tune`] measured of one backend.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Measurement {
    /// The op.
    pub op: ArrayOp,
    /// Elements of an input.
    pub count: usize,
    /// The backend.
    pub backend: ArrayBackend,
    /// The median time of a call, its result waited for.
    pub time: Duration,
}

/// Measures every validated backend on every op and several sizes, uses what is quickest from now on, and
/// keeps it for the next process: for the functions of this module, and for the ops of tensors that no device was
/// chosen for (see [`DispatchTable`]). `report` hears of each measurement as it is made.
///
/// # Errors
/// What computing gives; [`Error::File`], if it cannot be kept (it is used all the same).
pub fn tune(mut report: impl FnMut(&Measurement)) -> Result<DispatchTable> {
    let validation = BackendValidation::get();
    let mut table = DispatchTable {
        rows: Vec::new(),
        measured: true,
    };
    for op in ArrayOp::ALL {
        let mut quickest = Vec::new();
        for count in ArrayOp::SIZES {
            let inputs = op.inputs(count);
            let mut best: Option<Measurement> = None;
            for backend in ArrayBackend::CHOICES {
                if !(validation.has(backend) && backend.does(op)) {
                    continue;
                }
                let time = measure(backend, op, &inputs)?;
                let found = Measurement {
                    op,
                    count,
                    backend,
                    time,
                };
                report(&found);
                if best.is_none_or(|b| time < b.time) {
                    best = Some(found);
                }
            }
            let backend = best.map_or(ArrayBackend::Cpu, |b| b.backend);
            quickest.push((count, backend));
        }
        table.rows.extend(rows(op, &quickest));
    }
    dispatch_table::install(table.clone());
    dispatch_table::save(&table)?;
    Ok(table)
}

/// The rows of an op whose quickest backend at ascending sizes is known: the first one counts from nothing on, each of
/// the others from the size at which it is the quickest.
fn rows(op: ArrayOp, quickest: &[(usize, ArrayBackend)]) -> Vec<(ArrayOp, usize, ArrayBackend)> {
    let mut rows: Vec<(ArrayOp, usize, ArrayBackend)> = Vec::new();
    for &(count, backend) in quickest {
        match rows.last() {
            None => rows.push((op, 0, backend)),
            Some(last) if last.2 == backend => {}
            Some(_) => rows.push((op, count, backend)),
        }
    }
    rows
}

/// The time that a call takes.
fn measure(backend: ArrayBackend, op: ArrayOp, inputs: &[Array; 2]) -> Result<Duration> {
    let device = backend.device()?;
    let inputs = inputs.clone().map(|t| t.to(&device));
    for t in &inputs {
        t.eval()?;
    }
    let once = || -> Result<Duration> {
        let start = Instant::now();
        op.run(backend, &inputs)?;
        device.synchronize()?;
        Ok(start.elapsed())
    };
    median(once)
}

/// The median of up to 50 times that take up to 50 ms together, after one that is not counted.
fn median(mut once: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    once()?;
    let mut times = vec![once()?];
    while times.len() < 50 && times.iter().sum::<Duration>() < Duration::from_millis(50) {
        times.push(once()?);
    }
    times.sort();
    Ok(times[times.len() / 2])
}

/// Makes one backend do everything, by name (`cpu`, `accelerate`, `metal`, `mps`, `soft`), or, with `None`, lets the
/// table decide again.
///
/// # Errors
/// [`Error::Invalid`] for another name, [`Error::Device`] for one that cannot be had.
pub fn set_backend_override(name: Option<&str>) -> Result<()> {
    let backend = match name {
        None => None,
        Some(name) => Some(ArrayBackend::named(name).ok_or_else(|| Error::Invalid {
            op: "set_backend_override",
            reason: format!("`{name}` is none of cpu, accelerate, metal, mps, soft"),
        })?),
    };
    if let Some(backend) = backend {
        backend.device()?;
    }
    *OVERRIDE.write().unwrap_or_else(PoisonError::into_inner) = backend;
    Ok(())
}

/// The backend that an op on so many elements runs on.
pub fn chosen(op: ArrayOp, count: usize) -> ArrayBackend {
    let forced = *OVERRIDE.read().unwrap_or_else(PoisonError::into_inner);
    let asked = || env::device().and_then(|name| ArrayBackend::named(&name));
    match forced.or_else(asked) {
        Some(backend) => backend,
        None => DispatchTable::get().choose(op, count),
    }
}

/// An elementwise function, where it is quickest.
///
/// # Errors
/// What computing gives.
pub fn elementwise(a: &Array, b: &Array, kind: ElementwiseKind) -> Result<Array> {
    let backend = chosen(ArrayOp::Elementwise, a.count().max(b.count()));
    elementwise_on(&backend.device()?, a, b, kind)
}

/// The product of two matrices, or batches of them, where it is quickest.
///
/// # Errors
/// What computing gives.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    let backend = chosen(ArrayOp::Matmul, a.count().max(b.count()));
    backend.matmul(a, b)
}

/// The product of two vectors, where it is quickest.
///
/// # Errors
/// What computing gives.
pub fn dot(a: &Array, b: &Array) -> Result<Array> {
    chosen(ArrayOp::Dot, a.count()).dot(a, b)
}

/// The sum over an axis, or over all elements, where it is quickest.
///
/// # Errors
/// What computing gives.
pub fn reduction(a: &Array, axis: Option<usize>) -> Result<Array> {
    sum_on(&chosen(ArrayOp::Reduction, a.count()).device()?, a, axis)
}

/// What there is and what is chosen, for a log.
pub fn startup_report() -> String {
    let validation = BackendValidation::get();
    let mut found = vec![format!(
        "cpu ({}, {} threads)",
        simd::level().name(),
        crate::pool::threads()
    )];
    if validation.accelerate_validated {
        found.push("accelerate".to_owned());
    }
    if validation.mps_validated {
        found.push("mps".to_owned());
    }
    match Device::metal() {
        Ok(metal) if validation.metal_validated => found.push(format!("metal ({metal})")),
        Ok(metal) => found.push(format!("metal ({metal}: computes wrongly, not used)")),
        Err(_) => {}
    }
    format!(
        "Detected backends: {}\n{}",
        found.join(", "),
        DispatchTable::get()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_measurement_accelerate_multiplies_and_metal_does_the_rest_whatever_the_size() {
        use ArrayBackend::{Accelerate, Cpu, Metal};
        let none = BackendValidation {
            cpu_validated: true,
            accelerate_validated: false,
            metal_validated: false,
            mps_validated: false,
        };
        let metal = BackendValidation {
            metal_validated: true,
            mps_validated: true,
            ..none
        };
        let accelerate = BackendValidation {
            accelerate_validated: true,
            ..none
        };
        let both = BackendValidation {
            accelerate_validated: true,
            ..metal
        };
        // Choices for elementwise, matmul, dot and reduction, the order of `ArrayOp::ALL`.
        let cases = [
            (none, [Cpu, Cpu, Cpu, Cpu]),
            (metal, [Metal, Metal, Metal, Metal]),
            (accelerate, [Cpu, Accelerate, Accelerate, Cpu]),
            (both, [Metal, Accelerate, Accelerate, Metal]),
        ];
        for (validation, expected) in cases {
            let table = DispatchTable::preferred(validation);
            assert!(!table.is_measured());
            for count in [0, 1, 1 << 10, 1 << 30] {
                let found = ArrayOp::ALL.map(|op| table.choose(op, count));
                assert_eq!(found, expected, "{validation:?} of {count}");
            }
        }
    }

    #[test]
    fn a_measured_table_has_a_row_wherever_another_backend_is_quickest() {
        use ArrayBackend::{Accelerate, Cpu, Metal};
        let op = ArrayOp::Matmul;
        let sizes = [(16, Cpu), (64, Cpu), (256, Metal), (1024, Accelerate)];
        let expected = [(op, 0, Cpu), (op, 256, Metal), (op, 1024, Accelerate)];
        assert_eq!(rows(op, &sizes), expected);
        assert_eq!(rows(op, &sizes[1..3]), expected[..2]);
        assert_eq!(rows(op, &sizes[2..3]), [(op, 0, Metal)]);
        let back = [(16, Cpu), (64, Metal), (256, Cpu)];
        let expected = [(op, 0, Cpu), (op, 64, Metal), (op, 256, Cpu)];
        assert_eq!(rows(op, &back), expected);
    }

    #[test]
    fn a_time_is_the_median_of_so_many_and_so_long() {
        let run = |times: &[u64]| {
            let mut calls = 0;
            let median = median(|| {
                calls += 1;
                // The last one again and again.
                let time = times.get(calls - 1).or(times.last());
                Ok(Duration::from_millis(*time.expect("not empty")))
            });
            (calls, median.expect("no call fails").as_millis())
        };
        assert_eq!(run(&[9, 0]), (51, 0), "the first one is not counted");
        assert_eq!(run(&[1, 30, 10, 20]), (4, 20));
        assert_eq!(run(&[1, 25, 25, 99]), (3, 25));
        assert_eq!(run(&[1, 60, 99]), (2, 60));
    }

    #[test]
    fn numbers_agree_to_a_few_parts_in_a_million() {
        assert!(agrees(
            &[1.0, -200.0, 0.0],
            &[1.000_009, -200.001, 0.000_009]
        ));
        assert!(agrees(&[], &[]));
        for expected in [1.000_02, 0.999_98, -1.0, f64::NAN] {
            assert!(!agrees(&[1.0], &[expected]), "{expected}");
        }
        assert!(!agrees(&[200.0], &[200.01]));
        assert!(!agrees(&[0.0], &[0.000_02]));
        assert!(!agrees(&[1.0], &[1.0, 2.0]) && !agrees(&[1.0, 2.0], &[1.0]));
        assert!(!agrees(&[1.0, 2.0], &[1.0, 3.0]));
    }

    #[test]
    fn the_cpu_computes() {
        assert!(computes(ArrayBackend::Cpu));
        assert!(!computes(ArrayBackend::Metal), "there is none to be right");
    }
}
