//! Devices that tensors are computed on.

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bessemer_hal as hal;

use crate::capabilities::Capabilities;
use crate::dispatch_table::OpClass;
use crate::env::{self, DeviceName};
use crate::memory::{self, Pressure, Stats};
use crate::metal::{Fallback, MatrixLibrary, Metal, Options};
use crate::{DType, Error, Result, Tensor, cpu, dispatch_table};

/// A device that tensors are computed on: the CPU or a Metal device.
///
/// # Placement
///
/// A tensor that was moved with [`Tensor::to`] stays on its device, and so does everything computed from it; the inputs
/// of an op cannot be on two such devices. All other tensors are computed on the default device, which is the first
/// that is set of: the innermost [`Device::scope`] of the thread, [`Device::set_default`], the variable
/// `BESSEMER_DEVICE` (`cpu`, `metal`, `soft` or `auto`), and `auto`: the system's Metal GPU if there is one, otherwise
/// the CPU. The software Metal device is only used on request. If the GPU was selected by `auto`, the
/// [`DispatchTable`](crate::dispatch_table::DispatchTable) that `bessemer tune` has measured may leave an op to the
/// CPU.
///
/// `f64` exists on the CPU only. Ops of the default device that need it run on the CPU; on a device that a tensor was
/// moved to they are an error.
///
/// Memory is shared: a device reads the results of another in place if the hardware allows it, after waiting for them.
///
/// ```
/// use bessemer::{Device, Tensor};
/// let x = Tensor::from_slice(&[1.0_f32, 2.0], [2]).to(&Device::cpu());
/// assert!((x + 1.0).device().is_cpu());
/// ```
#[derive(Clone, Default)]
pub struct Device(Backend);

#[derive(Clone, Default)]
enum Backend {
    #[default]
    Cpu,
    Metal(Arc<Metal>),
}

/// The device of a tensor.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) device: Device,
    /// Whether the device was set with [`Tensor::to`], or inherited from an input that was.
    pub(crate) pinned: bool,
}

/// Fast path: whether the default device of every thread is known to be the CPU. Once any thread has chosen a device,
/// this stays [`CHOSEN`].
static CHOICE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const CPU_ONLY: u8 = 1;
const CHOSEN: u8 = 2;
/// The default device of the process, once it is known.
static DEFAULT: RwLock<Option<DefaultDevice>> = RwLock::new(None);

/// A default device.
#[derive(Clone)]
struct DefaultDevice {
    device: Result<Device>,
    /// Whether it was selected automatically; the dispatch table applies only then.
    is_auto: bool,
}

impl DefaultDevice {
    const fn chosen(device: Result<Device>) -> Self {
        Self {
            device,
            is_auto: false,
        }
    }

    const fn auto(device: Device) -> Self {
        Self {
            device: Ok(device),
            is_auto: true,
        }
    }
}

thread_local! {
    static SCOPES: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// The CPU: native code on all its cores.
    pub const fn cpu() -> Self {
        Self(Backend::Cpu)
    }

    /// The system's Metal GPU.
    ///
    /// # Errors
    /// [`Error::Device`], if there is none.
    pub fn metal() -> Result<Self> {
        static METAL: OnceLock<Result<Device>> = OnceLock::new();
        METAL
            .get_or_init(|| {
                env::check()?;
                let device =
                    hal::Device::system_default().map_err(|e| Error::device("metal", e))?;
                Ok(Self::on(device))
            })
            .clone()
    }

    /// The software Metal device: the Metal kernels on the CPU, in the mode that `BESSEMER_SOFT_MODE` names.
    ///
    /// # Errors
    /// [`Error::Device`], if it is unavailable here, or one of its environment variables is invalid (docs/environment.md).
    pub fn software() -> Result<Self> {
        static SOFTWARE: OnceLock<Result<Device>> = OnceLock::new();
        SOFTWARE
            .get_or_init(|| {
                env::check()?;
                software().map_err(|e| Error::device("software", e))
            })
            .clone()
    }

    /// The software Metal device in check mode, for kernels that are only to be checked.
    pub(crate) fn checking() -> Result<Self> {
        static CHECKING: OnceLock<Result<Device>> = OnceLock::new();
        CHECKING
            .get_or_init(|| {
                env::check()?;
                checking().map_err(|e| Error::device("check", e))
            })
            .clone()
    }

    /// A device of the hal: a second GPU, a checking or a recording device.
    pub fn on(device: hal::Device) -> Self {
        Self::with(device, hal::MathMode::Safe)
    }

    /// A device of the hal, with the math mode of its compiler. Safe math is the default;
    /// [`hal::MathMode::Fast`] makes elementary functions approximate.
    pub fn with(device: hal::Device, math: hal::MathMode) -> Self {
        Self(Backend::Metal(Metal::new(device, Options { math })))
    }

    /// The default device of this thread.
    ///
    /// # Errors
    /// [`Error::Device`] if the device that `BESSEMER_DEVICE` names is unavailable, and [`Error::Environment`] if an environment
    /// variable has an invalid value.
    pub fn current() -> Result<Self> {
        Self::current_default().device
    }

    /// The default device of this thread, and how it was selected.
    fn current_default() -> DefaultDevice {
        if CHOICE.load(Ordering::Relaxed) == CPU_ONLY {
            return DefaultDevice::chosen(Ok(Self::cpu()));
        }
        if let Some(device) = SCOPES.with_borrow(|scopes| scopes.last().cloned()) {
            return DefaultDevice::chosen(Ok(device));
        }
        let read = || DEFAULT.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(default) = &*read() {
            return default.clone();
        }
        if let Err(error) = env::check() {
            return DefaultDevice::chosen(Err(error));
        }
        let found = match env::settings().device {
            None | Some(DeviceName::Auto) => DefaultDevice::auto(Self::auto()),
            Some(name) => DefaultDevice::chosen(Self::from_name(name)),
        };
        if matches!(found.device, Ok(Self(Backend::Cpu))) {
            // Another thread may be in a scope, and has stored `CHOSEN`.
            let relaxed = Ordering::Relaxed;
            let _ = CHOICE.compare_exchange(UNKNOWN, CPU_ONLY, relaxed, relaxed);
        }
        let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
        default.get_or_insert(found).clone()
    }

    /// Makes this the device that `auto` selects, unless a default was set explicitly.
    pub(crate) fn set_auto(gpu: &Self) {
        // Reads the environment on the first call.
        let _ = Self::current_default();
        let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
        if default.as_ref().is_none_or(|default| default.is_auto) {
            *default = Some(DefaultDevice::auto(gpu.clone()));
            CHOICE.store(CHOSEN, Ordering::Relaxed);
        }
    }

    /// The system's Metal GPU if there is one, otherwise the CPU.
    pub fn auto() -> Self {
        Self::metal().unwrap_or_default()
    }

    fn from_name(name: DeviceName) -> Result<Self> {
        match name {
            DeviceName::Auto => Ok(Self::auto()),
            DeviceName::Cpu => Ok(Self::cpu()),
            DeviceName::Metal => Self::metal(),
            DeviceName::Software => Self::software(),
        }
    }

    /// Makes this the default device of the process.
    pub fn set_default(&self) {
        let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
        *default = Some(DefaultDevice::chosen(Ok(self.clone())));
        CHOICE.store(CHOSEN, Ordering::Relaxed);
    }

    /// Calls `body` with this as the default device of the thread.
    pub fn scope<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Guard;
        impl Drop for Guard {
            fn drop(&mut self) {
                SCOPES.with_borrow_mut(Vec::pop);
            }
        }
        CHOICE.store(CHOSEN, Ordering::Relaxed);
        SCOPES.with_borrow_mut(|scopes| scopes.push(self.clone()));
        let _guard = Guard;
        body()
    }

    /// Returns `true` for the CPU.
    pub const fn is_cpu(&self) -> bool {
        matches!(self.0, Backend::Cpu)
    }

    /// The name of the device, for users.
    pub fn name(&self) -> &str {
        match &self.0 {
            Backend::Cpu => "CPU",
            Backend::Metal(metal) => metal.device.name(),
        }
    }

    /// The device of the hal; `None` for the CPU.
    pub fn hal(&self) -> Option<&hal::Device> {
        self.metal_backend().map(|metal| &metal.device)
    }

    /// Waits until everything recorded for this device has run.
    ///
    /// # Errors
    /// The error of the last commands; tensors computed by them return it too when they are read.
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            Backend::Cpu => Ok(()),
            Backend::Metal(metal) => metal.stream.synchronize(),
        }
    }

    /// Evaluates tensors on several threads, so that the kernels they need are compiled in parallel and later ops do
    /// not wait for a compiler.
    ///
    /// # Errors
    /// The first error of the evaluations.
    pub fn warm_up(tensors: &[&Tensor]) -> Result<()> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let share = tensors.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let shares: Vec<_> = tensors
                .chunks(share)
                .map(|chunk| scope.spawn(|| chunk.iter().try_for_each(|t| t.eval().map(|_| ()))))
                .collect();
            shares.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| {
                    Err(Error::Invalid {
                        op: "warm_up",
                        reason: "a thread panicked".to_owned(),
                    })
                })
            })
        })
    }

    /// Memory statistics of this device; for the CPU, those of [`crate::memory`].
    pub fn memory(&self) -> Stats {
        match &self.0 {
            Backend::Cpu => memory::stats(),
            Backend::Metal(metal) => metal.pool.stats(),
        }
    }

    /// Memory in use relative to the limit.
    pub fn memory_pressure(&self) -> Pressure {
        match &self.0 {
            Backend::Cpu => Pressure::of(memory::stats().in_use, memory::memory_limit()),
            Backend::Metal(metal) => metal.pool.pressure(),
        }
    }

    /// Sets the limit in bytes for tensors on this device; an op that exceeds it is an [`Error::OutOfMemory`]. Returns
    /// the previous limit, which is initially what fits in the device's memory without paging.
    pub fn set_memory_limit(&self, bytes: usize) -> usize {
        match &self.0 {
            Backend::Cpu => memory::set_memory_limit(bytes),
            Backend::Metal(metal) => metal.pool.set_limit(bytes),
        }
    }

    /// Sets the maximum number of freed bytes to keep for reuse. Returns the previous limit.
    pub fn set_cache_limit(&self, bytes: usize) -> usize {
        match &self.0 {
            Backend::Cpu => memory::set_cache_limit(bytes),
            Backend::Metal(metal) => metal.pool.set_cache_limit(bytes),
        }
    }

    /// Returns all memory kept for reuse to the system.
    pub fn clear_cache(&self) {
        match &self.0 {
            Backend::Cpu => memory::clear_cache(),
            Backend::Metal(metal) => metal.pool.clear_cache(),
        }
    }

    /// Resets [`Stats::peak`] to the bytes in use now.
    pub fn reset_peak(&self) {
        match &self.0 {
            Backend::Cpu => memory::reset_peak(),
            Backend::Metal(metal) => metal.pool.reset_peak(),
        }
    }

    /// Ops that this device has left to the CPU so far, by name, with the reason. Each costs a synchronisation, since
    /// the CPU waits for its inputs. Empty for the CPU itself, and if all kernels run.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        self.metal_backend()
            .map_or_else(Vec::new, |metal| metal.fallbacks())
    }

    /// The matmul implementation of this device; `None` for the CPU.
    pub fn matrix_library(&self) -> Option<MatrixLibrary> {
        self.metal_backend().map(|metal| metal.matrix_library())
    }

    /// Sets the matmul implementation of this device: the engine's kernels, which are the default unless
    /// `BESSEMER_MATMUL` is `mps`, or Metal Performance Shaders.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the library is unavailable, as on the CPU.
    pub fn set_matrix_library(&self, library: MatrixLibrary) -> Result<()> {
        match &self.0 {
            Backend::Metal(metal) => metal.set_matrix_library(library),
            Backend::Cpu => Err(Error::Unsupported {
                op: "set_matrix_library",
                what: "a choice of the matmul library".to_owned(),
                device: self.name().to_owned(),
            }),
        }
    }

    /// Sets the maximum time of one kernel launch, initially half a second; the estimate may be wrong by a factor of
    /// four. Matmuls, convolutions and attention that would take longer are launched in bands, with the same results.
    /// The GPU watchdog of a system with a display kills commands after about two seconds, and nothing is drawn
    /// meanwhile. Has no effect on the CPU.
    pub fn set_max_launch_time(&self, time: Duration) {
        if let Backend::Metal(metal) = &self.0 {
            metal.stream.set_max_launch_time(time);
        }
    }

    pub(crate) fn metal_backend(&self) -> Option<&Arc<Metal>> {
        match &self.0 {
            Backend::Cpu => None,
            Backend::Metal(metal) => Some(metal),
        }
    }

    /// What this device can fuse and cache.
    pub(crate) fn capabilities(&self) -> Capabilities {
        match &self.0 {
            Backend::Cpu => cpu::CAPABILITIES,
            Backend::Metal(metal) => metal.capabilities(),
        }
    }

    /// Submits the recorded commands without waiting for them.
    pub(crate) fn flush(&self) {
        if let Backend::Metal(metal) = &self.0 {
            metal.stream.flush();
        }
    }

    /// Returns `true` if the device computes with elements of this type.
    pub fn supports(&self, dtype: DType) -> bool {
        self.is_cpu() || dtype != DType::F64
    }

    fn expect(&self, op: &'static str, dtype: DType) -> Result<()> {
        if self.supports(dtype) {
            return Ok(());
        }
        Err(Error::Unsupported {
            op,
            what: format!("{dtype}: Metal has none; use `f32`, or compute on the CPU"),
            device: self.name().to_owned(),
        })
    }
}

#[cfg(target_os = "linux")]
fn software() -> hal::Result<Device> {
    let device = hal::soft::device(hal::soft::SoftOptions::from_env()?)?;
    Ok(Device::on(device))
}

#[cfg(target_os = "linux")]
fn checking() -> hal::Result<Device> {
    let options = hal::soft::SoftOptions {
        mode: hal::soft::Mode::Check,
        ..hal::soft::SoftOptions::from_env()?
    };
    Ok(Device::on(hal::soft::device(options)?))
}

#[cfg(not(target_os = "linux"))]
fn software() -> hal::Result<Device> {
    Err(hal::Error::Unavailable {
        device: "the software Metal device".to_owned(),
        reason: "it runs on Linux only".to_owned(),
    })
}

#[cfg(not(target_os = "linux"))]
fn checking() -> hal::Result<Device> {
    software()
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Backend::Cpu, Backend::Cpu) => true,
            (Backend::Metal(a), Backend::Metal(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Device {}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let metal = self.metal_backend().map_or(ptr::null(), Arc::as_ptr);
        metal.hash(state);
    }
}

impl FromStr for Device {
    type Err = Error;

    /// `cpu`, `metal`, `soft` or `auto`.
    fn from_str(name: &str) -> Result<Self> {
        match DeviceName::named(name) {
            Some(name) => Self::from_name(name),
            None => Err(Error::Invalid {
                op: "device",
                reason: format!("`{name}` is none of cpu, metal, soft, auto"),
            }),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl Placement {
    /// The placement of an op with these inputs and a result of this type.
    pub(crate) fn of(
        op: &'static str,
        inputs: &[&Tensor],
        dtype: DType,
        measured_as: Option<OpClass>,
    ) -> Result<Self> {
        let mut pinned: Option<&Device> = None;
        for input in inputs.iter().filter(|t| t.node.placement.pinned) {
            let device = &input.node.placement.device;
            match pinned {
                Some(other) if other != device => {
                    return Err(Error::Invalid {
                        op,
                        reason: format!(
                            "one input is on {other}, another on {device}; move one with `to`"
                        ),
                    });
                }
                _ => pinned = Some(device),
            }
        }
        let types = || inputs.iter().map(|t| t.dtype()).chain([dtype]);
        if let Some(device) = pinned {
            for dtype in types() {
                device.expect(op, dtype)?;
            }
            return Ok(Self {
                device: device.clone(),
                pinned: true,
            });
        }
        let DefaultDevice { device, is_auto } = Device::current_default();
        let mut device = device?;
        if types().any(|dtype| !device.supports(dtype)) {
            device = Device::cpu();
        }
        if let Some(op) = measured_as
            && is_auto
            && !device.is_cpu()
        {
            device = dispatch_table::device(op, inputs, device);
        }
        Ok(Self {
            device,
            pinned: false,
        })
    }
}

impl Tensor {
    /// The device that computes the value.
    pub fn device(&self) -> &Device {
        &self.node.placement.device
    }

    /// This tensor, pinned to a device: everything computed from it is computed there. Nothing is copied where memory
    /// is shared.
    ///
    /// ```
    /// use bessemer::{Device, Tensor};
    /// let x = Tensor::from_slice(&[1.0_f64], [1]);
    /// if let Ok(gpu) = Device::metal() {
    ///     assert!(x.to(&gpu).check().is_err(), "Metal has no f64");
    /// }
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn to(&self, device: &Device) -> Self {
        Self::attempt(|| {
            self.check()?;
            device.expect("to", self.dtype())?;
            Ok(self.placed(Placement {
                device: device.clone(),
                pinned: true,
            }))
        })
    }
}
