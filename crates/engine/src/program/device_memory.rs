//! Buffers and pools on a device, by handle.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::BOUNDARY_BYTES;
use super::error::{FaultKind, Result};
use super::memory::{
    BufferBytes, MAX_POOL_BYTES, Memory, MemoryView, buffer_fault, pool_fault, range,
};
use crate::device::Placement;
use crate::storage::Storage;
use crate::{DType, Device, IntoShape, Shape, Tensor};

/// The op that errors of this memory name.
const OP: &str = "program";

/// The buffers and pools that a program on a device can reach. Handle 0 is the boundary pool; other handles count from 1,
/// and none is used twice.
///
/// ```
/// use bessemer::Device;
/// use bessemer::program::DeviceMemory;
///
/// let mut memory = DeviceMemory::new(&Device::cpu())?;
/// let buffer = memory.insert_bytes(&[1, 2, 3, 4])?;
/// memory.write(buffer, 2, &[7])?;
/// assert_eq!(memory.to_vec(buffer)?, [1, 2, 7, 4]);
/// memory.free(buffer)?;
/// assert!(memory.size(buffer).is_err());
/// # Ok::<(), bessemer::program::ProgramError>(())
/// ```
#[derive(Debug)]
pub struct DeviceMemory {
    device: Device,
    buffers: BTreeMap<u64, Storage>,
    pools: BTreeMap<u64, Storage>,
    last_buffer: u64,
    last_pool: u64,
}

impl DeviceMemory {
    /// Memory of a device, with a zeroed boundary pool.
    ///
    /// # Errors
    /// [`Device`](super::ProgramError::Device) if there is no memory for it.
    pub fn new(device: &Device) -> Result<Self> {
        let boundary = Storage::zeroed(device, OP, BOUNDARY_BYTES)?;
        Ok(Self {
            device: device.clone(),
            buffers: BTreeMap::from([(0, boundary)]),
            pools: BTreeMap::new(),
            last_buffer: 0,
            last_pool: 0,
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Allocates a zeroed buffer and returns its handle.
    ///
    /// # Errors
    /// [`Device`](super::ProgramError::Device) if there is no memory for it.
    pub fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let storage = Storage::zeroed(&self.device, OP, bytes)?;
        self.insert_storage(storage)
    }

    /// Copies bytes into a new buffer and returns its handle.
    ///
    /// # Errors
    /// As [`DeviceMemory::allocate`].
    pub fn insert_bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        let storage = Storage::copy_to(&self.device, OP, bytes)?;
        self.insert_storage(storage)
    }

    /// Copies bytes into a buffer with this handle; replaces the one that has it.
    ///
    /// # Errors
    /// As [`DeviceMemory::allocate`]; [`FaultKind::InvalidBufferHandle`] as [`Memory`](super::ProgramError::Memory) for 0, the boundary
    /// pool.
    pub fn insert_bytes_at(&mut self, handle: u64, bytes: &[u8]) -> Result<()> {
        if handle == 0 {
            return Err(FaultKind::InvalidBufferHandle(handle).into());
        }
        let storage = Storage::copy_to(&self.device, OP, bytes)?;
        self.buffers.insert(handle, storage);
        self.last_buffer = self.last_buffer.max(handle);
        Ok(())
    }

    /// Memory with storages of the caller under its handles. Without one of handle 0 there is no boundary pool.
    pub(crate) fn of_storages(
        device: &Device,
        buffers: BTreeMap<u64, Storage>,
        pools: BTreeMap<u64, Storage>,
    ) -> Self {
        let last = |storages: &BTreeMap<u64, Storage>| {
            let last = storages.last_key_value();
            last.map_or(0, |(&handle, _)| handle)
        };
        Self {
            device: device.clone(),
            last_buffer: last(&buffers),
            last_pool: last(&pools),
            buffers,
            pools,
        }
    }

    /// The storages of all buffers and pools by handle.
    pub(crate) fn into_storages(self) -> [BTreeMap<u64, Storage>; 2] {
        [self.buffers, self.pools]
    }

    /// Makes the elements of a tensor a buffer and returns its handle. They are copied when a program writes them, so that
    /// the tensor keeps its value.
    ///
    /// # Errors
    /// [`Device`](super::ProgramError::Device) with the error of the tensor.
    pub fn insert(&mut self, tensor: &Tensor) -> Result<u64> {
        let tensor = tensor.contiguous();
        let tensor = tensor.eval()?;
        let layout = tensor.layout();
        let bytes = layout.count() * tensor.dtype().size();
        let Some(storage) = tensor.node.value.get() else {
            return self.insert_bytes(&[]);
        };
        storage.ready(OP)?;
        if layout.offset() == 0 && storage.len() == bytes {
            return self.insert_storage(storage.clone());
        }
        let start = layout.offset() * tensor.dtype().size();
        let all = storage.bytes().get(start..start + bytes).unwrap_or(&[]);
        let storage = Storage::copy_to(&self.device, OP, all)?;
        self.insert_storage(storage)
    }

    fn insert_storage(&mut self, storage: Storage) -> Result<u64> {
        let next = self.last_buffer.checked_add(1);
        self.last_buffer = next.ok_or_else(|| crate::Error::Invalid {
            op: OP,
            reason: "no handle is left".to_owned(),
        })?;
        self.buffers.insert(self.last_buffer, storage);
        Ok(self.last_buffer)
    }

    /// Frees a buffer and makes its memory a tensor.
    ///
    /// # Errors
    /// [`FaultKind::InvalidBufferHandle`] as [`Memory`](super::ProgramError::Memory); [`Device`](super::ProgramError::Device) if the shape has another
    /// size than the buffer. The buffer stays then.
    pub fn take(&mut self, handle: u64, dtype: DType, shape: impl IntoShape) -> Result<Tensor> {
        let shape = shape.into_shape(OP)?;
        let size = self.size(handle)?;
        if shape.count().checked_mul(dtype.size()) != Some(size) {
            return Err(crate::Error::BadShape {
                op: OP,
                shape,
                reason: format!("its {dtype} elements do not have the {size} bytes of the buffer"),
            }
            .into());
        }
        let storage = self.remove(handle)?;
        storage.ready(OP)?;
        Ok(self.tensor_of(dtype, shape, storage))
    }

    fn tensor_of(&self, dtype: DType, shape: Shape, storage: Storage) -> Tensor {
        let placement = Placement {
            device: self.device.clone(),
            pinned: true,
        };
        Tensor::from_storage_at(placement, dtype, shape, storage)
    }

    fn remove(&mut self, handle: u64) -> Result<Storage> {
        let found = match self.buffers.entry(handle) {
            // The boundary pool stays.
            Entry::Occupied(entry) if handle != 0 => Some(entry.remove()),
            _ => None,
        };
        found.ok_or_else(|| FaultKind::InvalidBufferHandle(handle).into())
    }

    /// Frees a buffer. The boundary pool cannot be freed.
    ///
    /// # Errors
    /// [`FaultKind::InvalidBufferHandle`] as [`Memory`](super::ProgramError::Memory).
    pub fn free(&mut self, handle: u64) -> Result<()> {
        self.remove(handle).map(drop)
    }

    /// Size of a buffer in bytes.
    ///
    /// # Errors
    /// As [`DeviceMemory::free`].
    pub fn size(&self, handle: u64) -> Result<usize> {
        Ok(self.buffer(handle)?.len())
    }

    /// Copies bytes out of a buffer.
    ///
    /// # Errors
    /// [`FaultKind::InvalidBufferHandle`] and [`FaultKind::BufferOutOfBounds`] as [`Memory`](super::ProgramError::Memory).
    pub fn read(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(Memory::read(self, handle, offset, bytes)?)
    }

    /// Copies bytes into a buffer.
    ///
    /// # Errors
    /// As [`DeviceMemory::read`].
    pub fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(Memory::write(self, handle, offset, bytes)?)
    }

    /// The bytes of a buffer.
    ///
    /// # Errors
    /// As [`DeviceMemory::free`].
    pub fn to_vec(&self, handle: u64) -> Result<Vec<u8>> {
        let storage = self.buffer(handle)?;
        storage.ready(OP)?;
        Ok(storage.bytes().to_vec())
    }

    /// Allocates a zeroed pool and returns its handle.
    ///
    /// # Errors
    /// [`FaultKind::OutOfMemory`] as [`Memory`](super::ProgramError::Memory).
    pub fn allocate_pool(&mut self, bytes: u64) -> Result<u64> {
        Ok(Memory::allocate_pool(self, bytes)?)
    }

    /// Frees a pool.
    ///
    /// # Errors
    /// [`FaultKind::InvalidPoolHandle`] as [`Memory`](super::ProgramError::Memory).
    pub fn free_pool(&mut self, handle: u64) -> Result<()> {
        Ok(Memory::free_pool(self, handle)?)
    }

    /// Size of a pool in bytes.
    ///
    /// # Errors
    /// As [`DeviceMemory::free_pool`].
    pub fn pool_size(&self, handle: u64) -> Result<usize> {
        let pool = self.pools.get(&handle);
        Ok(pool.ok_or(FaultKind::InvalidPoolHandle(handle))?.len())
    }

    /// Copies bytes out of a pool.
    ///
    /// # Errors
    /// [`FaultKind::InvalidPoolHandle`] and [`FaultKind::PoolOutOfBounds`] as [`Memory`](super::ProgramError::Memory).
    pub fn read_pool(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(Memory::read_pool(self, handle, offset, bytes)?)
    }

    /// Copies bytes into a pool.
    ///
    /// # Errors
    /// As [`DeviceMemory::read_pool`].
    pub fn write_pool(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(Memory::write_pool(self, handle, offset, bytes)?)
    }

    fn buffer(&self, handle: u64) -> Result<&Storage, FaultKind> {
        let found = self.buffers.get(&handle);
        found.ok_or(FaultKind::InvalidBufferHandle(handle))
    }

    /// The storage of a buffer or, of a pool, for an executor.
    pub(crate) fn storage(&self, space: Space, handle: u64) -> Option<&Storage> {
        match space {
            Space::Buffer => self.buffers.get(&handle),
            Space::Pool => self.pools.get(&handle),
        }
    }

    /// The storage of a buffer or of a pool, for an executor that writes it: its only owner, on the device.
    pub(crate) fn storage_mut(
        &mut self,
        space: Space,
        handle: u64,
    ) -> Result<Option<&mut Storage>> {
        let storage = match space {
            Space::Buffer => self.buffers.get_mut(&handle),
            Space::Pool => self.pools.get_mut(&handle),
        };
        if let Some(storage) = storage {
            storage.make_unique(&self.device, OP)?;
            return Ok(Some(storage));
        }
        Ok(None)
    }

    /// The first elements of a buffer as a tensor that shares its memory.
    pub(crate) fn tensor(&self, handle: u64, count: usize) -> Result<Tensor, FaultKind> {
        let storage = self.buffer(handle)?.clone();
        let all = storage.len() / DType::F32.size();
        let failed = |e: crate::Error| FaultKind::Device(Box::new(e));
        let shape = Shape::new(OP, &[all]).map_err(failed)?;
        Ok(self
            .tensor_of(DType::F32, shape, storage)
            .narrow(0, 0, count))
    }

    /// Writes the elements of a tensor to the start of a buffer.
    pub(crate) fn assign(&mut self, handle: u64, tensor: &Tensor) -> Result<(), FaultKind> {
        let failed = |e: crate::Error| FaultKind::Device(Box::new(e));
        let tensor = tensor.contiguous();
        let tensor = tensor.eval().map_err(failed)?;
        let Some(storage) = tensor.node.value.get() else {
            return Ok(());
        };
        storage.ready(OP).map_err(failed)?;
        let size = tensor.dtype().size();
        let (start, len) = (tensor.layout().offset() * size, tensor.count() * size);
        if start == 0 && storage.len() == len && self.buffer(handle)?.len() == len {
            self.buffers.insert(handle, storage.clone());
            return Ok(());
        }
        let bytes = storage.bytes().get(start..start + len).unwrap_or(&[]);
        Memory::write(self, handle, 0, bytes)
    }
}

/// The two kinds of memory with handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Space {
    Buffer,
    Pool,
}

fn read(storage: &Storage, offset: u64, bytes: &mut [u8]) -> Result<bool, FaultKind> {
    let failed = |e| FaultKind::Device(Box::new(e));
    storage.ready(OP).map_err(failed)?;
    let found = range(offset, bytes.len(), storage.len());
    if let Some(range) = &found {
        bytes.copy_from_slice(&storage.bytes()[range.clone()]);
    }
    Ok(found.is_some())
}

fn write(
    storage: &mut Storage,
    device: &Device,
    offset: u64,
    bytes: &[u8],
) -> Result<bool, FaultKind> {
    let failed = |e| FaultKind::Device(Box::new(e));
    let found = range(offset, bytes.len(), storage.len());
    if let Some(range) = &found {
        storage.make_unique(device, OP).map_err(failed)?;
        storage.write(OP, range.start, bytes).map_err(failed)?;
    }
    Ok(found.is_some())
}

/// The bytes of a storage that the host may write.
fn bytes_mut<'s>(storage: &'s mut Storage, device: &Device) -> Result<&'s mut [u8]> {
    storage.make_unique(device, OP)?;
    storage.ready(OP)?;
    storage.bytes_mut().ok_or_else(|| {
        let unsupported = crate::Error::Unsupported {
            op: OP,
            what: "bytes that the host writes".to_owned(),
            device: device.name().to_owned(),
        };
        unsupported.into()
    })
}

impl Memory for DeviceMemory {
    fn read(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        let storage = self.buffer(handle)?;
        if read(storage, offset, bytes)? {
            return Ok(());
        }
        Err(buffer_fault(offset, bytes.len(), storage.len()))
    }

    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        let found = self.buffers.get_mut(&handle);
        let storage = found.ok_or(FaultKind::InvalidBufferHandle(handle))?;
        if write(storage, &self.device, offset, bytes)? {
            return Ok(());
        }
        Err(buffer_fault(offset, bytes.len(), storage.len()))
    }

    fn read_pool(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        let found = self.pools.get(&handle);
        let storage = found.ok_or(FaultKind::InvalidPoolHandle(handle))?;
        if read(storage, offset, bytes)? {
            return Ok(());
        }
        Err(pool_fault(offset, bytes.len(), storage.len()))
    }

    fn write_pool(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        let found = self.pools.get_mut(&handle);
        let storage = found.ok_or(FaultKind::InvalidPoolHandle(handle))?;
        if write(storage, &self.device, offset, bytes)? {
            return Ok(());
        }
        Err(pool_fault(offset, bytes.len(), storage.len()))
    }

    fn allocate_pool(&mut self, bytes: u64) -> Result<u64, FaultKind> {
        let out_of_memory = || FaultKind::OutOfMemory(bytes);
        let len = usize::try_from(bytes).map_err(|_| out_of_memory())?;
        let in_use: u64 = self.pools.values().map(|pool| pool.len() as u64).sum();
        if bytes > MAX_POOL_BYTES.saturating_sub(in_use) {
            return Err(out_of_memory());
        }
        let next = self.last_pool.checked_add(1).ok_or_else(out_of_memory)?;
        let pool = Storage::zeroed(&self.device, OP, len).map_err(|_| out_of_memory())?;
        self.last_pool = next;
        self.pools.insert(self.last_pool, pool);
        Ok(self.last_pool)
    }

    fn view(&mut self, may_write: &dyn Fn(u64) -> bool) -> Result<MemoryView<'_>> {
        let mut view = MemoryView::default();
        for (&handle, storage) in &mut self.buffers {
            let bytes = if may_write(handle) {
                BufferBytes::Exclusive(bytes_mut(storage, &self.device)?)
            } else {
                storage.ready(OP)?;
                BufferBytes::Shared(storage.bytes())
            };
            view.buffers.push((handle, bytes));
        }
        for (&handle, storage) in &mut self.pools {
            view.pools.push((handle, bytes_mut(storage, &self.device)?));
        }
        Ok(view)
    }

    fn free_pool(&mut self, handle: u64) -> Result<(), FaultKind> {
        let removed = self.pools.remove(&handle);
        removed
            .map(drop)
            .ok_or(FaultKind::InvalidPoolHandle(handle))
    }
}
