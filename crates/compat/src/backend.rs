//! Backend objects that several of the documents share: memory by buffer, by pointer and by handle.

mod cpu;
mod error;
mod handles;
mod kernel_names;
mod metal;
mod program_cache;

use std::any::Any;

use bessemer::program::{ExecutionParams, LaunchConfig, Program};
use bessemer::{DType, Device, Error, Result, Shape, Tensor};

pub use cpu::CpuBackend;
pub use error::BackendError;
pub use handles::{BufferHandle, PoolHandle};
pub use metal::{MTLResourceOptions, MetalBackend, MetalDevice};

pub(crate) use kernel_names::{OPS, build as build_kernel};
pub(crate) use metal::slice_of;
pub(crate) use program_cache::ProgramCache;

/// Memory of a device, by pointer and by handle.
///
/// Arguments are checked before anything is touched: wrong lengths and unknown, freed or foreign pointers and handles are
/// errors.
pub trait Backend: Send + Sync {
    /// Returns `true` if the backend is available on this machine.
    fn is_available() -> bool
    where
        Self: Sized;

    /// Creates the backend.
    ///
    /// # Errors
    /// [`Error::Device`], if it is not available.
    fn initialize() -> Result<Self>
    where
        Self: Sized;

    /// The device that computes.
    fn device(&self) -> &Device;

    /// Allocates zeroed memory that host and device share. Zero bytes give a null pointer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<*mut u8>;

    /// Frees memory of [`Backend::allocate`]. A null pointer is ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other pointer, and for a size that does not match.
    fn deallocate(&self, pointer: *mut u8, bytes: usize) -> Result<()>;

    /// Copies bytes into memory of [`Backend::allocate`].
    ///
    /// # Errors
    /// [`Error::Invalid`].
    fn copy_from_host(&self, to: *mut u8, bytes: &[u8]) -> Result<()>;

    /// Copies bytes out of memory of [`Backend::allocate`], after waiting for pending writes.
    ///
    /// # Errors
    /// [`Error::Invalid`], and errors of the pending writes.
    fn copy_to_host(&self, bytes: &mut [u8], from: *const u8) -> Result<()>;

    /// Allocates a zeroed buffer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn allocate_buffer(&self, bytes: usize) -> Result<BufferHandle>;

    /// Frees a buffer; its handle is never valid again.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown, freed or foreign handle, here and below.
    fn free_buffer(&self, handle: BufferHandle) -> Result<()>;

    /// Copies bytes to the start of a buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`], also if the buffer is too short.
    fn copy_to_buffer(&self, handle: BufferHandle, bytes: &[u8]) -> Result<()>;

    /// Copies bytes from the start of a buffer.
    ///
    /// # Errors
    /// As [`Backend::copy_to_buffer`], and errors of the pending writes.
    fn copy_from_buffer(&self, handle: BufferHandle, bytes: &mut [u8]) -> Result<()>;

    /// Size of a buffer in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    fn buffer_size(&self, handle: BufferHandle) -> Result<usize>;

    /// Allocates a pool: a zeroed buffer that is read and written at offsets.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn allocate_pool(&self, bytes: usize) -> Result<PoolHandle>;

    /// Frees a pool.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    fn free_pool(&self, handle: PoolHandle) -> Result<()>;

    /// Copies bytes into a pool.
    ///
    /// # Errors
    /// [`Error::Invalid`], also for a range outside the pool.
    fn copy_to_pool(&self, handle: PoolHandle, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Copies bytes out of a pool.
    ///
    /// # Errors
    /// As [`Backend::copy_to_pool`].
    fn copy_from_pool(&self, handle: PoolHandle, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Size of a pool in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    fn pool_size(&self, handle: PoolHandle) -> Result<usize>;

    /// The start of a buffer as a tensor.
    ///
    /// # Errors
    /// [`Error::Invalid`], also if the buffer is too short.
    fn tensor(&self, handle: BufferHandle, dtype: DType, shape: Shape) -> Result<Tensor>;

    /// Computes a tensor into the start of a buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`], also if the buffer is too short, and errors of the evaluation.
    fn store(&self, handle: BufferHandle, tensor: Tensor) -> Result<()>;

    /// Runs a program and waits for it.
    ///
    /// # Errors
    /// Faults of the program with the instruction, and [`BackendError::ProgramError`] for a program that the backend refuses;
    /// the backend stays usable.
    fn execute_program(
        &self,
        program: &Program,
        config: &LaunchConfig,
    ) -> Result<(), BackendError> {
        self.execute_program_with_params(program, &ExecutionParams::new(*config))
    }

    /// Runs a program with initial registers and waits for it. Programs use the handles of this backend's buffers and pools;
    /// handle 0 is its boundary pool.
    ///
    /// # Errors
    /// As [`Backend::execute_program`].
    fn execute_program_with_params(
        &self,
        program: &Program,
        params: &ExecutionParams,
    ) -> Result<(), BackendError>;

    /// The backend as [`Any`], to downcast.
    fn as_any(&self) -> &dyn Any;

    /// The backend as mutable [`Any`], to downcast.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Error of the device layer in an op.
pub(crate) fn device_error(op: &'static str, source: bessemer_hal::Error) -> Error {
    Error::Device {
        op,
        source: Box::new(source),
    }
}
