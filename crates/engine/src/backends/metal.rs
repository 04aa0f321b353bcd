//! The Metal backend as an object: buffers, pointers, handles, pipelines.

mod kv_cache;
mod memory;
mod names;
mod ops;
mod tensor;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bessemer_hal::{self as hal, Buffer, BufferSlice, Pipeline, Size, StorageMode};
use bytemuck::Pod;

pub use kv_cache::MetalKVCache;
pub use memory::{
    MetalMemoryPool, MetalMemoryPoolStats, PooledBuffer, compute_tensor_bytes, round_up_power_of_2,
};
pub use ops::MetalOps;
pub use tensor::{MetalTensor, MetalTensorBatch};

use super::cpu::{range, unknown};
use super::handles::Table;
use super::{Backend, BufferHandle, PoolHandle};
use crate::device::Place;
use crate::metal::stream::Batch;
use crate::metal::{self, Metal};
use crate::storage::Storage;
use crate::{DType, Device, Error, Result, Shape, Tensor};

/// Where a buffer lives, in Metal's own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MTLResourceOptions {
    /// Host and device share the memory.
    #[default]
    StorageModeShared,
    /// Only the device reaches it.
    StorageModePrivate,
    /// Two copies, kept alike where somebody says so.
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
/// Ops are recorded and handed to the device at once; nothing waits. Reading waits, for what writes the
/// memory that is read, and says if that failed. Use it through an [`Arc`].
pub struct MetalBackend {
    device: Device,
    metal: Arc<Metal>,
    /// Memory that was lent by pointer, by address.
    memory: Mutex<BTreeMap<usize, Buffer>>,
    buffers: Table<BufferHandle, Buffer>,
    pools: Table<PoolHandle, Buffer>,
    /// Who wrote each buffer last, by its number.
    writers: Mutex<HashMap<u64, Arc<Batch>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MetalBackend {
    /// Whether there is a Metal GPU: never off Apple's systems. The software device needs no GPU:
    /// [`MetalBackend::software`].
    pub fn is_available() -> bool {
        hal::Device::is_metal_available()
    }

    /// The system's Metal GPU.
    ///
    /// # Errors
    /// [`Error::Device`], where there is none.
    pub fn new() -> Result<Self> {
        Self::on(&Device::metal()?)
    }

    /// The system's Metal GPU; as [`MetalBackend::new`].
    ///
    /// # Errors
    /// [`Error::Device`], where there is none.
    pub fn initialize() -> Result<Self> {
        Self::new()
    }

    /// The software Metal device.
    ///
    /// # Errors
    /// [`Error::Device`], where it does not exist.
    pub fn software() -> Result<Self> {
        Self::on(&Device::software()?)
    }

    /// A backend on any Metal device; all that are made on one share its memory and its stream.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the CPU.
    pub fn on(device: &Device) -> Result<Self> {
        let metal = device.metal_backend().ok_or_else(|| Error::Unsupported {
            op: "MetalBackend",
            what: "Metal; `CpuBackend` is its backend".to_owned(),
            device: device.name().to_owned(),
        })?;
        Ok(Self {
            metal: Arc::clone(metal),
            device: device.clone(),
            memory: Mutex::default(),
            buffers: Table::new(),
            pools: Table::new(),
            writers: Mutex::default(),
        })
    }

    /// The device of the device layer: its name, its limits.
    pub fn metal_device(&self) -> MetalDevice<'_> {
        MetalDevice(&self.metal.device)
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        self.metal.device.name()
    }

    /// The pipeline of the engine's kernel that does what the documents' kernel of this name does (`add_kernel`,
    /// `rmsnorm_kernel`, …), compiled for `f32`: for its limits. Its arguments are the engine's own; [`MetalOps`]
    /// and [`KernelBackend`](super::kernel::KernelBackend) launch it. `None` for a name that is not known, or a
    /// kernel that cannot be compiled here.
    pub fn get_compute_pipeline(&self, name: &str) -> Option<Pipeline> {
        names::build(self, name).ok().flatten()
    }

    /// A good threadgroup for one-dimensional grids.
    pub fn optimal_thread_group_size(&self, pipeline: &Pipeline) -> Size {
        pipeline.optimal_thread_group_size()
    }

    /// A good threadgroup for two-dimensional grids.
    pub fn optimal_thread_group_size_2d(&self, pipeline: &Pipeline) -> Size {
        pipeline.optimal_thread_group_size_2d()
    }

    /// A buffer of zeros.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn create_buffer(&self, bytes: usize, mode: impl Into<StorageMode>) -> Result<Buffer> {
        const OP: &str = "create_buffer";
        let buffer = self.metal.device.buffer(bytes, mode.into());
        let buffer = buffer.inspect(|buffer| buffer.set_label(OP));
        buffer.map_err(|e| Error::device(OP, e))
    }

    /// A shared buffer of so many `f32` zeros.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn create_buffer_zeros(&self, count: usize) -> Result<Buffer> {
        self.create_buffer(count.saturating_mul(size_of::<f32>()), StorageMode::Shared)
    }

    /// A buffer with a copy of `data`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn create_buffer_with_data<T: Pod>(
        &self,
        data: &[T],
        mode: impl Into<StorageMode>,
    ) -> Result<Buffer> {
        const OP: &str = "create_buffer_with_data";
        let buffer = self.metal.device.buffer_with_data(data, mode.into());
        let buffer = buffer.inspect(|buffer| buffer.set_label(OP));
        buffer.map_err(|e| Error::device(OP, e))
    }

    /// Copies values from the beginning of a buffer, once what writes them has run. Where a copy is too
    /// much, [`Buffer::as_slice`] reads in place.
    ///
    /// # Errors
    /// [`Error::Device`]: the buffer is shorter or private, or what wrote it failed.
    pub fn copy_buffer_to_host<T: Pod>(&self, buffer: &Buffer, values: &mut [T]) -> Result<()> {
        let op = "copy_buffer_to_host";
        self.settle(op, buffer)?;
        let read = buffer.read(0, values);
        read.map_err(|e| Error::device(op, e))
    }

    /// Copies values to the beginning of a buffer, once what uses it has run.
    ///
    /// # Errors
    /// [`Error::Device`]: the buffer is shorter or private.
    pub fn copy_host_to_buffer<T: Pod>(&self, values: &[T], buffer: &Buffer) -> Result<()> {
        let op = "copy_host_to_buffer";
        let written = buffer.write(0, values);
        written.map_err(|e| Error::device(op, e))?;
        self.forget(buffer);
        Ok(())
    }

    /// Waits until all that was recorded has run.
    ///
    /// # Errors
    /// What the device says of it.
    pub fn synchronize(&self) -> Result<()> {
        self.device.synchronize()
    }

    /// Buffers that were lent by pointer and not given back.
    pub fn buffer_count(&self) -> usize {
        lock(&self.memory).len()
    }

    /// The number and the size of the memory at a pointer of [`Backend::allocate`].
    pub fn get_buffer_info(&self, pointer: *const u8) -> Option<(u64, usize)> {
        let all = lock(&self.memory);
        let buffer = all.get(&pointer.addr())?;
        Some((buffer.id(), buffer.length()))
    }

    /// Forgets who wrote a buffer: what is in it counts no more.
    fn forget(&self, buffer: &Buffer) {
        lock(&self.writers).remove(&buffer.id());
    }

    /// Waits for what wrote a buffer last, and brings it to the host's copy where there are two.
    fn settle(&self, op: &'static str, buffer: &Buffer) -> Result<()> {
        let mut outcome = match self.writer(buffer) {
            Some(batch) => self.metal.stream.wait(&batch),
            None => Ok(()),
        };
        if buffer.storage_mode() == StorageMode::Managed {
            outcome = outcome.and_then(|()| {
                let mut commands = self.metal.commands("read");
                commands.synchronize(buffer)?;
                commands.commit()?.wait().map(|_| ())
            });
        }
        outcome.map_err(|e| Error::device(op, e))
    }

    fn device_ref(&self) -> &Device {
        &self.device
    }

    fn place(&self) -> Place {
        Place {
            device: self.device.clone(),
            pinned: true,
        }
    }

    fn writer(&self, buffer: &Buffer) -> Option<Arc<Batch>> {
        lock(&self.writers).get(&buffer.id()).cloned()
    }

    /// A range of a buffer as a tensor of `f32`, or of another type.
    fn view(&self, slice: &BufferSlice, dtype: DType, shape: Shape) -> Tensor {
        let writer = self.writer(slice.buffer());
        let block = metal::Block::within(&self.metal, slice, writer);
        let storage = Storage::of_block(block);
        Tensor::from_storage_at(self.place(), dtype, shape, storage)
    }

    /// Computes a tensor into a range of a buffer, which must be long enough. Where it is computed from that
    /// very buffer, it takes a detour, so that nothing is written over before it is read.
    fn compute(&self, tensor: Tensor, target: &BufferSlice, inputs: &[&BufferSlice]) -> Result<()> {
        if inputs.iter().any(|i| i.buffer().is(target.buffer())) {
            tensor.eval()?;
        }
        // A buffer that is written as a whole is as good as new; of another one the rest is as it was.
        let whole = target.length() == target.buffer().length();
        let writer = self.writer(target.buffer()).filter(|_| !whole);
        let block = metal::Block::within(&self.metal, target, writer);
        let storage = Storage::of_block(block);
        let outcome = tensor.store(storage.clone());
        let mut writers = lock(&self.writers);
        if let Some(batch) = storage.block_on(&self.metal, "store")?.writer() {
            // Those that have run can fail no more.
            if writers.len() >= 1024 {
                writers.retain(|_, batch| !batch.has_run());
            }
            writers.insert(target.buffer().id(), batch);
        }
        outcome
    }

    /// The buffer at a pointer and the rest of it from there, which must have so many bytes.
    fn at(&self, op: &'static str, pointer: *const u8, bytes: usize) -> Result<BufferSlice> {
        let all = lock(&self.memory);
        let found = all.range(..=pointer.addr()).next_back();
        let (start, buffer) = found
            .filter(|(start, b)| !pointer.is_null() && pointer.addr() < *start + b.length())
            .ok_or_else(|| unknown(op, pointer))?;
        let range = range(op, pointer.addr() - start, bytes, buffer.length())?;
        buffer.slice(range).map_err(|e| Error::device(op, e))
    }

    fn copy_in(&self, op: &'static str, slice: &BufferSlice, bytes: &[u8]) -> Result<()> {
        // Kernels of a buffer that failed leave a note for the next reader, which a writer is not.
        let write = || slice.buffer().write(slice.offset(), bytes);
        write()
            .or_else(|_| write())
            .map_err(|e| Error::device(op, e))
    }

    fn copy_out(&self, op: &'static str, slice: &BufferSlice, bytes: &mut [u8]) -> Result<()> {
        self.settle(op, slice.buffer())?;
        let read = slice.buffer().read(slice.offset(), bytes);
        read.map_err(|e| Error::device(op, e))
    }

    fn zeros(&self, op: &'static str, bytes: usize) -> Result<Buffer> {
        let buffer = self.metal.device.buffer(bytes, StorageMode::Shared);
        let buffer = buffer.inspect(|buffer| buffer.set_label(op));
        buffer.map_err(|e| Error::device(op, e))
    }
}

impl std::fmt::Debug for MetalBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MetalBackend({})", self.device_name())
    }
}

/// What a device says of itself.
#[derive(Clone, Copy, Debug)]
pub struct MetalDevice<'a>(&'a hal::Device);

impl MetalDevice<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The largest threadgroup in each dimension.
    pub fn max_threads_per_threadgroup(&self) -> Size {
        self.0.info().limits.max_threads_per_threadgroup
    }

    /// Everything else there is to know.
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
                    self.forget(&buffer);
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
        let slice = self.at(op, to, bytes.len())?;
        self.copy_in(op, &slice, bytes)
    }

    fn copy_to_host(&self, bytes: &mut [u8], from: *const u8) -> Result<()> {
        let op = "copy_to_host";
        let slice = self.at(op, from, bytes.len())?;
        self.copy_out(op, &slice, bytes)
    }

    fn allocate_buffer(&self, bytes: usize) -> Result<BufferHandle> {
        let op = "allocate_buffer";
        self.buffers.insert(op, self.zeros(op, bytes)?)
    }

    fn free_buffer(&self, handle: BufferHandle) -> Result<()> {
        let gone = self.buffers.remove("free_buffer", handle)?;
        self.forget(&gone);
        Ok(())
    }

    fn copy_to_buffer(&self, handle: BufferHandle, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_buffer";
        let slice = piece(op, &self.buffers.get(op, handle)?, 0, bytes.len())?;
        self.copy_in(op, &slice, bytes)
    }

    fn copy_from_buffer(&self, handle: BufferHandle, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_buffer";
        let slice = piece(op, &self.buffers.get(op, handle)?, 0, bytes.len())?;
        self.copy_out(op, &slice, bytes)
    }

    fn buffer_size(&self, handle: BufferHandle) -> Result<usize> {
        Ok(self.buffers.get("buffer_size", handle)?.length())
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
        let slice = piece(op, &self.pools.get(op, handle)?, offset, bytes.len())?;
        self.copy_in(op, &slice, bytes)
    }

    fn copy_from_pool(&self, handle: PoolHandle, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_pool";
        let slice = piece(op, &self.pools.get(op, handle)?, offset, bytes.len())?;
        self.copy_out(op, &slice, bytes)
    }

    fn pool_size(&self, handle: PoolHandle) -> Result<usize> {
        Ok(self.pools.get("pool_size", handle)?.length())
    }

    fn tensor(&self, handle: BufferHandle, dtype: DType, shape: Shape) -> Result<Tensor> {
        let op = "tensor";
        let bytes = shape.count() * dtype.size();
        let slice = piece(op, &self.buffers.get(op, handle)?, 0, bytes)?;
        Ok(self.view(&slice, dtype, shape))
    }

    fn store(&self, handle: BufferHandle, tensor: Tensor) -> Result<()> {
        let op = "store";
        let bytes = tensor.check()?.count() * tensor.dtype().size();
        let slice = piece(op, &self.buffers.get(op, handle)?, 0, bytes)?;
        // What the tensor is computed from is not known here.
        self.compute(tensor, &slice, &[&slice])
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A range of a buffer.
fn piece(op: &'static str, buffer: &Buffer, offset: usize, bytes: usize) -> Result<BufferSlice> {
    let range = range(op, offset, bytes, buffer.length())?;
    buffer.slice(range).map_err(|e| Error::device(op, e))
}
