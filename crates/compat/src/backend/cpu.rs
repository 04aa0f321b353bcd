//! The CPU as a [`Backend`].

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bessemer::external::{self, HostBuffer};
use bessemer::program::{BOUNDARY_BYTES, ExecutionParams, Program};
use bessemer::{DType, Device, Error, Result, Shape, Tensor};

use super::handles::HandleTable;
use super::program_cache::ProgramCache;
use super::{Backend, BackendError, BufferHandle, PoolHandle};

/// Native code on the CPU, as a [`Backend`].
pub struct CpuBackend {
    device: Device,
    /// Memory allocated by pointer, by address.
    memory: Mutex<BTreeMap<usize, HostBuffer>>,
    buffers: HandleTable<BufferHandle, HostBuffer>,
    pools: HandleTable<PoolHandle, HostBuffer>,
    /// The boundary pool, once it was used.
    boundary: Mutex<Option<HostBuffer>>,
    programs: ProgramCache,
}

impl CpuBackend {
    /// Creates the backend.
    pub fn new() -> Self {
        Self {
            device: Device::cpu(),
            memory: Mutex::default(),
            buffers: HandleTable::new(),
            pools: HandleTable::new(),
            boundary: Mutex::default(),
            programs: ProgramCache::default(),
        }
    }

    /// Uses a buffer in place: one of the table, or the boundary pool.
    fn with_buffer<R>(
        &self,
        op: &'static str,
        handle: BufferHandle,
        body: impl FnOnce(&mut HostBuffer) -> Result<R>,
    ) -> Result<R> {
        if handle != BufferHandle::BOUNDARY {
            return self.buffers.update(op, handle, body);
        }
        match &mut *self.lock_boundary() {
            Some(buffer) => body(buffer),
            empty => body(empty.insert(HostBuffer::zeros(op, BOUNDARY_BYTES)?)),
        }
    }

    fn lock_boundary(&self) -> MutexGuard<'_, Option<HostBuffer>> {
        self.boundary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true`: there is always a CPU.
    pub const fn is_available() -> bool {
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, HostBuffer>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for CpuBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CpuBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuBackend({} buffers)", self.buffers.len())
    }
}

/// Checks that `len` bytes from `offset` on are within `size` bytes.
pub(super) fn checked_range(
    op: &'static str,
    offset: usize,
    len: usize,
    size: usize,
) -> Result<std::ops::Range<usize>> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(Error::Invalid {
            op,
            reason: format!("{len} bytes from {offset} on exceed the {size} bytes available"),
        }),
    }
}

impl Backend for CpuBackend {
    fn is_available() -> bool {
        true
    }

    fn initialize() -> Result<Self> {
        Ok(Self::new())
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, bytes: usize) -> Result<*mut u8> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let mut memory = HostBuffer::zeros("allocate", bytes)?;
        let pointer = memory.as_mut_ptr().expect("not shared");
        self.lock().insert(pointer.addr(), memory);
        Ok(pointer)
    }

    fn deallocate(&self, pointer: *mut u8, bytes: usize) -> Result<()> {
        if pointer.is_null() {
            return Ok(());
        }
        let mut all = self.lock();
        match all.get(&pointer.addr()) {
            Some(found) if found.len() == bytes => {}
            Some(found) => {
                return Err(Error::Invalid {
                    op: "deallocate",
                    reason: format!("{} bytes were allocated there, not {bytes}", found.len()),
                });
            }
            None => return Err(unknown("deallocate", pointer)),
        }
        all.remove(&pointer.addr());
        Ok(())
    }

    fn copy_from_host(&self, to: *mut u8, bytes: &[u8]) -> Result<()> {
        let mut all = self.lock();
        let (start, found) = all
            .range_mut(..=to.addr())
            .next_back()
            .ok_or_else(|| unknown("copy_from_host", to))?;
        found.write("copy_from_host", to.addr() - start, bytes)
    }

    fn copy_to_host(&self, bytes: &mut [u8], from: *const u8) -> Result<()> {
        let all = self.lock();
        let (start, found) = all
            .range(..=from.addr())
            .next_back()
            .ok_or_else(|| unknown("copy_to_host", from))?;
        let range = checked_range(
            "copy_to_host",
            from.addr() - start,
            bytes.len(),
            found.len(),
        )?;
        bytes.copy_from_slice(&found.bytes()[range]);
        Ok(())
    }

    fn allocate_buffer(&self, bytes: usize) -> Result<BufferHandle> {
        self.buffers.insert(
            "allocate_buffer",
            HostBuffer::zeros("allocate_buffer", bytes)?,
        )
    }

    fn free_buffer(&self, handle: BufferHandle) -> Result<()> {
        self.buffers.remove("free_buffer", handle).map(drop)
    }

    fn copy_to_buffer(&self, handle: BufferHandle, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_buffer";
        self.with_buffer(op, handle, |buffer| buffer.write(op, 0, bytes))
    }

    fn copy_from_buffer(&self, handle: BufferHandle, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_buffer";
        self.with_buffer(op, handle, |buffer| {
            let range = checked_range(op, 0, bytes.len(), buffer.len())?;
            bytes.copy_from_slice(&buffer.bytes()[range]);
            Ok(())
        })
    }

    fn buffer_size(&self, handle: BufferHandle) -> Result<usize> {
        self.with_buffer("buffer_size", handle, |buffer| Ok(buffer.len()))
    }

    fn allocate_pool(&self, bytes: usize) -> Result<PoolHandle> {
        self.pools
            .insert("allocate_pool", HostBuffer::zeros("allocate_pool", bytes)?)
    }

    fn free_pool(&self, handle: PoolHandle) -> Result<()> {
        self.pools.remove("free_pool", handle).map(drop)
    }

    fn copy_to_pool(&self, handle: PoolHandle, offset: usize, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_pool";
        self.pools
            .update(op, handle, |buffer| buffer.write(op, offset, bytes))
    }

    fn copy_from_pool(&self, handle: PoolHandle, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_pool";
        let buffer = self.pools.get(op, handle)?;
        let range = checked_range(op, offset, bytes.len(), buffer.len())?;
        bytes.copy_from_slice(&buffer.bytes()[range]);
        Ok(())
    }

    fn pool_size(&self, handle: PoolHandle) -> Result<usize> {
        Ok(self.pools.get("pool_size", handle)?.len())
    }

    fn tensor(&self, handle: BufferHandle, dtype: DType, shape: Shape) -> Result<Tensor> {
        let op = "tensor";
        self.with_buffer(op, handle, |buffer| buffer.tensor(op, dtype, shape))
    }

    fn store(&self, handle: BufferHandle, tensor: Tensor) -> Result<()> {
        let op = "store";
        let bytes = external::to_bytes(op, &tensor)?;
        drop(tensor);
        self.with_buffer(op, handle, |buffer| buffer.write(op, 0, &bytes))
    }

    fn execute_program_with_params(
        &self,
        program: &Program,
        params: &ExecutionParams,
    ) -> Result<(), BackendError> {
        let compiled = self.programs.get(program, &self.device)?;
        let op = "execute_program";
        let mut boundary = self.lock_boundary();
        let boundary = match &mut *boundary {
            Some(buffer) => buffer,
            empty => empty.insert(HostBuffer::zeros(op, BOUNDARY_BYTES)?),
        };
        let run = self.buffers.with_all(|buffers| {
            let mut all = vec![(BufferHandle::BOUNDARY.id(), boundary)];
            all.extend(buffers);
            self.pools
                .with_all(|pools| external::run_program(&compiled, params, all, pools))
        });
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

/// The error of a pointer that the backend did not allocate.
pub(super) fn unknown(op: &'static str, pointer: *const u8) -> Error {
    let reason = if pointer.is_null() {
        "the pointer is null".to_owned()
    } else {
        format!("{pointer:?} was not allocated here")
    };
    Error::Invalid { op, reason }
}
