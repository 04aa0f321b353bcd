//! Device memory.
#![expect(
    unsafe_code,
    reason = "host slices over device memory; the rules for pending submissions and mapping make them sound"
)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;

use crate::access::Access;
use crate::device::DeviceShared;
use crate::driver;
use crate::error::{Error, Result};
use crate::storage::StorageMode;
use crate::submission::Completion;

/// Device memory. Cloning shares it; it is freed when no clone, slice or submission uses it any more.
///
/// Two rules make host access sound. Mapping a slice waits until no submission in flight accesses the bytes in a
/// conflicting way. And commands that conflict with a slice that the host still holds are rejected with
/// [`Error::Mapped`] when they are committed.
///
/// When a submission that writes the buffer fails, the contents are lost. The buffer then stores that failure, and
/// every host access that can see the bytes returns it, until [`Buffer::take_failure`] takes it or the host overwrites
/// the whole buffer with [`Buffer::write`]. [`Buffer::failure`] returns it without clearing it; writes always succeed.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub(crate) inner: Arc<BufferInner>,
}

#[derive(Debug)]
pub(crate) struct BufferInner {
    pub(crate) id: u64,
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) raw: Arc<dyn driver::Buffer>,
    length: usize,
    mode: StorageMode,
    counted: bool,
    /// Whether it has no memory ([`Buffer::stand_in`]).
    pub(crate) stand_in: bool,
    label: Mutex<Option<String>>,
    usage: Mutex<Usage>,
}

/// Current users of the bytes.
#[derive(Debug, Default)]
struct Usage {
    readers: usize,
    writer: bool,
    pending: Vec<Pending>,
    /// The first failure of a submission that writes the buffer; the contents have been lost since then.
    failure: Option<Error>,
}

#[derive(Debug)]
struct Pending {
    completion: Arc<Completion>,
    writes: bool,
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        if self.counted {
            self.device.release(self.length);
        }
    }
}

impl Buffer {
    pub(crate) fn new(
        device: Arc<DeviceShared>,
        raw: Arc<dyn driver::Buffer>,
        length: usize,
        mode: StorageMode,
        counted: bool,
    ) -> Self {
        let id = device.next_id();
        Self {
            inner: Arc::new(BufferInner {
                id,
                device,
                raw,
                length,
                mode,
                counted,
                stand_in: false,
                label: Mutex::default(),
                usage: Mutex::default(),
            }),
        }
    }

    /// A buffer without memory, to build launches that are bound to real buffers later.
    pub(crate) fn stand_in(device: Arc<DeviceShared>, length: usize) -> Self {
        let id = device.next_id();
        Self {
            inner: Arc::new(BufferInner {
                id,
                device,
                raw: Arc::new(NoMemory),
                length,
                mode: StorageMode::Private,
                counted: false,
                stand_in: true,
                label: Mutex::default(),
                usage: Mutex::default(),
            }),
        }
    }

    /// Identifier of the buffer, unique in the process.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.inner.length
    }

    /// The storage mode.
    pub fn storage_mode(&self) -> StorageMode {
        self.inner.mode
    }

    /// The name given with [`Buffer::set_label`].
    pub fn label(&self) -> Option<String> {
        lock(&self.inner.label).clone()
    }

    /// Names the buffer in errors, in reports and in GPU tools.
    pub fn set_label(&self, label: &str) {
        self.inner.raw.set_label(label);
        *lock(&self.inner.label) = Some(label.to_owned());
    }

    /// The buffer's name in error messages.
    pub(crate) fn describe(&self) -> String {
        match &*lock(&self.inner.label) {
            Some(label) => format!("buffer `{label}`"),
            None => format!("buffer #{}", self.inner.id),
        }
    }

    /// Host address of the bytes; `None` for private storage. A caller that reads or writes through it must make sure
    /// that no submission in flight does; the slices below check this.
    pub fn contents(&self) -> Option<NonNull<u8>> {
        self.inner.raw.contents()
    }

    /// A byte range of this buffer, for bindings and copies.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: Range<usize>) -> Result<BufferSlice> {
        let len = range.end.saturating_sub(range.start);
        if range.end > self.length() || range.start > range.end {
            return Err(self.out_of_bounds(range.start, len));
        }
        Ok(BufferSlice {
            buffer: self.clone(),
            offset: range.start,
            length: len,
        })
    }

    /// The bytes as values, without a copy. Waits for submissions that write the buffer.
    ///
    /// # Errors
    /// [`Error::Storage`] for private buffers, [`Error::Misaligned`] when the length is not a multiple of
    /// the value's size, the stored [failure](Buffer::failure), and [`Error::Mapped`] while a mutable slice is held.
    pub fn as_slice<T: Pod>(&self) -> Result<HostSlice<'_, T>> {
        let (pointer, count) = self.host_values::<T>()?;
        self.acquire(Access::Read)?;
        Ok(HostSlice {
            buffer: &self.inner,
            pointer,
            count,
            values: PhantomData,
        })
    }

    /// The bytes as mutable values. Waits for all submissions that use the buffer.
    ///
    /// # Errors
    /// As [`Buffer::as_slice`], and [`Error::Mapped`] while any other slice is held.
    pub fn as_mut_slice<T: Pod>(&self) -> Result<HostSliceMut<'_, T>> {
        self.map_mut(Access::ReadWrite)
    }

    /// Maps the bytes for writing, or for reading and writing.
    fn map_mut<T: Pod>(&self, access: Access) -> Result<HostSliceMut<'_, T>> {
        let (pointer, count) = self.host_values::<T>()?;
        self.acquire(access)?;
        Ok(HostSliceMut {
            buffer: &self.inner,
            pointer,
            count,
            values: PhantomData,
        })
    }

    /// Copies all values.
    ///
    /// # Errors
    /// As [`Buffer::as_slice`].
    pub fn to_vec<T: Pod>(&self) -> Result<Vec<T>> {
        Ok(self.as_slice()?.to_vec())
    }

    /// Copies values from a byte offset.
    ///
    /// # Errors
    /// As [`Buffer::as_slice`], and [`Error::OutOfBounds`].
    pub fn read<T: Pod>(&self, offset: usize, values: &mut [T]) -> Result<()> {
        let target: &mut [u8] = bytemuck::cast_slice_mut(values);
        self.slice_within(offset, target.len())?;
        let source = self.as_slice::<u8>()?;
        target.copy_from_slice(&source[offset..offset + target.len()]);
        Ok(())
    }

    /// Copies values to a byte offset, and announces the change for managed buffers. A write of the whole buffer
    /// also clears its [failure](Buffer::failure).
    ///
    /// # Errors
    /// [`Error::Storage`] for private buffers, [`Error::OutOfBounds`], and [`Error::Mapped`] while a slice is held.
    pub fn write<T: Pod>(&self, offset: usize, values: &[T]) -> Result<()> {
        let source: &[u8] = bytemuck::cast_slice(values);
        self.slice_within(offset, source.len())?;
        self.map_mut::<u8>(Access::Write)?[offset..offset + source.len()].copy_from_slice(source);
        if source.len() == self.length() {
            lock(&self.inner.usage).failure = None;
        }
        if self.inner.mode == StorageMode::Managed {
            self.did_modify_range(offset..offset + source.len())?;
        }
        Ok(())
    }

    /// The error of the first submission that failed to write the buffer, if its contents have been lost since then.
    /// Waits for submissions that write the buffer.
    pub fn failure(&self) -> Option<Error> {
        self.settled().failure.clone()
    }

    /// As [`Buffer::failure`], and clears it: the caller takes responsibility for the contents, which it has rewritten
    /// or will not read before they are.
    pub fn take_failure(&self) -> Option<Error> {
        self.settled().failure.take()
    }

    /// Waits until no submission that writes the buffer is in flight, and returns the usage.
    fn settled(&self) -> MutexGuard<'_, Usage> {
        loop {
            let mut usage = lock(&self.inner.usage);
            usage.settle();
            let Some(writer) = usage.next_conflict(Access::Read) else {
                return usage;
            };
            drop(usage);
            // `settle` handles the outcome.
            let _ = writer.wait();
        }
    }

    /// Tells the device that the host has written part of a managed buffer.
    ///
    /// # Errors
    /// [`Error::Storage`] for other modes, [`Error::OutOfBounds`].
    pub fn did_modify_range(&self, range: Range<usize>) -> Result<()> {
        if self.inner.mode != StorageMode::Managed {
            return Err(
                self.storage_error("didModifyRange", "only managed buffers have two copies")
            );
        }
        self.slice(range.clone())?;
        // The device copy changes, so nothing in flight may use it.
        self.acquire(Access::Write)?;
        self.inner.raw.did_modify_range(range);
        lock(&self.inner.usage).writer = false;
        Ok(())
    }

    /// Returns whether both are the same memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn slice_within(&self, offset: usize, len: usize) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.length() => Ok(()),
            _ => Err(self.out_of_bounds(offset, len)),
        }
    }

    pub(crate) fn out_of_bounds(&self, offset: usize, len: usize) -> Error {
        Error::OutOfBounds {
            buffer: self.describe(),
            offset,
            len,
            length: self.length(),
        }
    }

    pub(crate) fn storage_error(&self, operation: &'static str, remedy: &'static str) -> Error {
        Error::Storage {
            buffer: self.describe(),
            mode: self.inner.mode,
            operation,
            remedy,
        }
    }

    pub(crate) fn stand_in_error(&self) -> Error {
        self.storage_error(
            "use by commands",
            "it is a stand-in without memory; put a buffer in its place with `Launch::with_buffers`",
        )
    }

    fn host_values<T: Pod>(&self) -> Result<(NonNull<T>, usize)> {
        let Some(pointer) = self.inner.raw.contents() else {
            return Err(self.storage_error(
                "host access",
                "copy to a shared buffer first, with `Commands::copy`",
            ));
        };
        let size = size_of::<T>();
        if size == 0 || !self.length().is_multiple_of(size) {
            return Err(Error::Misaligned {
                what: format!("the length of {}", self.describe()),
                value: self.length(),
                alignment: size,
            });
        }
        if !pointer.addr().get().is_multiple_of(align_of::<T>()) {
            return Err(Error::Misaligned {
                what: format!("the address of {}", self.describe()),
                value: pointer.addr().get(),
                alignment: align_of::<T>(),
            });
        }
        Ok((pointer.cast(), self.length() / size))
    }

    /// Waits until nothing in flight conflicts, then records the host's own access. A write-only access succeeds even if
    /// the contents are lost.
    fn acquire(&self, access: Access) -> Result<()> {
        loop {
            let conflicting = {
                let mut usage = lock(&self.inner.usage);
                if usage.writer || (access.writes() && usage.readers > 0) {
                    return Err(self.mapped());
                }
                usage.settle();
                if access.reads()
                    && let Some(failure) = &usage.failure
                {
                    return Err(failure.clone());
                }
                match usage.next_conflict(access) {
                    Some(completion) => completion,
                    None if access.writes() => {
                        usage.writer = true;
                        return Ok(());
                    }
                    None => {
                        usage.readers += 1;
                        return Ok(());
                    }
                }
            };
            // `settle` handles the outcome.
            let _ = conflicting.wait();
        }
    }

    fn mapped(&self) -> Error {
        Error::Mapped {
            buffer: self.describe(),
        }
    }

    /// Records that a submission uses the buffer, unless the host currently does.
    pub(crate) fn add_pending(&self, completion: &Arc<Completion>, writes: bool) -> Result<()> {
        let mut usage = lock(&self.inner.usage);
        if usage.writer || (writes && usage.readers > 0) {
            return Err(self.mapped());
        }
        usage.settle();
        usage.pending.push(Pending {
            completion: completion.clone(),
            writes,
        });
        Ok(())
    }

    /// Removes a submission that was not accepted.
    pub(crate) fn remove_pending(&self, completion: &Arc<Completion>) {
        lock(&self.inner.usage)
            .pending
            .retain(|p| !Arc::ptr_eq(&p.completion, completion));
    }
}

impl Usage {
    /// Removes submissions that have ended, and keeps the failure of the first that should have written the buffer.
    fn settle(&mut self) {
        let failure = &mut self.failure;
        self.pending.retain(|p| {
            if !p.completion.is_done() {
                return true;
            }
            if p.writes && failure.is_none() {
                *failure = p.completion.error();
            }
            false
        });
    }

    /// Returns the first submission in flight that a host access must wait for.
    fn next_conflict(&self, access: Access) -> Option<Arc<Completion>> {
        let conflicts = |p: &&Pending| access.writes() || p.writes;
        let first = self.pending.iter().find(conflicts);
        first.map(|p| Arc::clone(&p.completion))
    }
}

/// Locks; a panic elsewhere cannot leave these small states half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's side of a stand-in. The front passes it to no driver.
#[derive(Debug)]
struct NoMemory;

impl driver::Buffer for NoMemory {
    fn contents(&self) -> Option<NonNull<u8>> {
        None
    }

    fn did_modify_range(&self, _: Range<usize>) {}

    fn set_label(&self, _: &str) {}
}

/// A byte range of a buffer.
#[derive(Debug, Clone)]
pub struct BufferSlice {
    pub(crate) buffer: Buffer,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

impl BufferSlice {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// First byte.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.length
    }

    pub(crate) fn region(&self) -> driver::Region {
        driver::Region {
            buffer: self.buffer.inner.raw.clone(),
            offset: self.offset,
            length: self.length,
        }
    }
}

impl From<&Buffer> for BufferSlice {
    fn from(buffer: &Buffer) -> Self {
        Self {
            buffer: buffer.clone(),
            offset: 0,
            length: buffer.length(),
        }
    }
}

impl From<&Self> for BufferSlice {
    fn from(slice: &Self) -> Self {
        slice.clone()
    }
}

/// Values of a buffer, read in place.
#[derive(Debug)]
pub struct HostSlice<'a, T> {
    buffer: &'a BufferInner,
    pointer: NonNull<T>,
    count: usize,
    values: PhantomData<&'a [T]>,
}

impl<T: Pod> Deref for HostSlice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `host_values` checked alignment and count, the buffer lives as long as the borrow, any
        // bit pattern is a `T`, and `acquire` excludes device and host writers while this slice exists.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.count) }
    }
}

impl<T> Drop for HostSlice<'_, T> {
    fn drop(&mut self) {
        lock(&self.buffer.usage).readers -= 1;
    }
}

/// Values of a buffer, written in place.
#[derive(Debug)]
pub struct HostSliceMut<'a, T> {
    buffer: &'a BufferInner,
    pointer: NonNull<T>,
    count: usize,
    values: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Deref for HostSliceMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for `HostSlice`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.count) }
    }
}

impl<T: Pod> DerefMut for HostSliceMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `HostSlice`, and `acquire` made this the only user of the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.count) }
    }
}

impl<T> Drop for HostSliceMut<'_, T> {
    fn drop(&mut self) {
        lock(&self.buffer.usage).writer = false;
    }
}
