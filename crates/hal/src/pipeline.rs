//! Compiled kernels.

use std::sync::Arc;

use crate::access::Access;
use crate::device::DeviceShared;
use crate::driver;
use crate::launch::LaunchBuilder;
use crate::size::Size;

/// A kernel compiled for a device.
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) raw: Arc<dyn driver::Pipeline>,
}

/// Properties of a compiled kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineInfo {
    /// Kernel name.
    pub name: String,
    /// Maximum threads in a threadgroup of this kernel.
    pub max_total_threads_per_threadgroup: usize,
    /// Lanes of a SIMD-group.
    pub thread_execution_width: usize,
    /// Bytes of threadgroup memory that the kernel declares itself.
    pub static_threadgroup_memory: usize,
    /// Buffer and threadgroup memory arguments; `None` if the driver has not read the kernel.
    pub arguments: Option<Vec<Argument>>,
}

/// One argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name in the source.
    pub name: String,
    /// Kind and index of the binding.
    pub kind: ArgumentKind,
    /// The kernel's access.
    pub access: Access,
    /// Minimum bytes to bind; 0 when the kernel decides at run time.
    pub min_bytes: usize,
    /// False when a function constant disables the argument: nothing needs to be bound then.
    pub active: bool,
}

/// Kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A buffer or inline bytes at this index.
    Buffer(u32),
    /// Threadgroup memory at this index, whose length the host sets.
    ThreadgroupMemory(u32),
}

impl Pipeline {
    pub(crate) fn new(device: Arc<DeviceShared>, raw: Arc<dyn driver::Pipeline>) -> Self {
        Self { device, raw }
    }

    /// Starts a launch that can be recorded many times: bind arguments, then give the grid.
    ///
    /// ```no_run
    /// # fn f(commands: &mut bessemer_hal::Commands, scale: &bessemer_hal::Pipeline, values: &bessemer_hal::Buffer)
    /// # -> bessemer_hal::Result<()> {
    /// let launch = scale.launch().read_write(0, values).bytes(1, &0.5_f32).threads(1024, 256)?;
    /// for _ in 0..10 {
    ///     commands.record(&launch)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn launch(&self) -> LaunchBuilder {
        LaunchBuilder::new(self.clone())
    }

    /// Kernel name.
    pub fn name(&self) -> &str {
        &self.raw.info().name
    }

    /// Maximum threads in a threadgroup of this kernel: its register use may allow fewer than the device does.
    pub fn max_total_threads_per_threadgroup(&self) -> usize {
        self.raw.info().max_total_threads_per_threadgroup
    }

    /// Lanes of a SIMD-group.
    pub fn thread_execution_width(&self) -> usize {
        self.raw.info().thread_execution_width
    }

    /// Bytes of threadgroup memory the kernel declares itself.
    pub fn static_threadgroup_memory_length(&self) -> usize {
        self.raw.info().static_threadgroup_memory
    }

    /// Buffer and threadgroup memory arguments; empty if the driver has not read the kernel.
    pub fn arguments(&self) -> &[Argument] {
        self.raw.info().arguments.as_deref().unwrap_or_default()
    }

    /// A threadgroup size for one-dimensional grids.
    ///
    /// Whole SIMD-groups, so that no lane idles; eight of them (256 threads) if the kernel allows it.
    /// That is enough for a core to hide memory latency with several groups in flight, and few enough
    /// that a kernel with many registers still fits and that the last, partly empty group of a grid
    /// wastes little. Neighbouring threads access neighbouring elements, so that accesses coalesce.
    pub fn optimal_thread_group_size(&self) -> Size {
        let width = self.thread_execution_width().max(1);
        let max_threads = self.max_total_threads_per_threadgroup().max(1);
        if max_threads < width {
            return Size::x(max_threads);
        }
        Size::x((max_threads / width * width).min(8 * width))
    }

    /// A threadgroup size for two-dimensional grids: one SIMD-group wide, so that a row of threads reads a
    /// row of memory, and as high as the one-dimensional size has SIMD-groups.
    pub fn optimal_thread_group_size_2d(&self) -> Size {
        let width = self.thread_execution_width().max(1);
        let threads = self.optimal_thread_group_size().width;
        Size::xy(threads.min(width), (threads / width).max(1))
    }
}
