//! A device that records commands and runs nothing: for tests of schedules, launch counts and memory plans.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::access::Access;
use crate::commands::traffic;
use crate::device::Device;
use crate::driver::{self, Command, CommandList, HostMemory, Resource};
use crate::error::{Error, Result};
use crate::info::{DeviceInfo, DeviceKind, Family, Limits};
use crate::library::{CompileOptions, FunctionConstants};
use crate::matrix::MatrixElement;
use crate::pipeline::PipelineInfo;
use crate::size::Size;
use crate::storage::StorageMode;
use crate::submission::{Completed, Completion};

/// Makes a recording device, with the limits of a GPU family.
pub fn device(family: Family) -> Device {
    device_with_lanes(family, family.limits(0).simd_width)
}

/// As [`device`], with SIMD-groups of another size, as some GPUs of Intel Macs have.
pub fn device_with_lanes(family: Family, lanes: usize) -> Device {
    Device::from_driver(Arc::new(Noop::new(family, lanes)))
}

/// Everything that a recording device has recorded.
///
/// ```
/// use bessemer_hal::{CompileOptions, Family, StorageMode, noop};
///
/// let device = noop::device(Family::Apple7);
/// let add = device.library_contained("", &CompileOptions::default())?.pipeline("add")?;
/// let buffer = device.buffer(1024, StorageMode::Shared)?;
/// let mut commands = device.commands();
/// commands.dispatch(&add).read_write(0, &buffer).threads(256, 256)?;
/// commands.dispatch(&add).read_write(0, &buffer).threads(256, 256)?;
/// commands.commit()?.wait()?;
///
/// let counts = noop::record(&device).expect("a recording device").counts;
/// assert_eq!((counts.dispatches, counts.barriers, counts.command_buffers), (2, 1, 1));
/// # Ok::<(), bessemer_hal::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Totals.
    pub counts: Counts,
    /// Every command in order.
    pub events: Vec<Event>,
}

/// Totals of a [`Record`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernel launches.
    pub dispatches: u64,
    /// Matrix products by the device's library.
    pub products: u64,
    /// Barriers between commands.
    pub barriers: u64,
    /// Copies.
    pub copies: u64,
    /// Fills.
    pub fills: u64,
    /// Committed command lists.
    pub command_buffers: u64,
    /// Buffers allocated.
    pub allocations: u64,
    /// Bytes in them.
    pub allocated_bytes: u64,
    /// Bytes that commands may read according to their bindings.
    pub bytes_read: u64,
    /// Bytes that commands may write according to their bindings.
    pub bytes_written: u64,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A buffer was allocated.
    Allocate {
        /// Bytes.
        bytes: usize,
        /// Storage mode.
        mode: StorageMode,
    },
    /// A buffer was given a name.
    LabelBuffer(String),
    /// A kernel was launched.
    Dispatch {
        /// Kernel name.
        kernel: String,
        /// Label of the launch.
        label: Option<String>,
        /// Threads.
        grid: Size,
        /// Threads in a threadgroup.
        threadgroup: Size,
        /// Index, bytes and access of each binding.
        bindings: Vec<(u32, usize, Access)>,
    },
    /// Matrices were multiplied.
    Product {
        /// Element type.
        element: MatrixElement,
        /// Rows and columns of the result, and the inner dimension.
        sizes: [usize; 3],
        /// Whether the factors are transposed.
        transposed: [bool; 2],
    },
    /// Bytes were copied.
    Copy {
        /// Their number.
        bytes: usize,
    },
    /// Bytes were set.
    Fill {
        /// Their number.
        bytes: usize,
    },
    /// A managed buffer was copied to the host.
    Synchronize,
    /// A barrier.
    Barrier,
    /// A debug group was opened.
    PushGroup(String),
    /// A debug group was closed.
    PopGroup,
    /// A command list was committed.
    Commit {
        /// Its label.
        label: Option<String>,
    },
}

/// Returns what `device` has recorded so far; `None` if it is not a recording device.
pub fn record(device: &Device) -> Option<Record> {
    Some(device.driver::<Noop>()?.lock().clone())
}

/// Clears the record of `device`.
pub fn clear(device: &Device) {
    if let Some(noop) = device.driver::<Noop>() {
        *noop.lock() = Record::default();
    }
}

/// Number of matrix products that `device` has prepared so far.
pub fn prepared_products(device: &Device) -> Option<u64> {
    Some(device.driver::<Noop>()?.prepared.load(Ordering::Relaxed))
}

/// Number of guards that currently keep the memory of `device` resident.
pub fn resident_guards(device: &Device) -> Option<usize> {
    Some(Arc::strong_count(&device.driver::<Noop>()?.resident) - 1)
}

/// Makes the library of `device` refuse matrix products from now on, as Apple's may.
pub fn refuse_products(device: &Device) {
    if let Some(noop) = device.driver::<Noop>() {
        noop.refuses.store(true, Ordering::Relaxed);
    }
}

/// Stand-in for the library's objects of a matrix product.
struct Prepared;

/// The recording driver.
#[derive(Debug)]
pub struct Noop {
    info: DeviceInfo,
    /// Whether products are refused.
    refuses: AtomicBool,
    prepared: AtomicU64,
    /// Its reference count is one more than the number of residency guards.
    resident: Arc<()>,
    record: Arc<Mutex<Record>>,
}

impl Noop {
    fn new(family: Family, lanes: usize) -> Self {
        // Far above the buffers of any test and far below what could overflow a sum of lengths.
        let max_buffer_length = 1 << 40;
        let limits = Limits {
            simd_width: lanes,
            ..family.limits(max_buffer_length)
        };
        Self {
            refuses: AtomicBool::new(false),
            prepared: AtomicU64::new(0),
            resident: Arc::default(),
            info: DeviceInfo {
                name: "Bessemer recording device".to_owned(),
                kind: DeviceKind::Noop,
                family,
                unified_memory: true,
                recommended_working_set: max_buffer_length,
                registry_id: 0,
                headless: true,
                low_power: false,
                removable: false,
                limits,
            },
            record: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }
}

impl driver::Device for Noop {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(
        &self,
        length: usize,
        mode: StorageMode,
        _: driver::Contents,
    ) -> Result<Arc<dyn driver::Buffer>> {
        // The limit of a buffer is far beyond the memory of most machines.
        let memory = match mode {
            StorageMode::Private => None,
            _ => Some(Memory::zeroed(length).ok_or_else(|| Error::OutOfMemory {
                device: self.info.name.clone(),
                requested: length,
                in_use: self.lock().counts.allocated_bytes as usize,
                limit: self.info.recommended_working_set,
            })?),
        };
        let mut record = self.lock();
        record.counts.allocations += 1;
        record.counts.allocated_bytes += length as u64;
        record.events.push(Event::Allocate {
            bytes: length,
            mode,
        });
        Ok(Arc::new(Buffer {
            memory,
            record: self.record.clone(),
        }))
    }

    fn adopt(&self, memory: HostMemory) -> Result<Arc<dyn driver::Buffer>> {
        Ok(Arc::new(Buffer {
            memory: Some(Memory::Adopted(memory)),
            record: self.record.clone(),
        }))
    }

    fn compile(&self, _: &str, _: &CompileOptions) -> Result<Arc<dyn driver::Library>> {
        Ok(Arc::new(Library(self.info.limits)))
    }

    fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        // A product must be prepared, as Apple's driver requires.
        let is_unprepared = |command: &Command| match command {
            Command::Product(product) => {
                !product.objects.as_ref().is_some_and(|o| o.is::<Prepared>())
            }
            _ => false,
        };
        if list.commands.iter().any(is_unprepared) {
            return Err(driver::refused_product(&self.info.name));
        }
        let mut record = self.lock();
        for command in &list.commands {
            let (read, written) = traffic(command);
            record.counts.bytes_read += read;
            record.counts.bytes_written += written;
            let event = Event::from(command);
            match event {
                Event::Dispatch { .. } => record.counts.dispatches += 1,
                Event::Product { .. } => record.counts.products += 1,
                Event::Copy { .. } => record.counts.copies += 1,
                Event::Fill { .. } => record.counts.fills += 1,
                Event::Barrier => record.counts.barriers += 1,
                _ => {}
            }
            record.events.push(event);
        }
        record.counts.command_buffers += 1;
        record.events.push(Event::Commit {
            label: list.label.map(Cow::into_owned),
        });
        drop(record);
        completion.finish(Ok(Completed {
            command_buffers: 1,
            ..Completed::default()
        }));
        Ok(())
    }

    fn start_capture(&self, _: &Path) -> Result<()> {
        Err(Error::Unsupported {
            what: "GPU capture".to_owned(),
            device: self.info.name.clone(),
        })
    }

    fn stop_capture(&self) {}

    fn contains_kernels(&self) -> bool {
        true
    }

    fn keep_resident(&self) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Box::new(self.resident.clone()))
    }

    fn multiplies_matrices(&self) -> bool {
        true
    }

    fn prepare(&self, _: &driver::ProductCommand) -> Result<Option<driver::ProductObjects>> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(driver::refused_product(&self.info.name));
        }
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Arc::new(Prepared)))
    }
}

impl From<&Command> for Event {
    fn from(command: &Command) -> Self {
        match command {
            Command::Dispatch(dispatch) => Self::Dispatch {
                kernel: dispatch.pipeline.info().name.clone(),
                label: dispatch.label.clone().map(Cow::into_owned),
                grid: dispatch.grid,
                threadgroup: dispatch.threadgroup,
                bindings: dispatch
                    .bindings
                    .iter()
                    .map(|b| match &b.resource {
                        Resource::Buffer { region, access } => (b.index, region.length, *access),
                        Resource::Bytes(bytes) => (b.index, bytes.len(), Access::Read),
                    })
                    .collect(),
            },
            Command::Product(product) => Self::Product {
                element: product.element,
                sizes: [product.result.rows, product.result.columns, product.depth()],
                transposed: [product.transpose_left, product.transpose_right],
            },
            Command::Copy { source, .. } => Self::Copy {
                bytes: source.length,
            },
            Command::Fill { target, .. } => Self::Fill {
                bytes: target.length,
            },
            Command::Synchronize { .. } => Self::Synchronize,
            Command::Barrier => Self::Barrier,
            Command::PushGroup(label) => Self::PushGroup(label.clone()),
            Command::PopGroup => Self::PopGroup,
        }
    }
}

#[derive(Debug)]
struct Buffer {
    memory: Option<Memory>,
    record: Arc<Mutex<Record>>,
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum bytes of a buffer that the host sees. Systems that promise more memory than they have would be brought down by
/// a larger one.
const MAX_HOST_BYTES: usize = 16 << 30;

/// Host memory behind a buffer. 16-byte words keep it aligned for every vector type of Metal.
#[derive(Debug)]
enum Memory {
    Owned(Box<[std::cell::UnsafeCell<u128>]>),
    Adopted(HostMemory),
}

// SAFETY: the bytes are accessed only through the front's slices, whose rules exclude conflicting access.
#[expect(unsafe_code, reason = "shared device memory; the front guards it")]
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of zeros; `None` if there is not enough.
    fn zeroed(length: usize) -> Option<Self> {
        if length > MAX_HOST_BYTES {
            return None;
        }
        let count = length.div_ceil(16);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, || std::cell::UnsafeCell::new(0));
        Some(Self::Owned(words.into_boxed_slice()))
    }
}

impl driver::Buffer for Buffer {
    fn contents(&self) -> Option<NonNull<u8>> {
        match self.memory.as_ref()? {
            Memory::Owned(words) => NonNull::new(words.as_ptr().cast_mut().cast()),
            Memory::Adopted(memory) => Some(memory.pointer),
        }
    }

    fn did_modify_range(&self, _: Range<usize>) {}

    fn set_label(&self, label: &str) {
        let event = Event::LabelBuffer(label.to_owned());
        lock(&self.record).events.push(event);
    }
}

#[derive(Debug)]
struct Library(Limits);

impl driver::Library for Library {
    fn function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn accepts_any_name(&self) -> bool {
        true
    }

    fn pipeline(&self, name: &str, _: &FunctionConstants) -> Result<Arc<dyn driver::Pipeline>> {
        Ok(Arc::new(Pipeline(PipelineInfo {
            name: name.to_owned(),
            max_total_threads_per_threadgroup: self.0.max_total_threads_per_threadgroup,
            thread_execution_width: self.0.simd_width,
            static_threadgroup_memory: 0,
            arguments: None,
        })))
    }
}

#[derive(Debug)]
struct Pipeline(PipelineInfo);

impl driver::Pipeline for Pipeline {
    fn info(&self) -> &PipelineInfo {
        &self.0
    }
}
