//! Devices: where tensors are computed.

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
use crate::memory::{self, Pressure, Stats};
use crate::metal::{Fallback, MatrixLibrary, Metal, Options};
use crate::{DType, Error, Result, Tensor, cpu, dispatch_table, env};

/// Where tensors are computed: on the CPU, or on a Metal device.
///
/// # Which device computes what
///
/// A tensor that was moved with [`Tensor::to`] stays on its device, and so does what is computed from it;
/// two devices do not meet in one op. All other tensors are computed on the default device: that of the
/// innermost [`Device::scope`] of the thread, or that of [`Device::set_default`], or what the variable
/// `BESSEMER_DEVICE` says (`cpu`, `metal`, `soft` or `auto`), or `auto`: the system's Metal GPU where there
/// is one, and the CPU elsewhere. The software Metal device is never chosen by itself. Where the GPU was found by
/// itself, the [`DispatchTable`](crate::dispatch_table::DispatchTable) that `bessemer tune` has measured may leave
/// an op to the CPU.
///
/// `f64` exists on the CPU only. Ops of the default device that need it run on the CPU; on a device that was
/// chosen for a tensor they are an error.
///
/// Memory is one: what one device has computed, another reads in place where the hardware allows it, once it
/// is there.
///
/// ```
/// use bessemer::{Device, Tensor};
/// let x = Tensor::from_slice(&[1.0_f32, 2.0], [2]).to(&Device::cpu());
/// assert!((x + 1.0).device().is_cpu());
/// ```
#[derive(Clone, Default)]
pub struct Device(Inner);

#[derive(Clone, Default)]
enum Inner {
    #[default]
    Cpu,
    Metal(Arc<Metal>),
}

/// The device of a tensor, and whether somebody asked for it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: Device,
    pub(crate) pinned: bool,
}

/// Whether any default may be another device than the CPU: most programs need not look further. Once a device was chosen, by
/// any thread, it stays so.
static CHOICE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const CPU_ONLY: u8 = 1;
const CHOSEN: u8 = 2;
/// The default device, and whether it was found by itself: then the dispatch table has a say.
static DEFAULT: RwLock<Option<(Result<Device>, bool)>> = RwLock::new(None);

thread_local! {
    static SCOPES: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// Native code on the processors of this machine.
    pub const fn cpu() -> Self {
        Self(Inner::Cpu)
    }

    /// The system's Metal GPU.
    ///
    /// # Errors
    /// [`Error::Device`], where there is none.
    pub fn metal() -> Result<Self> {
        static METAL: OnceLock<Result<Device>> = OnceLock::new();
        METAL
            .get_or_init(|| {
                let device =
                    hal::Device::system_default().map_err(|e| Error::device("metal", e))?;
                Ok(Self::on(device))
            })
            .clone()
    }

    /// The software Metal device: the same kernels, on the CPU, in the mode that `BESSEMER_SOFT_MODE` names.
    ///
    /// # Errors
    /// [`Error::Device`], where it does not exist or a variable of its is no good.
    pub fn software() -> Result<Self> {
        static SOFTWARE: OnceLock<Result<Device>> = OnceLock::new();
        SOFTWARE
            .get_or_init(|| software().map_err(|e| Error::device("software", e)))
            .clone()
    }

    /// Any device of the device layer: a second GPU, a checking or a recording device.
    pub fn on(device: hal::Device) -> Self {
        Self::with(device, hal::MathMode::Safe)
    }

    /// Any device of the device layer, with a say in how freely its compiler may treat arithmetic. Precise
    /// maths is the default; [`hal::MathMode::Fast`] makes elementary functions approximate.
    pub fn with(device: hal::Device, math: hal::MathMode) -> Self {
        Self(Inner::Metal(Metal::new(device, Options { math })))
    }

    /// The device that tensors of this thread are computed on, where nothing else is said.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Invalid`], if `BESSEMER_DEVICE` asks for what there is not.
    pub fn current() -> Result<Self> {
        Self::current_or_auto().map(|(device, _)| device)
    }

    /// The same, and whether it was found by itself.
    fn current_or_auto() -> Result<(Self, bool)> {
        if CHOICE.load(Ordering::Relaxed) == CPU_ONLY {
            return Ok((Self::cpu(), false));
        }
        if let Some(device) = SCOPES.with_borrow(|scopes| scopes.last().cloned()) {
            return Ok((device, false));
        }
        let known = |(device, is_auto): &(Result<Self>, bool)| Ok((device.clone()?, *is_auto));
        let read = || DEFAULT.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(default) = &*read() {
            return known(default);
        }
        let found = match env::device().as_deref() {
            None | Some("auto") => (Ok(Self::auto()), true),
            Some(name) => (name.parse(), false),
        };
        if matches!(found.0, Ok(Self(Inner::Cpu))) {
            // Another thread may be in a scope.
            let relaxed = Ordering::Relaxed;
            let _ = CHOICE.compare_exchange(UNKNOWN, CPU_ONLY, relaxed, relaxed);
        }
        let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
        known(default.get_or_insert(found))
    }

    /// Makes this the device that is found by itself, unless another one was asked for.
    pub(crate) fn set_auto(gpu: &Self) {
        // Looks at the environment, the first time.
        let _ = Self::current_or_auto();
        let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*default, Some((_, false))) {
            *default = Some((Ok(gpu.clone()), true));
            CHOICE.store(CHOSEN, Ordering::Relaxed);
        }
    }

    /// The system's Metal GPU where there is one, otherwise the CPU.
    pub fn auto() -> Self {
        Self::metal().unwrap_or_default()
    }

    /// Makes this the default device of the process.
    pub fn set_default(&self) {
        let mut default = DEFAULT.write().unwrap_or_else(PoisonError::into_inner);
        *default = Some((Ok(self.clone()), false));
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

    /// Whether this is the CPU.
    pub const fn is_cpu(&self) -> bool {
        matches!(self.0, Inner::Cpu)
    }

    /// The device's name, as a user would recognise it.
    pub fn name(&self) -> &str {
        match &self.0 {
            Inner::Cpu => "CPU",
            Inner::Metal(metal) => metal.device.name(),
        }
    }

    /// The device of the device layer; `None` for the CPU.
    pub fn hal(&self) -> Option<&hal::Device> {
        self.metal_backend().map(|metal| &metal.device)
    }

    /// Waits until everything recorded for this device has run.
    ///
    /// # Errors
    /// What the device says of the last commands; tensors computed by them say the same when they are read.
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            Inner::Cpu => Ok(()),
            Inner::Metal(metal) => metal.stream.synchronize(),
        }
    }

    /// Computes tensors on several threads, so that all kernels they need are compiled, several at a time:
    /// what comes later does not wait for a compiler.
    ///
    /// # Errors
    /// The first that computing them gives.
    pub fn warm_up(tensors: &[&Tensor]) -> Result<()> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let share = tensors.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let shares: Vec<_> = tensors
                .chunks(share)
                .map(|part| scope.spawn(|| part.iter().try_for_each(|t| t.eval().map(|_| ()))))
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

    /// The memory of values on this device; see [`crate::memory`] for that of the CPU.
    pub fn memory(&self) -> Stats {
        match &self.0 {
            Inner::Cpu => memory::stats(),
            Inner::Metal(metal) => metal.pool.stats(),
        }
    }

    /// How near to its limit the memory is.
    pub fn memory_pressure(&self) -> Pressure {
        match &self.0 {
            Inner::Cpu => Pressure::of(memory::stats().in_use, memory::memory_limit()),
            Inner::Metal(metal) => metal.pool.pressure(),
        }
    }

    /// Values may use this many bytes from now on; beyond it an op is an [`Error::OutOfMemory`]. Returns the
    /// limit before, which is at first what the device can hold without paging.
    pub fn set_memory_limit(&self, bytes: usize) -> usize {
        match &self.0 {
            Inner::Cpu => memory::set_memory_limit(bytes),
            Inner::Metal(metal) => metal.pool.set_limit(bytes),
        }
    }

    /// Keeps at most this many bytes of freed memory for reuse from now on. Returns the limit before.
    pub fn set_cache_limit(&self, bytes: usize) -> usize {
        match &self.0 {
            Inner::Cpu => memory::set_cache_limit(bytes),
            Inner::Metal(metal) => metal.pool.set_cache_limit(bytes),
        }
    }

    /// Gives all memory kept for reuse back to the system.
    pub fn clear_cache(&self) {
        match &self.0 {
            Inner::Cpu => memory::clear_cache(),
            Inner::Metal(metal) => metal.pool.clear_cache(),
        }
    }

    /// Counts [`Stats::peak`] anew from what is in use now.
    pub fn reset_peak(&self) {
        match &self.0 {
            Inner::Cpu => memory::reset_peak(),
            Inner::Metal(metal) => metal.pool.reset_peak(),
        }
    }

    /// Ops that this device left to the CPU so far, by name, and why; each is slower than it looks, since the CPU waits
    /// for what it reads. Empty for the CPU itself, and where all kernels run.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        self.metal_backend()
            .map_or_else(Vec::new, |metal| metal.fallbacks())
    }

    /// Who multiplies matrices on this device; `None` for the CPU.
    pub fn matrix_library(&self) -> Option<MatrixLibrary> {
        self.metal_backend().map(|metal| metal.matrix_library())
    }

    /// Says who multiplies matrices on this device from now on: the engine's own kernels, which is the default unless
    /// `BESSEMER_MATMUL` says `mps`, or Metal Performance Shaders.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no such library, as on the CPU.
    pub fn set_matrix_library(&self, library: MatrixLibrary) -> Result<()> {
        match &self.0 {
            Inner::Metal(metal) => metal.set_matrix_library(library),
            Inner::Cpu => Err(Error::Unsupported {
                op: "set_matrix_library",
                what: "a choice of who multiplies".to_owned(),
                device: self.name().to_owned(),
            }),
        }
    }

    /// Sets the time that one kernel launch may take, by an estimate that may be wrong by a factor of four; half a second
    /// at first. Products, convolutions and attention that take longer are launched in bands, with the same results. A
    /// system with a display ends work that takes about two seconds, and draws nothing meanwhile. The CPU has no such
    /// limit.
    pub fn set_max_launch_time(&self, time: Duration) {
        if let Inner::Metal(metal) = &self.0 {
            metal.stream.set_max_launch_time(time);
        }
    }

    pub(crate) fn metal_backend(&self) -> Option<&Arc<Metal>> {
        match &self.0 {
            Inner::Cpu => None,
            Inner::Metal(metal) => Some(metal),
        }
    }

    /// What the graph may fuse on this device.
    pub(crate) fn capabilities(&self) -> Capabilities {
        match &self.0 {
            Inner::Cpu => cpu::CAPABILITIES,
            Inner::Metal(metal) => metal.capabilities(),
        }
    }

    /// Submits what was recorded, without waiting for it.
    pub(crate) fn flush(&self) {
        if let Inner::Metal(metal) = &self.0 {
            metal.stream.flush();
        }
    }

    /// Whether elements of this type can be computed with.
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

#[cfg(not(target_os = "linux"))]
fn software() -> hal::Result<Device> {
    Err(hal::Error::Unavailable {
        device: "the software Metal device".to_owned(),
        reason: "it runs on Linux only".to_owned(),
    })
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Inner::Cpu, Inner::Cpu) => true,
            (Inner::Metal(a), Inner::Metal(b)) => Arc::ptr_eq(a, b),
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
        match name {
            "cpu" => Ok(Self::cpu()),
            "metal" => Self::metal(),
            "soft" => Self::software(),
            "auto" => Ok(Self::auto()),
            _ => Err(Error::Invalid {
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

impl Place {
    /// Where an op with these inputs and a result of this type is computed.
    pub(crate) fn of(
        op: &'static str,
        inputs: &[&Tensor],
        dtype: DType,
        measured_as: Option<OpClass>,
    ) -> Result<Self> {
        let mut pinned: Option<&Device> = None;
        for input in inputs.iter().filter(|t| t.node.place.pinned) {
            let device = &input.node.place.device;
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
        // Numbers of the program take any type on the way.
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
        let (mut device, is_auto) = Device::current_or_auto()?;
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
    /// Where the value is computed.
    pub fn device(&self) -> &Device {
        &self.node.place.device
    }

    /// This tensor on a device, for good: what is computed from it is computed there. Where memory is shared,
    /// nothing is copied.
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
            Ok(self.placed(Place {
                device: device.clone(),
                pinned: true,
            }))
        })
    }
}
