//! Backends as objects: buffers, pointers, handles and kernels by hand.
//!
//! Tensors need none of this. It is for programs that manage memory themselves, in the words of the systems
//! they come from; every face is thin, and behind each one is the same device, stream and pool that tensors
//! use.
//!
//! | who | what |
//! |---|---|
//! | [`metal::MetalBackend`], [`metal::MetalOps`] | device buffers, pointers into shared memory, ops on both |
//! | [`kernel`] | `init_backend` and the calls a transformer makes |
//! | [`array`](mod@array) | functions of arrays, on a backend that was measured to be the quickest |
//! | [`Backend`], [`executor`] | handles with generations, typed buffers in classes |

#[cfg(target_vendor = "apple")]
mod accelerate;
pub mod array;
mod cpu;
pub mod executor;
mod handles;
pub mod kernel;
pub mod metal;

use std::any::Any;

pub use cpu::CpuBackend;
pub use handles::{BufferHandle, PoolHandle};

use crate::{DType, Device, Result, Shape, Tensor};

/// A device as a set of calls: memory by pointer and by handle.
///
/// All checks are made before anything is touched: lengths, unknown, freed and foreign pointers and handles
/// are errors.
pub trait Backend: Send + Sync {
    /// Whether the backend can be had on this machine.
    fn is_available() -> bool
    where
        Self: Sized;

    /// The backend, ready.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn initialize() -> Result<Self>
    where
        Self: Sized;

    /// The device that computes.
    fn device(&self) -> &Device;

    /// Memory that host and device share, zeroed. A null pointer for no bytes.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<*mut u8>;

    /// Gives memory of [`Backend::allocate`] back. A null pointer is nothing to give back.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for any other pointer, and for another size than it has.
    fn deallocate(&self, pointer: *mut u8, bytes: usize) -> Result<()>;

    /// Copies bytes into memory of [`Backend::allocate`], which must have room for them.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`].
    fn copy_from_host(&self, to: *mut u8, bytes: &[u8]) -> Result<()>;

    /// Copies bytes out of memory of [`Backend::allocate`], once what writes them has run.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], and what the device says of what wrote them.
    fn copy_to_host(&self, bytes: &mut [u8], from: *const u8) -> Result<()>;

    /// A buffer of zeros.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn allocate_buffer(&self, bytes: usize) -> Result<BufferHandle>;

    /// Gives a buffer back; its handle is never valid again.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an unknown, freed or foreign handle, here and below.
    fn free_buffer(&self, handle: BufferHandle) -> Result<()>;

    /// Copies bytes to the beginning of a buffer.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], also if they are more than the buffer has.
    fn copy_to_buffer(&self, handle: BufferHandle, bytes: &[u8]) -> Result<()>;

    /// Copies bytes from the beginning of a buffer.
    ///
    /// # Errors
    /// As [`Backend::copy_to_buffer`], and what the device says of what wrote them.
    fn copy_from_buffer(&self, handle: BufferHandle, bytes: &mut [u8]) -> Result<()>;

    /// Bytes of a buffer.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`].
    fn buffer_size(&self, handle: BufferHandle) -> Result<usize>;

    /// A pool: a buffer that is written and read in pieces.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn allocate_pool(&self, bytes: usize) -> Result<PoolHandle>;

    /// Gives a pool back.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`].
    fn free_pool(&self, handle: PoolHandle) -> Result<()>;

    /// Copies bytes into a pool.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], also for a range outside of it.
    fn copy_to_pool(&self, handle: PoolHandle, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Copies bytes out of a pool.
    ///
    /// # Errors
    /// As [`Backend::copy_to_pool`].
    fn copy_from_pool(&self, handle: PoolHandle, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Bytes of a pool.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`].
    fn pool_size(&self, handle: PoolHandle) -> Result<usize>;

    /// The beginning of a buffer as a tensor, to compute with.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], also if the buffer is too short.
    fn tensor(&self, handle: BufferHandle, dtype: DType, shape: Shape) -> Result<Tensor>;

    /// Computes a tensor into the beginning of a buffer, which must have room for it.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], and what computing it gives.
    fn store(&self, handle: BufferHandle, tensor: Tensor) -> Result<()>;

    /// The backend as what it is.
    fn as_any(&self) -> &dyn Any;

    /// The backend as what it is, to be changed.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}
