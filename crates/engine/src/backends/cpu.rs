//! The CPU as a [`Backend`].

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Backend, BufferHandle, PoolHandle, handles::Table};
use crate::device::Place;
use crate::storage::{Memory, Storage};
use crate::{DType, Device, Error, Result, Shape, Tensor, memory};

/// Native code on the processors of this machine, as a [`Backend`].
pub struct CpuBackend {
    device: Device,
    /// By address.
    memory: Mutex<BTreeMap<usize, Allocation>>,
    buffers: Table<BufferHandle, Storage>,
    pools: Table<PoolHandle, Storage>,
}

/// Memory that was lent by pointer, and how much was asked for.
struct Allocation {
    memory: Memory,
    len: usize,
}

impl CpuBackend {
    /// The backend.
    pub fn new() -> Self {
        Self {
            device: Device::cpu(),
            memory: Mutex::default(),
            buffers: Table::new(),
            pools: Table::new(),
        }
    }

    /// Whether there is one: always.
    pub const fn is_available() -> bool {
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Allocation>> {
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

/// A range of memory, or why there is none.
pub(super) fn range(
    op: &'static str,
    offset: usize,
    len: usize,
    size: usize,
) -> Result<std::ops::Range<usize>> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(Error::Invalid {
            op,
            reason: format!("{len} bytes from {offset} on are more than the {size} there are"),
        }),
    }
}

/// Zeroed memory of the host.
fn zeros(op: &'static str, len: usize) -> Result<Storage> {
    let mut storage = Storage::new(op, len)?;
    storage.bytes_mut().expect("just made").fill(0);
    Ok(storage)
}

/// Changes some bytes; of a copy, where a tensor uses the memory.
fn change(op: &'static str, storage: &mut Storage, offset: usize, bytes: &[u8]) -> Result<()> {
    let range = range(op, offset, bytes.len(), storage.len())?;
    if storage.bytes_mut().is_none() {
        *storage = Storage::copy_of(op, storage.bytes())?;
    }
    storage.bytes_mut().expect("not shared")[range].copy_from_slice(bytes);
    Ok(())
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
        let mut memory = memory::allocate("allocate", bytes)?;
        memory.bytes_mut().fill(0);
        let pointer = memory.as_mut_ptr();
        self.lock()
            .insert(pointer.addr(), Allocation { memory, len: bytes });
        Ok(pointer)
    }

    fn deallocate(&self, pointer: *mut u8, bytes: usize) -> Result<()> {
        if pointer.is_null() {
            return Ok(());
        }
        let mut all = self.lock();
        match all.get(&pointer.addr()) {
            Some(found) if found.len == bytes => {}
            Some(found) => {
                return Err(Error::Invalid {
                    op: "deallocate",
                    reason: format!("{} bytes were allocated there, not {bytes}", found.len),
                });
            }
            None => return Err(unknown("deallocate", pointer)),
        }
        let gone = all.remove(&pointer.addr()).expect("found");
        drop(all);
        memory::release(gone.memory);
        Ok(())
    }

    fn copy_from_host(&self, to: *mut u8, bytes: &[u8]) -> Result<()> {
        let mut all = self.lock();
        let (start, found) = all
            .range_mut(..=to.addr())
            .next_back()
            .ok_or_else(|| unknown("copy_from_host", to))?;
        let range = range("copy_from_host", to.addr() - start, bytes.len(), found.len)?;
        found.memory.bytes_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn copy_to_host(&self, bytes: &mut [u8], from: *const u8) -> Result<()> {
        let all = self.lock();
        let (start, found) = all
            .range(..=from.addr())
            .next_back()
            .ok_or_else(|| unknown("copy_to_host", from))?;
        let range = range("copy_to_host", from.addr() - start, bytes.len(), found.len)?;
        bytes.copy_from_slice(&found.memory.bytes()[range]);
        Ok(())
    }

    fn allocate_buffer(&self, bytes: usize) -> Result<BufferHandle> {
        self.buffers
            .insert("allocate_buffer", zeros("allocate_buffer", bytes)?)
    }

    fn free_buffer(&self, handle: BufferHandle) -> Result<()> {
        self.buffers.remove("free_buffer", handle).map(drop)
    }

    fn copy_to_buffer(&self, handle: BufferHandle, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_buffer";
        self.buffers
            .update(op, handle, |storage| change(op, storage, 0, bytes))
    }

    fn copy_from_buffer(&self, handle: BufferHandle, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_buffer";
        let storage = self.buffers.get(op, handle)?;
        let range = range(op, 0, bytes.len(), storage.len())?;
        bytes.copy_from_slice(&storage.bytes()[range]);
        Ok(())
    }

    fn buffer_size(&self, handle: BufferHandle) -> Result<usize> {
        Ok(self.buffers.get("buffer_size", handle)?.len())
    }

    fn allocate_pool(&self, bytes: usize) -> Result<PoolHandle> {
        self.pools
            .insert("allocate_pool", zeros("allocate_pool", bytes)?)
    }

    fn free_pool(&self, handle: PoolHandle) -> Result<()> {
        self.pools.remove("free_pool", handle).map(drop)
    }

    fn copy_to_pool(&self, handle: PoolHandle, offset: usize, bytes: &[u8]) -> Result<()> {
        let op = "copy_to_pool";
        self.pools
            .update(op, handle, |storage| change(op, storage, offset, bytes))
    }

    fn copy_from_pool(&self, handle: PoolHandle, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let op = "copy_from_pool";
        let storage = self.pools.get(op, handle)?;
        let range = range(op, offset, bytes.len(), storage.len())?;
        bytes.copy_from_slice(&storage.bytes()[range]);
        Ok(())
    }

    fn pool_size(&self, handle: PoolHandle) -> Result<usize> {
        Ok(self.pools.get("pool_size", handle)?.len())
    }

    fn tensor(&self, handle: BufferHandle, dtype: DType, shape: Shape) -> Result<Tensor> {
        let op = "tensor";
        let storage = self.buffers.get(op, handle)?;
        range(op, 0, shape.count() * dtype.size(), storage.len())?;
        let place = Place {
            device: self.device.clone(),
            pinned: true,
        };
        Ok(Tensor::from_storage_at(place, dtype, shape, storage))
    }

    fn store(&self, handle: BufferHandle, tensor: Tensor) -> Result<()> {
        let op = "store";
        let bytes = tensor.to_bytes(op)?;
        drop(tensor);
        self.buffers
            .update(op, handle, |storage| change(op, storage, 0, &bytes))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The error of a pointer that was not given out.
pub(super) fn unknown(op: &'static str, pointer: *const u8) -> Error {
    let reason = match pointer.is_null() {
        true => "the pointer is null".to_owned(),
        false => format!("{pointer:?} was not allocated here"),
    };
    Error::Invalid { op, reason }
}
