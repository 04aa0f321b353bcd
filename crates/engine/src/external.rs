//! Tensors in memory that the caller owns: host buffers and Metal buffers.
//!
//! Most programs need only [`Tensor`]. This module is for layers above the engine that manage memory themselves, such
//! as the compatibility APIs of `bessemer-compat`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::mem;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bessemer_hal::{Buffer, BufferSlice, Pipeline, StorageMode};

use crate::device::Placement;
use crate::metal::stream::Batch;
use crate::metal::{self, Metal};
use crate::program::{self, CompiledProgram, DeviceMemory, ExecutionParams};
use crate::storage::Storage;
use crate::{DType, Device, Error, Result, Shape, Tensor, graph};

/// From this many tracked writers on, those that have finished are dropped.
const MAX_TRACKED_WRITERS: usize = 1024;

/// Reads and writes Metal buffers of the caller as tensors, without copies.
///
/// Stores are recorded in the device's command stream and do not wait. The last writer of each buffer is remembered,
/// so that [`ExternalBuffers::wait`] can wait for it and report its error.
///
/// ```
/// use bessemer::external::ExternalBuffers;
/// use bessemer::{DType, Device, Shape};
/// use bessemer_hal::StorageMode;
///
/// # #[cfg(target_os = "linux")] {
/// let device = Device::software()?;
/// let buffers = ExternalBuffers::new(&device)?;
/// let hal = device.hal().expect("a Metal device");
/// let x = hal.buffer_with_data(&[1.0_f32, 2.0], StorageMode::Shared).unwrap();
/// let x = x.slice(0..8).unwrap();
/// let t = buffers.tensor(&x, DType::F32, Shape::new("x", &[2])?)?;
/// buffers.store(&t + 1.0, &x, &[&x])?;
/// buffers.wait("x", x.buffer())?;
/// assert_eq!(x.buffer().to_vec::<f32>().unwrap(), [2.0, 3.0]);
/// # }
/// # Ok::<(), bessemer::Error>(())
/// ```
pub struct ExternalBuffers {
    device: Device,
    metal: Arc<Metal>,
    /// The last batch that wrote each buffer, by buffer id.
    writers: Mutex<HashMap<u64, Arc<Batch>>>,
}

impl ExternalBuffers {
    /// Buffers of a Metal device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the CPU.
    pub fn new(device: &Device) -> Result<Self> {
        let metal = device.metal_backend().ok_or_else(|| Error::Unsupported {
            op: "ExternalBuffers",
            what: "Metal buffers; use `HostBuffer`".to_owned(),
            device: device.name().to_owned(),
        })?;
        Ok(Self {
            device: device.clone(),
            metal: Arc::clone(metal),
            writers: Mutex::default(),
        })
    }

    fn writers(&self) -> MutexGuard<'_, HashMap<u64, Arc<Batch>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self, buffer: &Buffer) -> Option<Arc<Batch>> {
        self.writers().get(&buffer.id()).cloned()
    }

    /// The start of a range as a tensor, in place.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is too short, or not aligned to the type.
    pub fn tensor(&self, slice: &BufferSlice, dtype: DType, shape: Shape) -> Result<Tensor> {
        expect_bytes("tensor", slice, dtype, &shape)?;
        let writer = self.writer(slice.buffer());
        let block = metal::Block::within(&self.metal, slice, writer);
        let placement = Placement {
            device: self.device.clone(),
            pinned: true,
        };
        let storage = Storage::of_block(block);
        Ok(Tensor::from_storage_at(placement, dtype, shape, storage))
    }

    /// Computes a tensor into the start of a range. `inputs` are the ranges that the tensor is computed from: if one
    /// shares the target's buffer, the result goes through a temporary, so that nothing is overwritten before it is
    /// read.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is too short, or not aligned to the type; errors of the evaluation.
    pub fn store(
        &self,
        tensor: Tensor,
        target: &BufferSlice,
        inputs: &[&BufferSlice],
    ) -> Result<()> {
        expect_bytes("store", target, tensor.check()?.dtype(), tensor.shape())?;
        if inputs.iter().any(|i| i.buffer().is(target.buffer())) {
            tensor.eval()?;
        }
        // A store of the whole buffer replaces its contents; otherwise the rest still depends on the last writer.
        let whole = target.length() == target.buffer().length();
        let writer = self.writer(target.buffer()).filter(|_| !whole);
        let block = metal::Block::within(&self.metal, target, writer);
        let storage = Storage::of_block(block);
        let outcome = tensor.store(storage.clone());
        let mut writers = self.writers();
        if let Some(batch) = storage.block_on(&self.metal, "store")?.writer() {
            if writers.len() >= MAX_TRACKED_WRITERS {
                writers.retain(|_, batch| !batch.has_run());
            }
            writers.insert(target.buffer().id(), batch);
        }
        outcome
    }

    /// Runs a program on buffers and pools of the caller, by handle, and waits for it.
    pub fn run_program(
        &self,
        program: &CompiledProgram,
        params: &ExecutionParams,
        buffers: &[(u64, BufferSlice)],
        pools: &[(u64, BufferSlice)],
    ) -> ProgramRun {
        let storages = |slices: &[(u64, BufferSlice)]| {
            let storage = |(handle, slice): &(u64, BufferSlice)| {
                let writer = self.writer(slice.buffer());
                let block = metal::Block::within(&self.metal, slice, writer);
                (*handle, Storage::of_block(block))
            };
            slices.iter().map(storage).collect()
        };
        let mut memory =
            DeviceMemory::of_storages(&self.device, storages(buffers), storages(pools));
        let mut outcome = program.run(params, &mut memory);
        let [buffer_storages, pool_storages] = memory.into_storages();
        let mut freed_pools = Vec::new();
        for (slices, storages) in [(buffers, buffer_storages), (pools, pool_storages)] {
            for (handle, slice) in slices {
                let Some(storage) = storages.get(handle) else {
                    freed_pools.push(*handle);
                    continue;
                };
                let written = self.write_back(storage, slice);
                outcome = outcome.and(written.map_err(Into::into));
            }
        }
        ProgramRun {
            outcome,
            freed_pools,
        }
    }

    /// Copies what a program wrote, in memory of its own, to the caller's buffer.
    fn write_back(&self, storage: &Storage, target: &BufferSlice) -> Result<()> {
        const OP: &str = "program";
        if storage.block_on(&self.metal, OP)?.is_borrowed() {
            return Ok(());
        }
        storage.ready(OP)?;
        let written = target.buffer().write(target.offset(), storage.bytes());
        self.forget(target.buffer());
        written.map_err(|e| Error::device(OP, e))
    }

    /// Waits for the last writer of a buffer, and synchronizes the host's copy of a managed buffer.
    ///
    /// # Errors
    /// [`Error::Device`], if the writer failed.
    pub fn wait(&self, op: &'static str, buffer: &Buffer) -> Result<()> {
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

    /// Forgets the last writer of a buffer that is freed or overwritten by the host.
    pub fn forget(&self, buffer: &Buffer) {
        self.writers().remove(&buffer.id());
    }
}

/// What became of a program that ran on buffers of the caller.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the program may have failed"]
pub struct ProgramRun {
    /// The outcome, as of [`CompiledProgram::run`].
    pub outcome: program::Result<()>,
    /// Pools of the caller that the program has freed.
    pub freed_pools: Vec<u64>,
}

/// Host buffers of the caller with their handles.
pub type HostBuffers<'a> = Vec<(u64, &'a mut HostBuffer)>;

/// Runs a program that is compiled for the CPU on buffers and pools of the caller, by handle, and waits for it.
pub fn run_program(
    program: &CompiledProgram,
    params: &ExecutionParams,
    buffers: HostBuffers<'_>,
    pools: HostBuffers<'_>,
) -> ProgramRun {
    let mut lent = [buffers, pools];
    let mut storages = [BTreeMap::new(), BTreeMap::new()];
    for (buffers, storages) in lent.iter_mut().zip(&mut storages) {
        for (handle, buffer) in buffers {
            // Moved, so that the program is the only owner and works in place.
            match Storage::new("program", 0) {
                Ok(empty) => storages.insert(*handle, mem::replace(&mut buffer.0, empty)),
                Err(_) => storages.insert(*handle, buffer.0.clone()),
            };
        }
    }
    let [buffers, pools] = storages;
    let mut memory = DeviceMemory::of_storages(&Device::cpu(), buffers, pools);
    let outcome = program.run(params, &mut memory);
    let mut freed_pools = Vec::new();
    for (buffers, mut storages) in lent.into_iter().zip(memory.into_storages()) {
        for (handle, buffer) in buffers {
            match storages.remove(&handle) {
                Some(storage) => buffer.0 = storage,
                None => freed_pools.push(handle),
            }
        }
    }
    ProgramRun {
        outcome,
        freed_pools,
    }
}

impl fmt::Debug for ExternalBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalBuffers({})", self.device)
    }
}

fn expect_bytes(op: &'static str, slice: &BufferSlice, dtype: DType, shape: &Shape) -> Result<()> {
    check_range(op, 0..shape.count() * dtype.size(), slice.length())?;
    if !slice.offset().is_multiple_of(dtype.size()) {
        return Err(Error::Invalid {
            op,
            reason: format!("offset {} is not aligned to {dtype}", slice.offset()),
        });
    }
    Ok(())
}

fn check_range(op: &'static str, range: Range<usize>, len: usize) -> Result<()> {
    if range.start <= range.end && range.end <= len {
        return Ok(());
    }
    Err(Error::Invalid {
        op,
        reason: format!("bytes {range:?} are out of range for a length of {len}"),
    })
}

/// Host memory that tensors can share. It is zeroed, counts against the memory limit of the CPU, and is copied on
/// write while a tensor uses it.
#[derive(Clone, Debug)]
pub struct HostBuffer(Storage);

impl HostBuffer {
    /// A buffer of zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeros(op: &'static str, bytes: usize) -> Result<Self> {
        let mut storage = Storage::new(op, bytes)?;
        storage.bytes_mut().expect("not shared").fill(0);
        Ok(Self(storage))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Pointer to the first byte, valid for reads and writes until the buffer is dropped, cloned or used as a tensor.
    /// `None` while a tensor or a clone shares the memory.
    pub fn as_mut_ptr(&mut self) -> Option<*mut u8> {
        self.0.as_mut_ptr()
    }

    /// Overwrites bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range outside the buffer, [`Error::OutOfMemory`] for a copy of shared memory.
    pub fn write(&mut self, op: &'static str, offset: usize, bytes: &[u8]) -> Result<()> {
        let range = offset..offset.saturating_add(bytes.len());
        check_range(op, range.clone(), self.len())?;
        if self.0.bytes_mut().is_none() {
            self.0 = Storage::copy_of(op, self.0.bytes())?;
        }
        self.0.bytes_mut().expect("not shared")[range].copy_from_slice(bytes);
        Ok(())
    }

    /// The start of the buffer as a tensor on the CPU, in place.
    ///
    /// # Errors
    /// [`Error::Invalid`], if the buffer is too short.
    pub fn tensor(&self, op: &'static str, dtype: DType, shape: Shape) -> Result<Tensor> {
        check_range(op, 0..shape.count() * dtype.size(), self.len())?;
        let placement = Placement {
            device: Device::cpu(),
            pinned: true,
        };
        let storage = self.0.clone();
        Ok(Tensor::from_storage_at(placement, dtype, shape, storage))
    }
}

/// A Metal buffer from the pool that tensors of its device use. It counts against the memory limit of the device and
/// returns to the pool when it is dropped.
pub struct PooledBuffer {
    metal: Arc<Metal>,
    buffer: Buffer,
}

impl PooledBuffer {
    /// A shared buffer of at least `bytes` bytes, with arbitrary contents.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Unsupported`] for the CPU.
    pub fn new(device: &Device, op: &'static str, bytes: usize) -> Result<Self> {
        let metal = device.metal_backend().ok_or_else(|| Error::Unsupported {
            op,
            what: "Metal buffers; use `HostBuffer`".to_owned(),
            device: device.name().to_owned(),
        })?;
        let buffer = metal.pool.take_idle(&metal.stream, op, bytes)?;
        Ok(Self {
            metal: Arc::clone(metal),
            buffer,
        })
    }
}

impl Deref for PooledBuffer {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // Commands that use it may be in flight; the buffer itself tracks them.
        self.metal.pool.give_back(self.buffer.clone(), None);
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBuffer({} bytes)", self.buffer.length())
    }
}

/// Compiles, but does not launch, the kernel that computes a tensor on its Metal device, or the first of several.
/// `None` for a tensor that is already computed, that is on the CPU or that has no kernel.
///
/// # Errors
/// Errors of the tensor and of the compiler.
pub fn pipeline(tensor: &Tensor) -> Result<Option<Pipeline>> {
    match (graph::prepared(tensor)?, tensor.device().metal_backend()) {
        (Some(work), Some(metal)) => metal::pipeline(metal, &work, &tensor.node),
        _ => Ok(None),
    }
}

/// Evaluates a tensor and returns its elements as bytes, in row-major order.
///
/// # Errors
/// Errors of the evaluation.
pub fn to_bytes(op: &'static str, tensor: &Tensor) -> Result<Vec<u8>> {
    tensor.check()?.to_bytes(op)
}
