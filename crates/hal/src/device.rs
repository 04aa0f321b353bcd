//! Devices: finding them, allocating, compiling, recording.
#![expect(
    unsafe_code,
    reason = "declares the unsafe promises a caller makes about its kernels and its memory"
)]

use std::any::Any;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::commands::Commands;
use crate::driver::{self, Contents, HostMemory, Owner};
use crate::error::{Error, Result};
use crate::info::{DeviceInfo, Limits};
use crate::library::{CompileOptions, Library};
use crate::matrix::{MatrixProduct, PreparedProduct};
use crate::storage::StorageMode;

/// Alignment of the address and the length of memory that is adopted without a copy: the page size of Apple silicon,
/// which is a multiple of the page size of other systems.
pub const NO_COPY_ALIGNMENT_BYTES: usize = 16 * 1024;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A device. Cloning is cheap; every clone is the same device.
#[derive(Debug, Clone)]
pub struct Device {
    pub(crate) shared: Arc<DeviceShared>,
}

/// Shared state of all objects of a device.
#[derive(Debug)]
pub(crate) struct DeviceShared {
    pub(crate) id: u64,
    pub(crate) raw: Arc<dyn driver::Device>,
    allocated: AtomicUsize,
    limit: AtomicUsize,
    allocations: Countdown,
    submissions: Countdown,
}

/// Countdown to an injected failure.
#[derive(Debug, Default)]
struct Countdown(AtomicU64);

impl Countdown {
    fn arm(&self, calls: u64) {
        self.0.store(calls, Ordering::SeqCst);
    }

    /// Returns true on the call that it was armed for.
    fn fires(&self) -> bool {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
            == Ok(1)
    }
}

impl DeviceShared {
    pub(crate) fn next_id(&self) -> u64 {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn name(&self) -> &str {
        &self.raw.info().name
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.raw.info().limits
    }

    /// Rejects a buffer of another device, or one without memory.
    pub(crate) fn expect_usable(&self, buffer: &Buffer) -> Result<()> {
        self.expect_own(buffer)?;
        if buffer.inner.stand_in {
            return Err(buffer.stand_in_error());
        }
        Ok(())
    }

    /// Rejects a buffer of another device.
    pub(crate) fn expect_own(&self, buffer: &Buffer) -> Result<()> {
        if buffer.inner.device.id == self.id {
            Ok(())
        } else {
            Err(Error::WrongDevice {
                what: buffer.describe(),
                device: self.name().to_owned(),
            })
        }
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn submission_fails(&self) -> bool {
        self.submissions.fires()
    }

    fn out_of_memory(&self, requested: usize) -> Error {
        Error::OutOfMemory {
            device: self.name().to_owned(),
            requested,
            in_use: self.allocated.load(Ordering::Relaxed),
            limit: self.limit.load(Ordering::Relaxed),
        }
    }

    /// Adds bytes to the allocated ones, unless they would exceed the limit.
    fn reserve(&self, bytes: usize) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        self.allocated
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |allocated| {
                allocated.checked_add(bytes).filter(|sum| *sum <= limit)
            })
            .map(|_| ())
            .map_err(|_| self.out_of_memory(bytes))
    }
}

impl Device {
    /// Wraps a driver's device.
    pub fn from_driver(raw: Arc<dyn driver::Device>) -> Self {
        Self {
            shared: Arc::new(DeviceShared {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                raw,
                allocated: AtomicUsize::new(0),
                limit: AtomicUsize::new(usize::MAX),
                allocations: Countdown::default(),
                submissions: Countdown::default(),
            }),
        }
    }

    /// Properties and limits.
    pub fn info(&self) -> &DeviceInfo {
        self.shared.raw.info()
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// Bytes in buffers that this device allocated and that still exist.
    pub fn allocated_bytes(&self) -> usize {
        self.shared.allocated.load(Ordering::Relaxed)
    }

    /// Limits the total bytes of all buffers; allocations beyond it fail with [`Error::OutOfMemory`].
    pub fn set_memory_limit(&self, bytes: usize) {
        self.shared.limit.store(bytes, Ordering::Relaxed);
    }

    /// Makes the `calls`-th allocation from now fail, once: for tests of code on top of this layer. 0 disarms.
    pub fn fail_allocation(&self, calls: u64) {
        self.shared.allocations.arm(calls);
    }

    /// Makes the `calls`-th submission from now fail as if the device were lost, once. 0 disarms.
    pub fn fail_submission(&self, calls: u64) {
        self.shared.submissions.arm(calls);
    }

    /// Allocates a zeroed buffer. A length of 0 is legal.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::BufferTooLong`], [`Error::Unsupported`] for a mode the device lacks.
    pub fn buffer(&self, length: usize, mode: StorageMode) -> Result<Buffer> {
        self.allocate(length, mode, Contents::Zeroed)
    }

    /// Allocates a buffer with unspecified contents, for callers that write all bytes before they read any: no time is
    /// spent on clearing it.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    pub fn buffer_uninit(&self, length: usize, mode: StorageMode) -> Result<Buffer> {
        self.allocate(length, mode, Contents::Unspecified)
    }

    fn allocate(&self, length: usize, mode: StorageMode, contents: Contents) -> Result<Buffer> {
        let limit = self.shared.limits().max_buffer_length;
        if length > limit {
            return Err(Error::BufferTooLong {
                requested: length,
                limit,
            });
        }
        if self.shared.allocations.fires() {
            return Err(self.shared.out_of_memory(length));
        }
        self.shared.reserve(length)?;
        let raw = self.shared.raw.allocate(length, mode, contents);
        let raw = raw.inspect_err(|_| self.shared.release(length))?;
        Ok(Buffer::new(self.shared.clone(), raw, length, mode, true))
    }

    /// A stand-in for a buffer of `length` bytes: launches can be built with it, but only be recorded once
    /// [`Launch::with_buffers`](crate::Launch::with_buffers) has put a real buffer in its place. It has no memory, so the
    /// host cannot access it, and commands that use it are rejected with [`Error::Storage`].
    pub fn stand_in(&self, length: usize) -> Buffer {
        Buffer::stand_in(self.shared.clone(), length)
    }

    /// Allocates a buffer with a copy of `values`. For private storage, copies through a shared buffer and waits.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    pub fn buffer_with_data<T: Pod>(&self, values: &[T], mode: StorageMode) -> Result<Buffer> {
        let buffer = self.buffer_uninit(size_of_val(values), mode)?;
        if mode == StorageMode::Private {
            let staging = self.buffer_with_data(values, StorageMode::Shared)?;
            let mut commands = self.commands();
            commands.copy(&staging, &buffer)?;
            commands.commit()?.wait()?;
        } else {
            buffer.write(0, values)?;
        }
        Ok(buffer)
    }

    /// Makes a shared buffer of the caller's memory without copying it: a mapped file, for example.
    /// `owner` is dropped when neither the buffer nor a submission uses the memory any more.
    ///
    /// # Errors
    /// [`Error::Misaligned`] unless address and length are multiples of [`NO_COPY_ALIGNMENT_BYTES`],
    /// [`Error::BufferTooLong`], [`Error::Unsupported`].
    ///
    /// # Safety
    /// `pointer` must be valid for reads and writes of `length` bytes until `owner` is dropped, and
    /// nothing else may access the memory in that time, except that memory which only the host and
    /// kernels *read* may be mapped read-only.
    pub unsafe fn buffer_no_copy(
        &self,
        pointer: NonNull<u8>,
        length: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Buffer> {
        for (what, value) in [
            ("the address of caller memory", pointer.addr().get()),
            ("the length of caller memory", length),
        ] {
            if !value.is_multiple_of(NO_COPY_ALIGNMENT_BYTES) {
                return Err(Error::Misaligned {
                    what: what.to_owned(),
                    value,
                    alignment: NO_COPY_ALIGNMENT_BYTES,
                });
            }
        }
        let limit = self.shared.limits().max_buffer_length;
        if length > limit {
            return Err(Error::BufferTooLong {
                requested: length,
                limit,
            });
        }
        let raw = self.shared.raw.adopt(HostMemory {
            pointer,
            length,
            owner: Owner(Box::new(owner)),
        })?;
        Ok(Buffer::new(
            self.shared.clone(),
            raw,
            length,
            StorageMode::Shared,
            false,
        ))
    }

    /// Compiles MSL.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's diagnostics, [`Error::Toolchain`], [`Error::Unsupported`].
    ///
    /// # Safety
    /// The kernels must stay inside the buffers they are bound to, be free of data races and terminate, for
    /// every launch that passes validation. Devices that run kernels in a separate process need no
    /// such promise: see [`Device::library_contained`].
    pub unsafe fn library(&self, source: &str, options: &CompileOptions) -> Result<Library> {
        span!(DEBUG, "library", label = options.label.as_str());
        let raw = self.shared.raw.compile(source, options)?;
        Ok(Library::new(
            self.shared.clone(),
            raw,
            options.label.clone(),
        ))
    }

    /// Compiles untrusted MSL for a device on which a kernel can do no harm: the software
    /// device in isolated mode, or the recording device.
    ///
    /// # Errors
    /// As [`Device::library`], and [`Error::Unsupported`] on every other device.
    pub fn library_contained(&self, source: &str, options: &CompileOptions) -> Result<Library> {
        if !self.shared.raw.contains_kernels() {
            return Err(Error::Unsupported {
                what: "running untrusted kernels".to_owned(),
                device: self.name().to_owned(),
            });
        }
        // SAFETY: the device isolates kernels from this process's memory.
        unsafe { self.library(source, options) }
    }

    /// Starts recording commands.
    pub fn commands(&self) -> Commands {
        Commands::new(self.shared.clone())
    }

    /// Captures submissions into a `.gputrace` file until the returned guard is dropped.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on devices without GPU capture.
    pub fn capture(&self, path: &Path) -> Result<Capture> {
        self.shared.raw.start_capture(path)?;
        Ok(Capture {
            device: self.shared.clone(),
        })
    }

    /// Keeps the memory of all buffers resident until the returned guard is dropped, even while the device is idle.
    /// Without it, the system evicts the memory after about a second, and the next command buffer waits for it.
    pub fn keep_resident(&self) -> Residency {
        Residency {
            _kept: self.shared.raw.keep_resident(),
        }
    }

    /// Returns whether [`Commands::multiply`] is supported: the device has a library that multiplies matrices.
    pub fn multiplies_matrices(&self) -> bool {
        self.shared.raw.multiplies_matrices()
    }

    /// Prepares a matrix product for [`Commands::multiply_prepared`](crate::Commands::multiply_prepared). The library may
    /// refuse one for internal reasons, such as memory; the caller can then fall back to its own kernel.
    ///
    /// # Errors
    /// [`Error::Unsupported`], and as [`Commands::multiply`](crate::Commands::multiply).
    pub fn prepare_product(&self, product: MatrixProduct) -> Result<PreparedProduct> {
        PreparedProduct::new(&self.shared, product)
    }

    /// Returns whether both are the same device.
    pub fn is(&self, other: &Self) -> bool {
        self.shared.id == other.shared.id
    }

    /// Downcasts to the driver's device.
    pub fn driver<T: driver::Device>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.shared.raw;
        any.downcast_ref()
    }
}

/// Guard that keeps the memory of a device resident until it is dropped.
#[must_use = "memory is kept resident until this is dropped"]
pub struct Residency {
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Residency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Residency")
    }
}

/// A running GPU capture; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the capture ends when this is dropped"]
pub struct Capture {
    device: Arc<DeviceShared>,
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.device.raw.stop_capture();
    }
}
