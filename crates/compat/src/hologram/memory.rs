//! Metal memory by handles that count from 1.

use std::collections::BTreeMap;

use bessemer::program::BOUNDARY_BYTES;
use bessemer_hal::{Buffer, BufferSlice, Device, StorageMode};

use crate::backend::{BackendError, BufferHandle, device_error, slice_of};

/// Buffers in memory that host and GPU share. Handles count from 1 and are never used again.
///
/// A handle of another manager may name a buffer here; the handles of a [`Backend`](super::Backend) cannot be mistaken.
#[derive(Debug)]
pub struct MetalMemoryManager {
    device: Device,
    buffers: BTreeMap<BufferHandle, Buffer>,
    next_handle: u64,
}

impl MetalMemoryManager {
    /// Memory of a device.
    pub const fn new(device: Device) -> Self {
        Self {
            device,
            buffers: BTreeMap::new(),
            next_handle: 1,
        }
    }

    /// Allocates a zeroed buffer of `size` bytes.
    ///
    /// # Errors
    /// [`BackendError::Other`], if there is no memory for it.
    pub fn allocate_buffer(&mut self, size: usize) -> Result<BufferHandle, BackendError> {
        let op = "allocate_buffer";
        let buffer = self.device.buffer(size, StorageMode::Shared);
        let buffer = buffer.map_err(|e| device_error(op, e))?;
        buffer.set_label(op);
        let handle = BufferHandle::from(self.next_handle);
        self.next_handle += 1;
        self.buffers.insert(handle, buffer);
        Ok(handle)
    }

    /// Allocates the boundary pool, which programs address by class, page and byte.
    pub(super) fn allocate_boundary(&mut self) -> Result<(), BackendError> {
        let handle = self.allocate_buffer(BOUNDARY_BYTES)?;
        if let Some(buffer) = self.buffers.remove(&handle) {
            self.buffers.insert(BufferHandle::BOUNDARY, buffer);
        }
        self.next_handle = handle.id();
        Ok(())
    }

    /// All buffers with their handles.
    pub(super) fn all(&self) -> Result<Vec<(u64, BufferSlice)>, BackendError> {
        let slice = |(handle, buffer): (&BufferHandle, &Buffer)| {
            let slice = slice_of("execute_program", buffer, 0, buffer.length())?;
            Ok((handle.id(), slice))
        };
        self.buffers.iter().map(slice).collect()
    }

    /// Frees a buffer. The device keeps the memory until commands that use it have finished.
    ///
    /// # Errors
    /// [`BackendError::InvalidBuffer`] for an unknown or freed handle, here and below.
    pub fn free_buffer(&mut self, handle: BufferHandle) -> Result<(), BackendError> {
        let freed = self.buffers.remove(&handle);
        freed.map(drop).ok_or(BackendError::InvalidBuffer(handle))
    }

    /// The Metal buffer of a handle.
    ///
    /// # Errors
    /// [`BackendError::InvalidBuffer`].
    pub fn get_buffer(&self, handle: BufferHandle) -> Result<&Buffer, BackendError> {
        let buffer = self.buffers.get(&handle);
        buffer.ok_or(BackendError::InvalidBuffer(handle))
    }

    /// Copies bytes to the start of a buffer, after waiting for commands that use it.
    ///
    /// # Errors
    /// [`BackendError::InvalidBuffer`]; [`BackendError::Other`] if the buffer is too short.
    pub fn copy_to_buffer(&self, handle: BufferHandle, data: &[u8]) -> Result<(), BackendError> {
        let op = "copy_to_buffer";
        let slice = slice_of(op, self.get_buffer(handle)?, 0, data.len())?;
        // A buffer reports a failed kernel once, to its next user; a write does not depend on it.
        let _ = slice.buffer().take_failure();
        let written = slice.buffer().write(slice.offset(), data);
        written.map_err(|e| device_error(op, e).into())
    }

    /// Copies bytes from the start of a buffer, after waiting for commands that write it.
    ///
    /// # Errors
    /// As [`MetalMemoryManager::copy_to_buffer`], and errors of those commands.
    pub fn copy_from_buffer(
        &self,
        handle: BufferHandle,
        data: &mut [u8],
    ) -> Result<(), BackendError> {
        let op = "copy_from_buffer";
        let slice = slice_of(op, self.get_buffer(handle)?, 0, data.len())?;
        let read = slice.buffer().read(slice.offset(), data);
        read.map_err(|e| device_error(op, e).into())
    }

    /// Size of a buffer in bytes.
    ///
    /// # Errors
    /// [`BackendError::InvalidBuffer`].
    pub fn buffer_size(&self, handle: BufferHandle) -> Result<usize, BackendError> {
        Ok(self.get_buffer(handle)?.length())
    }
}
