//! The Metal backend as an object: buffers, pointers, handles, pipelines.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bessemer::external::ExternalBuffers;
use bessemer::program::{BOUNDARY_BYTES, ExecutionParams, Program};
use bessemer::{DType, Device, Error, Result, Shape, Tensor};
use bessemer_hal::{self as hal, Buffer, BufferSlice, Pipeline, Size, StorageMode};
use bytemuck::Pod;

use super::cpu::{checked_range, unknown};
use super::handles::HandleTable;
use super::program_cache::ProgramCache;
use super::{Backend, BackendError, BufferHandle, PoolHandle, device_error, kernel_names};

/// Storage modes, under Metal's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MTLResourceOptions {
    /// Memory shared by host and device.
    #[default]
    StorageModeShared,
    /// Memory that only the device can access.
    StorageModePrivate,
    /// Two copies, synchronized explicitly.
    StorageModeManaged,
}

impl From<MTLResourceOptions> for StorageMode {
    fn from(options: MTLResourceOptions) -> Self {
        match options {
            MTLResourceOptions::StorageModeShared => Self::Shared,
            MTLResourceOptions::StorageModePrivate => Self::Private,
            MTLResourceOptions::StorageModeManaged => Self::Managed,
        }
    }
}

/// A Metal device with memory by buffer, by pointer and by handle.
///
/// Ops are submitted at once and do not wait. Reads wait for pending writes of the memory they read and return their
/// errors. Most of the API expects it in an [`Arc`](std::sync::Arc).
pub struct MetalBackend {
    device: Device,
    hal: hal::Device,
    external: ExternalBuffers,
    /// Memory allocated by pointer, by address.
    memory: Mutex<BTreeMap<usize, Buffer>>,
    buffers: HandleTable<BufferHandle, Buffer>,
    pools: HandleTable<PoolHandle, Buffer>,
    /// The boundary pool, once it was used.
    boundary: Mutex<Option<Buffer>>,
    programs: ProgramCache,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MetalBackend {
    /// Returns `true` if there is a Metal GPU, which only Apple's systems have. The software device needs none: see
    /// [`MetalBackend::software`].
    pub fn is_available() -> bool {
        hal::Device::is_metal_available()
    }

    /// The system's Metal GPU.
    ///
    /// # Errors
    /// [`Error::Device`], if there is none.
    pub fn new() -> Result<Self> {
        Self::on(&Device::metal()?)
    }

    /// The system's Metal GPU; as [`MetalBackend::new`].
    ///
    /// # Errors
    /// [`Error::Device`], if there is none.
    pub fn initialize() -> Result<Self> {
        Self::new()
    }

    /// The software Metal device.
    ///
    /// # Errors
    /// [`Error::Device`], if it is not available on this system.
    pub fn software() -> Result<Self> {
        Self::on(&Device::software()?)
    }

    /// A backend on any Metal device. Backends of one device share its memory pool and command stream.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the CPU.
    pub fn on(device: &Device) -> Result<Self> {
        let hal = device.hal().ok_or_else(|| Error::Unsupported {
            op: "MetalBackend",
            what: "Metal; use `CpuBackend`".to_owned(),
            device: device.name().to_owned(),
        })?;
        Ok(Self {
            hal: hal.clone(),
            external: ExternalBuffers::new(device)?,
            device: device.clone(),
            memory: Mutex::default(),
            buffers: HandleTable::new(),
            pools: HandleTable::new(),
            boundary: Mutex::default(),
            programs: ProgramCache::default(),
        })
    }

    /// The buffer of a handle: one of the table, or the boundary pool.
    fn buffer(&self, op: &'static str, handle: BufferHandle) -> Result<Buffer> {
        if handle != BufferHandle::BOUNDARY {
            return self.buffers.get(op, handle);
        }
        let mut boundary = lock(&self.boundary);
        match &*boundary {
            Some(buffer) => Ok(buffer.clone()),
            None => Ok(boundary.insert(self.zeros(op, BOUNDARY_BYTES)?).clone()),
        }
    }

    /// Name and limits of the device.
    pub fn metal_device(&self) -> MetalDevice<'_> {
        MetalDevice(&self.hal)
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        self.hal.name()
    }

    /// The pipeline of the engine's `f32` kernel for a kernel name of the documents (`add_kernel`, `rmsnorm_kernel`, …),
    /// to query its limits. Its arguments are the engine's own: launch it through
    /// [`MetalOps`](crate::minitensor::MetalOps) or [`KernelBackend`](crate::torchless::KernelBackend). `None` for an
    /// unknown name, or a kernel that does not compile on this device.
    pub fn get_compute_pipeline(&self, name: &str) -> Option<Pipeline> {
        kernel_names::build(self, name).ok().flatten()
    }

    /// Threadgroup size for one-dimensional grids.
    pub fn optimal_thread_group_size(&self, pipeline: &Pipeline) -> Size {
        pipeline.optimal_thread_group_size()
    }

    /// Threadgroup size for two-dimensional grids.
    pub fn optimal_thread_group_size_2d(&self, pipeline: &Pipeline) -> Size {
        pipeline.optimal_thread_group_size_2d()
    }

    /// Creates a zeroed buffer.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn create_buffer(&self, bytes: usize, mode: impl Into<StorageMode>) -> Result<Buffer> {
        const OP: &str = "create_buffer";
        let buffer = self.hal.buffer(bytes, mode.into());
        let buffer = buffer.inspect(|buffer| buffer.set_label(OP));
        buffer.map_err(|e| device_error(OP, e))
    }

    /// Creates a shared buffer of `count` `f32` zeros.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn create_buffer_zeros(&self, count: usize) -> Result<Buffer> {
        self.create_buffer(count.saturating_mul(size_of::<f32>()), StorageMode::Shared)
    }

    /// Creates a buffer with a copy of `data`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn create_buffer_with_data<T: Pod>(
        &self,
        data: &[T],
        mode: impl Into<StorageMode>,
    ) -> Result<Buffer> {
        const OP: &str = "create_buffer_with_data";
        let buffer = self.hal.buffer_with_data(data, mode.into());
        let buffer = buffer.inspect(|buffer| buffer.set_label(OP));
        buffer.map_err(|e| device_error(OP, e))
    }

    /// Copies values from the start of a buffer, after waiting for pending writes. [`Buffer::as_slice`] reads in place,
    /// without a copy.
    ///
    /// # Errors
    /// [`Error::Device`]: the buffer is too short or private, or a pending write failed.
    pub fn copy_buffer_to_host<T: Pod>(&self, buffer: &Buffer, values: &mut [T]) -> Result<()> {
        let op = "copy_buffer_to_host";
        self.external.wait(op, buffer)?;
        let read = buffer.read(0, values);
        read.map_err(|e| device_error(op, e))
    }

    /// Copies values to the start of a buffer, after waiting for commands that use it.
    ///
    /// # Errors
    /// [`Error::Device`]: the buffer is too short or private.
    pub fn copy_host_to_buffer<T: Pod>(&self, values: &[T], buffer: &Buffer) -> Result<()> {
        let op = "copy_host_to_buffer";
        let written = buffer.write(0, values);
        written.map_err(|e| device_error(op, e))?;
        self.external.forget(buffer);
        Ok(())
    }

    /// Waits for all submitted commands.
    ///
    /// # Errors
    /// Errors of the commands.
    pub fn synchronize(&self) -> Result<()> {
        self.device.synchronize()
    }

    /// Number of live allocations by pointer.
    pub fn buffer_count(&self) -> usize {
        lock(&self.memory).len()
    }

    /// Buffer id and size in bytes of the memory at a pointer of [`Backend::allocate`].
    pub fn get_buffer_info(&self, pointer: *const u8) -> Option<(u64, usize)> {
        let all = lock(&self.memory);
        let buffer = all.get(&pointer.addr())?;
        Some((buffer.id(), buffer.length()))
    }

    /// The engine's view of the backend's buffers.
    pub(crate) const fn external(&self) -> &ExternalBuffers {
        &self.external
    }

    /// The buffer range of `bytes` bytes at a pointer.
    pub(crate) fn slice_at(
        &self,
        op: &'static str,
        pointer: *const u8,
        bytes: usize,
    ) -> Result<BufferSlice> {
        let all = lock(&self.memory);
        let found = all.range(..=pointer.addr()).next_back();
        let (start, buffer) = found
            .filter(|(start, b)| !pointer.is_null() && pointer.addr() < *start + b.length())
            .ok_or_else(|| unknown(op, pointer))?;
        let range = checked_range(op, pointer.addr() - start, bytes, buffer.length())?;
        buffer.slice(range).map_err(|e| device_error(op, e))
    }

    fn copy_in(&self, op: &'static str, slice: &BufferSlice, bytes: &[u8]) -> Result<()> {
        let write = slice.buffer().write(slice.offset(), bytes);
        write.map_err(|e| device_error(op, e))
    }

    fn copy_out(&self, op: &'static str, slice: &BufferSlice, bytes: &mut [u8]) -> Result<()> {
        self.external.wait(op, slice.buffer())?;
        let read = slice.buffer().read(slice.offset(), bytes);
        read.map_err(|e| device_error(op, e))
    }

    fn zeros(&self, op: &'static str, bytes: usize) -> Result<Buffer> {
        let buffer = self.hal.buffer(bytes, StorageMode::Shared);
        let buffer = buffer.inspect(|buffer| buffer.set_label(op));
        buffer.map_err(|e| device_error(op, e))
    }
}

impl std::fmt::Debug for MetalBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MetalBackend({})", self.device_name())
    }
}

/// Properties of a Metal device.
#[derive(Clone, Copy, Debug)]
pub struct MetalDevice<'a>(&'a hal::Device);

impl MetalDevice<'_> {
    /// Name of the device.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Maximum threadgroup size in each dimension.
    pub fn max_threads_per_threadgroup(&self) -> Size {
        self.0.info().limits.max_threads_per_threadgroup
    }

    /// All properties.
    pub fn info(&self) -> &hal::DeviceInfo {
        self.0.info()
    }
}

impl Backend for MetalBackend {
    fn is_available() -> bool {
        Self::is_available()
    }

    fn initialize() -> Result<Self> {
        Self::new()
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, bytes: usize) -> Result<*mut u8> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let buffer = self.zeros("allocate", bytes)?;
        let pointer = buffer.contents().expect("shared memory has an address");
        lock(&self.memory).insert(pointer.addr().get(), buffer);
        Ok(pointer.as_ptr())
    }

    fn deallocate(&self, pointer: *mut u8, bytes: usize) -> Result<()> {
        if pointer.is_null() {
            return Ok(());
        }
        let mut all = lock(&self.memory);
        match all.get(&pointer.addr()) {
            Some(found) if found.length() == bytes => {
                let buffer = all.remove(&pointer.addr());
                drop(all);
                if let Some(buffer) = buffer {
                    self.external.forget(&buffer);
                }
                Ok(())
            }
            Some(found) => Err(Error::Invalid {
                op: "deallocate",
                reason: format!("{} bytes were allocated there, not {bytes}", found.length()),
            }),
            None => Err(unknown("deallocate", pointer)),
        }
    }

    fn copy_from_host(&self, to: *mut u8, bytes: &[u8]) -> Result<()> {
        let op = "copy_from_host";
        let slice = self.slice_at(op, to, bytes.len())?;
        self.copy_in(op, &slice, bytes)
    }

    fn copy_to_host(&self, bytes: &mut [u8], from: *const u8) -> Result<()> {
        let op = "copy_to_host";
        let slice = self.slice_at(op, from, bytes.len())?;
        self.copy_out(op, &slice, bytes)
    }

    fn allocate_buffer(&self, bytes: usize) -> Result<BufferHandle> {
        let op = "allocate_buffer";
        self.buffers.insert(op, self.zeros(op, bytes)?)
    }

    fn free_buffer(&self, handle: BufferHandle) -> Result<()> {
        let gone = self.buffers.remove("free_buffer", handle)?;
        self.external.forget(&gone);
        Ok(())
    }

    fn copy_to_buffer(&self, handle: BufferHandle, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_buffer";
        let slice = slice_of(op, &self.buffer(op, handle)?, 0, bytes.len())?;
        self.copy_in(op, &slice, bytes)
    }

    fn copy_from_buffer(&self, handle: BufferHandle, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_buffer";
        let slice = slice_of(op, &self.buffer(op, handle)?, 0, bytes.len())?;
        self.copy_out(op, &slice, bytes)
    }

    fn buffer_size(&self, handle: BufferHandle) -> Result<usize> {
        Ok(self.buffer("buffer_size", handle)?.length())
    }

    fn allocate_pool(&self, bytes: usize) -> Result<PoolHandle> {
        let op = "allocate_pool";
        self.pools.insert(op, self.zeros(op, bytes)?)
    }

    fn free_pool(&self, handle: PoolHandle) -> Result<()> {
        self.pools.remove("free_pool", handle).map(drop)
    }

    fn copy_to_pool(&self, handle: PoolHandle, offset: usize, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_pool";
        let slice = slice_of(op, &self.pools.get(op, handle)?, offset, bytes.len())?;
        self.copy_in(op, &slice, bytes)
    }

    fn copy_from_pool(&self, handle: PoolHandle, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_pool";
        let slice = slice_of(op, &self.pools.get(op, handle)?, offset, bytes.len())?;
        self.copy_out(op, &slice, bytes)
    }

    fn pool_size(&self, handle: PoolHandle) -> Result<usize> {
        Ok(self.pools.get("pool_size", handle)?.length())
    }

    fn tensor(&self, handle: BufferHandle, dtype: DType, shape: Shape) -> Result<Tensor> {
        let op = "tensor";
        let bytes = shape.count() * dtype.size();
        let slice = slice_of(op, &self.buffer(op, handle)?, 0, bytes)?;
        self.external.tensor(&slice, dtype, shape)
    }

    fn store(&self, handle: BufferHandle, tensor: Tensor) -> Result<()> {
        let op = "store";
        let bytes = tensor.check()?.count() * tensor.dtype().size();
        let slice = slice_of(op, &self.buffer(op, handle)?, 0, bytes)?;
        // The tensor may be computed from this buffer.
        self.external.store(tensor, &slice, &[&slice])
    }

    fn execute_program_with_params(
        &self,
        program: &Program,
        params: &ExecutionParams,
    ) -> Result<(), BackendError> {
        let compiled = self.programs.get(program, &self.device)?;
        let op = "execute_program";
        let slice = |buffer: &Buffer| slice_of(op, buffer, 0, buffer.length());
        let mut buffers = self.buffers.all();
        let boundary = self.buffer(op, BufferHandle::BOUNDARY)?;
        buffers.push((BufferHandle::BOUNDARY.id(), boundary));
        let slices = |all: Vec<(u64, Buffer)>| -> Result<Vec<_>> {
            let all = all.iter();
            all.map(|(handle, b)| Ok((*handle, slice(b)?))).collect()
        };
        let (buffers, pools) = (slices(buffers)?, slices(self.pools.all())?);
        let run = self
            .external
            .run_program(&compiled, params, &buffers, &pools);
        for pool in run.freed_pools {
            self.free_pool(PoolHandle::from(pool))?;
        }
        Ok(run.outcome?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A checked range of a buffer.
pub(crate) fn slice_of(
    op: &'static str,
    buffer: &Buffer,
    offset: usize,
    bytes: usize,
) -> Result<BufferSlice> {
    let range = checked_range(op, offset, bytes, buffer.length())?;
    buffer.slice(range).map_err(|e| device_error(op, e))
}
