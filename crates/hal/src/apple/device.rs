//! GPUs.
#![expect(
    unsafe_code,
    reason = "links a framework that Metal depends on and uses the process's capture manager"
)]

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex};

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2::{available, sel};
use objc2_foundation::{NSProcessInfo, NSURL};
use objc2_metal::{
    MTLCaptureDescriptor, MTLCaptureDestination, MTLCaptureManager, MTLCopyAllDevices,
    MTLCreateSystemDefaultDevice, MTLDevice, MTLGPUFamily,
};

use super::buffer::{self, Buffer};
use super::cache::{Directory, is_instrumented};
use super::library::Library;
use super::matrix;
use super::queue::Queue;
use super::residency::Residency;
use crate::device::Device as Front;
use crate::driver::{self, CommandList, Contents, HostMemory, ProductObjects};
use crate::env;
use crate::error::{Error, Result};
use crate::info::{DeviceInfo, DeviceKind, Family, Limits};
use crate::library::CompileOptions;
use crate::size::Size;
use crate::storage::StorageMode;
use crate::submission::Completion;

// Metal finds the default device of a command-line program only if CoreGraphics is loaded.
#[cfg(target_os = "macos")]
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// The GPU the system prefers.
///
/// # Errors
/// [`Error::Unavailable`] when the process can reach no GPU, or only one that is too old.
pub fn system_default() -> Result<Front> {
    autoreleasepool(|_| {
        let raw = MTLCreateSystemDefaultDevice().ok_or_else(|| Error::Unavailable {
            device: "the default Metal device".to_owned(),
            reason: "the system offers this process no GPU".to_owned(),
        })?;
        Ok(Front::from_driver(Arc::new(Device::new(raw)?)))
    })
}

/// Every GPU this driver can use: several on some Macs, one on iOS, none in some virtual machines.
pub fn all() -> Vec<Front> {
    autoreleasepool(|_| {
        MTLCopyAllDevices()
            .into_iter()
            .filter_map(|raw| Device::new(raw).ok())
            .map(|device| Front::from_driver(Arc::new(device)))
            .collect()
    })
}

/// A GPU.
#[derive(Debug)]
pub(super) struct Device {
    raw: Retained<ProtocolObject<dyn MTLDevice>>,
    info: DeviceInfo,
    queue: Queue,
    residency: Option<Arc<Residency>>,
    archives: Option<Directory>,
    system: String,
    /// Whether Metal Performance Shaders support the device.
    multiplies_matrices: bool,
}

impl Device {
    fn new(raw: Retained<ProtocolObject<dyn MTLDevice>>) -> Result<Self> {
        let unavailable = |reason: &str| Error::Unavailable {
            device: raw.name().to_string(),
            reason: reason.to_owned(),
        };
        if !available!(macos = 14.0, ios = 17.0, ..) {
            return Err(unavailable(
                "Bessemer needs macOS 14 or iOS 17: the kernels use `bfloat`, which MSL has from version 3.1",
            ));
        }
        let family = family(&raw)
            .ok_or_else(|| unavailable("GPUs older than the family Apple7 are not supported"))?;
        let info = describe(&raw, family);
        // Metal compiles two functions at a time by default. iOS has no such setting.
        if raw.respondsToSelector(sel!(setShouldMaximizeConcurrentCompilation:)) {
            raw.setShouldMaximizeConcurrentCompilation(true);
        }
        let residency = Residency::new(&raw, info.recommended_working_set).map(Arc::new);
        let queue = Queue::new(&raw, residency.clone())
            .ok_or_else(|| unavailable("it cannot create a command queue"))?;
        Ok(Self {
            info,
            multiplies_matrices: matrix::supports(&raw),
            queue,
            residency,
            archives: archives()?,
            system: NSProcessInfo::processInfo()
                .operatingSystemVersionString()
                .to_string(),
            raw,
        })
    }

    fn unsupported(&self, what: String) -> Error {
        Error::Unsupported {
            what,
            device: self.info.name.clone(),
        }
    }

    fn out_of_memory(&self, requested: usize) -> Error {
        Error::OutOfMemory {
            device: self.info.name.clone(),
            requested,
            in_use: self.raw.currentAllocatedSize(),
            limit: self.info.recommended_working_set,
        }
    }
}

/// The newest supported family that the device belongs to.
fn family(raw: &ProtocolObject<dyn MTLDevice>) -> Option<Family> {
    let table = [
        (MTLGPUFamily::Apple10, Family::Apple10),
        (MTLGPUFamily::Apple9, Family::Apple9),
        (MTLGPUFamily::Apple8, Family::Apple8),
        (MTLGPUFamily::Apple7, Family::Apple7),
        (MTLGPUFamily::Mac2, Family::Mac2),
    ];
    table
        .into_iter()
        .find(|(metal, _)| raw.supportsFamily(*metal))
        .map(|(_, family)| family)
}

fn describe(raw: &ProtocolObject<dyn MTLDevice>, family: Family) -> DeviceInfo {
    let max_threads = raw.maxThreadsPerThreadgroup();
    let max_buffer_length = raw.maxBufferLength();
    let limits = Limits {
        max_threads_per_threadgroup: Size::new(
            max_threads.width,
            max_threads.height,
            max_threads.depth,
        ),
        max_threadgroup_memory: raw.maxThreadgroupMemoryLength(),
        ..family.limits(max_buffer_length)
    };
    // iOS got these later than macOS, or not at all.
    let working_set = if raw.respondsToSelector(sel!(recommendedMaxWorkingSetSize)) {
        raw.recommendedMaxWorkingSetSize()
    } else {
        NSProcessInfo::processInfo().physicalMemory() / 2
    };
    let registry_id = if raw.respondsToSelector(sel!(registryID)) {
        raw.registryID()
    } else {
        0
    };
    let mac = cfg!(target_os = "macos");
    DeviceInfo {
        name: raw.name().to_string(),
        kind: DeviceKind::Apple,
        family,
        unified_memory: raw.hasUnifiedMemory(),
        recommended_working_set: usize::try_from(working_set).unwrap_or(usize::MAX),
        registry_id,
        headless: mac && raw.isHeadless(),
        low_power: mac && raw.isLowPower(),
        removable: mac && raw.isRemovable(),
        limits,
    }
}

/// The pipeline cache; `None` without a cache directory, with a size limit of 0, or when Metal instruments kernels.
fn archives() -> Result<Option<Directory>> {
    const DEFAULT_ARCHIVE_BYTES: u64 = 1 << 30;
    let limit = env::KERNEL_CACHE_MB
        .megabytes()?
        .unwrap_or(DEFAULT_ARCHIVE_BYTES);
    if limit == 0 || is_instrumented(|name| std::env::var_os(name)) {
        return Ok(None);
    }
    Ok(env::cache_dir().map(|dir| Directory::new(dir.join("apple"), limit)))
}

impl driver::Device for Device {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(
        &self,
        length: usize,
        mode: StorageMode,
        contents: Contents,
    ) -> Result<Arc<dyn driver::Buffer>> {
        let Some(options) = buffer::options(mode) else {
            return Err(self.unsupported(format!("{mode} storage")));
        };
        autoreleasepool(|_| {
            let residency = self.residency.as_ref();
            let buffer = Buffer::allocate(&self.raw, length, options, contents, residency);
            Ok(Arc::new(buffer.ok_or_else(|| self.out_of_memory(length))?) as _)
        })
    }

    fn adopt(&self, memory: HostMemory) -> Result<Arc<dyn driver::Buffer>> {
        let length = memory.length;
        autoreleasepool(|_| {
            let buffer = Buffer::adopt(&self.raw, memory, self.residency.as_ref());
            Ok(Arc::new(buffer.ok_or_else(|| self.out_of_memory(length))?) as _)
        })
    }

    fn compile(&self, source: &str, options: &CompileOptions) -> Result<Arc<dyn driver::Library>> {
        if !options.include_dirs.is_empty() {
            return Err(self.unsupported("a directory for `#include`".to_owned()));
        }
        autoreleasepool(|_| {
            let archives = self.archives.clone();
            let library = Library::compile(&self.raw, source, options, archives, &self.system)?;
            Ok(Arc::new(library) as _)
        })
    }

    fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        autoreleasepool(|_| self.queue.submit(list, completion))
    }

    fn keep_resident(&self) -> Option<Box<dyn Any + Send + Sync>> {
        let keep_alive = self.residency.as_ref()?.keep_alive()?;
        Some(Box::new(keep_alive))
    }

    fn multiplies_matrices(&self) -> bool {
        self.multiplies_matrices
    }

    fn prepare(&self, product: &driver::ProductCommand) -> Result<Option<ProductObjects>> {
        let prepared = autoreleasepool(|_| matrix::prepare(&self.raw, product))?;
        Ok(Some(Arc::new(Mutex::new(prepared))))
    }

    fn start_capture(&self, path: &Path) -> Result<()> {
        autoreleasepool(|_| {
            // SAFETY: the manager lives as long as the process, and Metal allows its use from any thread.
            let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
            if !manager.supportsDestination(MTLCaptureDestination::GPUTraceDocument) {
                return Err(self.unsupported(
                    "GPU capture without METAL_CAPTURE_ENABLED=1 in the environment".to_owned(),
                ));
            }
            let url = NSURL::from_file_path(path).ok_or_else(|| {
                self.unsupported(format!("GPU capture into `{}`", path.display()))
            })?;
            let descriptor = MTLCaptureDescriptor::new();
            descriptor.set_capture_device(&self.raw);
            descriptor.setDestination(MTLCaptureDestination::GPUTraceDocument);
            descriptor.setOutputURL(Some(&url));
            manager
                .startCaptureWithDescriptor_error(&descriptor)
                .map_err(|error| {
                    self.unsupported(format!(
                        "GPU capture into `{}` ({})",
                        path.display(),
                        error.localizedDescription()
                    ))
                })
        })
    }

    fn stop_capture(&self) {
        autoreleasepool(|_| {
            // SAFETY: as in `start_capture`.
            let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
            if manager.isCapturing() {
                manager.stopCapture();
            }
        });
    }
}
