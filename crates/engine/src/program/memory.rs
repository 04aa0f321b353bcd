//! The memory that programs read and write.

use std::collections::BTreeMap;

use super::BOUNDARY_BYTES;
use super::error::{FaultKind, Result};

/// The buffers and pools that a program can reach. Handle 0 is the boundary pool.
pub trait Memory {
    /// Copies bytes out of a buffer.
    ///
    /// # Errors
    /// [`FaultKind::InvalidBufferHandle`], [`FaultKind::BufferOutOfBounds`].
    fn read(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind>;

    /// Copies bytes into a buffer.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind>;

    /// Copies bytes out of a pool.
    ///
    /// # Errors
    /// [`FaultKind::InvalidPoolHandle`], [`FaultKind::PoolOutOfBounds`].
    fn read_pool(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind>;

    /// Copies bytes into a pool.
    ///
    /// # Errors
    /// As [`Memory::read_pool`].
    fn write_pool(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind>;

    /// Allocates a zeroed pool.
    ///
    /// # Errors
    /// [`FaultKind::OutOfMemory`].
    fn allocate_pool(&mut self, bytes: u64) -> Result<u64, FaultKind>;

    /// Frees a pool.
    ///
    /// # Errors
    /// [`FaultKind::InvalidPoolHandle`].
    fn free_pool(&mut self, handle: u64) -> Result<(), FaultKind>;

    /// Borrows the bytes of every buffer and pool, for executors that run lanes in parallel; those of buffers that
    /// `may_write` selects by handle exclusively.
    ///
    /// # Errors
    /// [`ProgramError::Device`](super::ProgramError::Device) if the host cannot access the bytes.
    fn view(&mut self, may_write: &dyn Fn(u64) -> bool) -> Result<MemoryView<'_>>;
}

/// The bytes of every buffer and pool of a [`Memory`], by handle. Handles are distinct.
#[derive(Debug, Default)]
pub struct MemoryView<'m> {
    /// Buffers.
    pub buffers: Vec<(u64, BufferBytes<'m>)>,
    /// Pools.
    pub pools: Vec<(u64, &'m mut [u8])>,
}

/// The bytes of a buffer.
#[derive(Debug)]
pub enum BufferBytes<'m> {
    /// They are only read.
    Shared(&'m [u8]),
    /// They may be written.
    Exclusive(&'m mut [u8]),
}

impl BufferBytes<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Exclusive(bytes) => bytes,
        }
    }
}

/// Buffers and pools in host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferMemory {
    buffers: BTreeMap<u64, Vec<u8>>,
    pools: BTreeMap<u64, Vec<u8>>,
    last_pool: u64,
}

/// Maximum size of all pools in bytes.
pub(super) const MAX_POOL_BYTES: u64 = 1 << 30;

impl BufferMemory {
    /// Memory with a zeroed boundary pool.
    pub fn new() -> Self {
        let boundary = vec![0; BOUNDARY_BYTES];
        Self {
            buffers: BTreeMap::from([(0, boundary)]),
            ..Self::default()
        }
    }

    /// Adds a buffer, or replaces it.
    pub fn insert(&mut self, handle: u64, bytes: Vec<u8>) {
        self.buffers.insert(handle, bytes);
    }

    /// The bytes of a buffer.
    pub fn buffer(&self, handle: u64) -> Option<&[u8]> {
        self.buffers.get(&handle).map(Vec::as_slice)
    }
}

/// The range of an access, if it is within `size` bytes.
pub(super) fn range(offset: u64, len: usize, size: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len)?;
    (end <= size).then_some(start..end)
}

impl Memory for BufferMemory {
    fn read(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        let buffer = self
            .buffers
            .get(&handle)
            .ok_or(FaultKind::InvalidBufferHandle(handle))?;
        let range = range(offset, bytes.len(), buffer.len())
            .ok_or_else(|| buffer_fault(offset, bytes.len(), buffer.len()))?;
        bytes.copy_from_slice(&buffer[range]);
        Ok(())
    }

    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        let buffer = self
            .buffers
            .get_mut(&handle)
            .ok_or(FaultKind::InvalidBufferHandle(handle))?;
        let range = range(offset, bytes.len(), buffer.len())
            .ok_or_else(|| buffer_fault(offset, bytes.len(), buffer.len()))?;
        buffer[range].copy_from_slice(bytes);
        Ok(())
    }

    fn read_pool(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        let pool = self
            .pools
            .get(&handle)
            .ok_or(FaultKind::InvalidPoolHandle(handle))?;
        let range = range(offset, bytes.len(), pool.len())
            .ok_or_else(|| pool_fault(offset, bytes.len(), pool.len()))?;
        bytes.copy_from_slice(&pool[range]);
        Ok(())
    }

    fn write_pool(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        let pool = self
            .pools
            .get_mut(&handle)
            .ok_or(FaultKind::InvalidPoolHandle(handle))?;
        let range = range(offset, bytes.len(), pool.len())
            .ok_or_else(|| pool_fault(offset, bytes.len(), pool.len()))?;
        pool[range].copy_from_slice(bytes);
        Ok(())
    }

    fn allocate_pool(&mut self, bytes: u64) -> Result<u64, FaultKind> {
        let in_use: u64 = self.pools.values().map(|p| p.len() as u64).sum();
        if bytes > MAX_POOL_BYTES - in_use.min(MAX_POOL_BYTES) {
            return Err(FaultKind::OutOfMemory(bytes));
        }
        self.last_pool += 1;
        self.pools.insert(self.last_pool, vec![0; bytes as usize]);
        Ok(self.last_pool)
    }

    fn free_pool(&mut self, handle: u64) -> Result<(), FaultKind> {
        self.pools
            .remove(&handle)
            .map(|_| ())
            .ok_or(FaultKind::InvalidPoolHandle(handle))
    }

    fn view(&mut self, _: &dyn Fn(u64) -> bool) -> Result<MemoryView<'_>> {
        let buffers = self.buffers.iter_mut();
        let pools = self.pools.iter_mut();
        Ok(MemoryView {
            buffers: buffers
                .map(|(&handle, bytes)| (handle, BufferBytes::Exclusive(bytes)))
                .collect(),
            pools: pools
                .map(|(&handle, bytes)| (handle, bytes.as_mut_slice()))
                .collect(),
        })
    }
}

pub(super) const fn buffer_fault(offset: u64, size: usize, buffer_size: usize) -> FaultKind {
    FaultKind::BufferOutOfBounds {
        offset,
        size,
        buffer_size,
    }
}

pub(super) const fn pool_fault(offset: u64, size: usize, pool_size: usize) -> FaultKind {
    FaultKind::PoolOutOfBounds {
        offset,
        size,
        pool_size,
    }
}
