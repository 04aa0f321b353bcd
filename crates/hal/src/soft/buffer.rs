//! Buffers of the software device.
#![expect(
    unsafe_code,
    reason = "maps memory and copies between the host and device copies of a buffer"
)]

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{self, HostMemory};
use crate::storage::StorageMode;

/// Kind of memory mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Ordinary private memory.
    Plain,
    /// Between guard pages that fault on access.
    Guarded,
    /// Shared with the child processes of the device.
    Shared,
}

/// A buffer: one allocation, or two for managed storage and for adopted memory that a child process must see.
#[derive(Debug)]
pub(crate) struct Buffer {
    length: usize,
    mode: StorageMode,
    device: BufferMemory,
    /// The host's copy of a managed buffer.
    host: Option<Mapping>,
    in_use: Arc<BytesInUse>,
}

/// Bytes in all live buffers of a device.
#[derive(Debug, Default)]
pub(crate) struct BytesInUse(AtomicUsize);

impl BytesInUse {
    /// Returns the current number.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.in_use.0.fetch_sub(self.length, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum BufferMemory {
    Mapped(Mapping),
    Adopted(HostMemory),
    /// Adopted memory that kernels see as a copy, copied in and out with every submission that uses it.
    Staged(HostMemory, Mapping),
}

impl Buffer {
    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn allocate(
        length: usize,
        mode: StorageMode,
        placement: Placement,
        in_use: &Arc<BytesInUse>,
    ) -> io::Result<Self> {
        let host = match mode {
            // If commands run in a child process, that process writes the host's copy.
            StorageMode::Managed => Some(Mapping::new(length, placement)?),
            StorageMode::Shared | StorageMode::Private => None,
        };
        let device = BufferMemory::Mapped(Mapping::new(length, placement)?);
        in_use.0.fetch_add(length, Ordering::Relaxed);
        Ok(Self {
            length,
            mode,
            device,
            host,
            in_use: in_use.clone(),
        })
    }

    /// Wraps the caller's memory.
    ///
    /// # Errors
    /// Out of memory for the copy that child processes see.
    pub(crate) fn adopt(
        memory: HostMemory,
        placement: Placement,
        in_use: &Arc<BytesInUse>,
    ) -> io::Result<Self> {
        let length = memory.length;
        let device = if placement == Placement::Shared {
            let copy = Mapping::new(length, placement)?;
            BufferMemory::Staged(memory, copy)
        } else {
            BufferMemory::Adopted(memory)
        };
        in_use.0.fetch_add(length, Ordering::Relaxed);
        Ok(Self {
            length,
            mode: StorageMode::Shared,
            device,
            host: None,
            in_use: in_use.clone(),
        })
    }

    /// Poisons fresh memory with a value that no computation would produce.
    pub(crate) fn poison(&self) {
        /// A NaN as `f32`, `f16` and `bf16`; out of range as an index.
        const POISON_BYTE: u8 = 0xff;
        let host = self.host.as_ref().map(|host| host.start);
        for start in [Some(self.pointer()), host].into_iter().flatten() {
            // SAFETY: the memory has this many bytes, and nothing else knows the buffer yet.
            unsafe { start.write_bytes(POISON_BYTE, self.length) };
        }
    }

    /// Address at which kernels access the buffer.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        match &self.device {
            BufferMemory::Mapped(mapping) | BufferMemory::Staged(_, mapping) => mapping.start,
            BufferMemory::Adopted(memory) => memory.pointer,
        }
    }

    /// Length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Copies adopted memory to the mapping that kernels see, before a submission uses the buffer.
    pub(crate) fn stage_in(&self) {
        if let BufferMemory::Staged(memory, copy) = &self.device {
            // SAFETY: both have `length` bytes and do not overlap; the front keeps host writers out while a
            // submission is in flight.
            unsafe {
                ptr::copy_nonoverlapping(
                    memory.pointer.as_ptr(),
                    copy.start.as_ptr(),
                    memory.length,
                );
            }
        }
    }

    /// Copies the mapping back to adopted memory, after a submission wrote to the buffer.
    pub(crate) fn stage_out(&self) {
        if let BufferMemory::Staged(memory, copy) = &self.device {
            // SAFETY: as above, and the front counts the submission as a writer of the memory.
            unsafe {
                ptr::copy_nonoverlapping(
                    copy.start.as_ptr(),
                    memory.pointer.as_ptr(),
                    memory.length,
                );
            }
        }
    }

    /// Copies the device's bytes to the host copy of a managed buffer.
    pub(crate) fn synchronize(&self) {
        if let Some(host) = &self.host {
            // SAFETY: two mappings of `length` bytes each; the front counts the command as a write, so the host
            // has no slice of it.
            unsafe {
                ptr::copy_nonoverlapping(self.pointer().as_ptr(), host.start.as_ptr(), self.length);
            }
        }
    }
}

impl driver::Buffer for Buffer {
    fn contents(&self) -> Option<NonNull<u8>> {
        match (self.mode, &self.device) {
            (StorageMode::Private, _) => None,
            (StorageMode::Managed, _) => self.host.as_ref().map(|host| host.start),
            (StorageMode::Shared, BufferMemory::Staged(memory, _)) => Some(memory.pointer),
            (StorageMode::Shared, _) => Some(self.pointer()),
        }
    }

    fn did_modify_range(&self, range: Range<usize>) {
        if let Some(host) = &self.host {
            // SAFETY: the front checked the range against `length`, which both mappings have, and waited until no
            // submission uses the buffer.
            unsafe {
                ptr::copy_nonoverlapping(
                    host.start.as_ptr().add(range.start),
                    self.pointer().as_ptr().add(range.start),
                    range.len(),
                );
            }
        }
    }

    /// A no-op: no tool would show it, and errors and reports name buffers by the front's labels and by index.
    fn set_label(&self, _: &str) {}
}

/// Zeroed, page-aligned memory from the system.
#[derive(Debug)]
struct Mapping {
    map: NonNull<u8>,
    map_length: usize,
    start: NonNull<u8>,
}

// SAFETY: plain memory that the mapping alone owns; users of the pointer are responsible for races.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives nothing but the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(length: usize, placement: Placement) -> io::Result<Self> {
        let out = || io::Error::from(io::ErrorKind::OutOfMemory);
        // SAFETY: sysconf only reads.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let usable = length
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or_else(out)?;
        let guard = match placement {
            Placement::Guarded => page,
            Placement::Plain | Placement::Shared => 0,
        };
        let map_length = usable
            .checked_add(2 * guard)
            .filter(|l| isize::try_from(*l).is_ok())
            .ok_or_else(out)?;
        let visibility = match placement {
            Placement::Shared => libc::MAP_SHARED,
            Placement::Plain | Placement::Guarded => libc::MAP_PRIVATE,
        };
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                map_length,
                libc::PROT_READ | libc::PROT_WRITE,
                visibility | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast::<u8>()).ok_or_else(out)?;
        // SAFETY: `guard` is at most the mapping's length.
        let start = unsafe { map.add(guard) };
        let mapping = Self {
            map,
            map_length,
            start,
        };
        if placement != Placement::Shared {
            // Child processes run other devices' kernels: they need not see this memory, pay for it or fail for it.
            // SAFETY: the mapping is ours; if the advice is ignored, forking is slower and nothing else.
            unsafe { libc::madvise(map.as_ptr().cast(), map_length, libc::MADV_DONTFORK) };
        }
        for offset in [0, guard + usable] {
            // SAFETY: the guard pages lie inside the mapping and outside the range that `start` exposes.
            let failed = guard > 0
                && unsafe {
                    libc::mprotect(map.add(offset).as_ptr().cast(), guard, libc::PROT_NONE)
                } != 0;
            if failed {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and unused: everything that uses a buffer keeps it alive.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Buffer as _;
    use crate::driver::Owner;

    fn byte(pointer: NonNull<u8>) -> u8 {
        // SAFETY: the first byte of a live buffer.
        unsafe { pointer.read() }
    }

    fn set(pointer: NonNull<u8>, value: u8) {
        // SAFETY: as above.
        unsafe { pointer.write(value) }
    }

    #[test]
    fn a_managed_buffer_has_two_copies_until_it_is_synchronised() {
        let buffer =
            Buffer::allocate(8, StorageMode::Managed, Placement::Plain, &Arc::default()).unwrap();
        let host = buffer.contents().unwrap();
        set(host, 1);
        assert_eq!(byte(buffer.pointer()), 0);
        buffer.did_modify_range(0..8);
        assert_eq!(byte(buffer.pointer()), 1);
        set(buffer.pointer(), 2);
        assert_eq!(byte(host), 1);
        buffer.synchronize();
        assert_eq!(byte(host), 2);
    }

    #[test]
    fn a_private_buffer_has_no_host_contents() {
        for placement in [Placement::Plain, Placement::Guarded, Placement::Shared] {
            let buffer =
                Buffer::allocate(0, StorageMode::Private, placement, &Arc::default()).unwrap();
            assert_eq!(buffer.contents(), None);
        }
    }

    #[test]
    fn adopted_memory_is_staged_if_another_process_runs_the_kernels() {
        let words = Box::leak(Box::new(5_u8));
        let pointer = NonNull::from(words);
        let memory = || HostMemory {
            pointer,
            length: 1,
            owner: Owner(Box::new(())),
        };
        let direct = Buffer::adopt(memory(), Placement::Plain, &Arc::default()).unwrap();
        assert_eq!(direct.pointer(), pointer);
        let staged = Buffer::adopt(memory(), Placement::Shared, &Arc::default()).unwrap();
        assert_ne!(staged.pointer(), pointer);
        staged.stage_in();
        assert_eq!(byte(staged.pointer()), 5);
        set(staged.pointer(), 6);
        staged.stage_out();
        assert_eq!(byte(staged.contents().unwrap()), 6);
    }

    #[test]
    fn lengths_beyond_the_address_space_are_errors() {
        for length in [usize::MAX, isize::MAX as usize - 1, 1 << 60] {
            for placement in [Placement::Plain, Placement::Guarded, Placement::Shared] {
                let outcome =
                    Buffer::allocate(length, StorageMode::Shared, placement, &Arc::default());
                assert!(outcome.is_err(), "{length} {placement:?}");
            }
        }
    }
}
