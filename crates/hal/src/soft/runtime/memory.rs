//! Memory mappings: guarded, shared, and the zero pages of unbound bindings.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// Bytes of zeros that back every unbound buffer index.
pub const ZERO_BYTES_PER_BINDING: usize = 64 * 1024;
/// Number of buffer indices.
pub const BUFFER_INDICES: usize = 31;

/// The size of a memory page.
pub(crate) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf only reads.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096).max(4096)
    })
}

/// Zeroed, page-aligned memory, unmapped on drop.
#[derive(Debug)]
pub struct MappedMemory {
    map: NonNull<u8>,
    map_length: usize,
    start: usize,
    length: usize,
}

// SAFETY: plain memory that the mapping alone owns; users of the pointer are responsible for races.
unsafe impl Send for MappedMemory {}
// SAFETY: as above; `&MappedMemory` gives out nothing but an address.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps at least `length` bytes of private memory between two guard pages.
    ///
    /// # Errors
    /// Out of memory or address space.
    pub fn guarded(length: usize) -> io::Result<Self> {
        let page = page_size();
        let length = round_up(length.max(1), page)?;
        let total = length
            .checked_add(2 * page)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mut block = Self::map(total, libc::PROT_NONE, libc::MAP_PRIVATE)?;
        // SAFETY: the range lies inside the mapping just made.
        let changed = unsafe {
            libc::mprotect(
                block.map.as_ptr().add(page).cast(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if changed != 0 {
            return Err(io::Error::last_os_error());
        }
        block.start = page;
        block.length = length;
        Ok(block)
    }

    /// Maps `length` bytes that a forked child shares with its parent.
    ///
    /// # Errors
    /// Out of memory or address space.
    pub fn shared(length: usize) -> io::Result<Self> {
        let length = round_up(length.max(1), page_size())?;
        Self::map(length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    fn map(length: usize, protection: i32, sharing: i32) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                protection,
                sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            map,
            map_length: length,
            start: 0,
            length,
        })
    }

    /// The first usable byte.
    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: `start` lies inside the mapping.
        unsafe { self.map.as_ptr().add(self.start) }
    }

    /// Usable length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing may use it after the drop.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_length) };
    }
}

fn round_up(length: usize, page: usize) -> io::Result<usize> {
    length
        .checked_next_multiple_of(page)
        .filter(|&length| length <= isize::MAX as usize)
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Read-only zeros for unbound bindings: a parameter whose function-constant gate is false is still a C++
/// reference, which the optimiser may load from speculatively.
pub(crate) struct ZeroPages {
    start: usize,
}

impl ZeroPages {
    /// The process-wide pages. All of them read as zero; writes fault.
    pub(crate) fn get() -> &'static Self {
        static PAGES: OnceLock<ZeroPages> = OnceLock::new();
        PAGES.get_or_init(|| {
            let block = MappedMemory::map(
                2 * BUFFER_INDICES * ZERO_BYTES_PER_BINDING,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
            )
            .expect("four megabytes of address space that are never written");
            let start = block.pointer().expose_provenance();
            std::mem::forget(block);
            Self { start }
        })
    }

    /// Returns the zeros that back buffer `index`.
    pub(crate) fn buffer(&self, index: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(
            self.start + (index % BUFFER_INDICES) * ZERO_BYTES_PER_BINDING,
        )
    }

    /// Returns the zeros that back threadgroup argument `index`.
    pub(crate) fn threadgroup(&self, index: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(
            self.start + (BUFFER_INDICES + index % BUFFER_INDICES) * ZERO_BYTES_PER_BINDING,
        )
    }

    /// Returns the binding that an address inside the zero pages belongs to.
    pub(crate) fn owner_of(&self, address: usize) -> Option<Unbound> {
        let slot = address.checked_sub(self.start)? / ZERO_BYTES_PER_BINDING;
        match slot {
            0..BUFFER_INDICES => Some(Unbound::Buffer(slot as u32)),
            _ if slot < 2 * BUFFER_INDICES => {
                Some(Unbound::Threadgroup((slot - BUFFER_INDICES) as u32))
            }
            _ => None,
        }
    }
}

/// A binding without a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unbound {
    /// A buffer index.
    Buffer(u32),
    /// A threadgroup argument.
    Threadgroup(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_zeroed_and_writable_to_the_last_byte() {
        for block in [
            MappedMemory::guarded(5000).unwrap(),
            MappedMemory::shared(5000).unwrap(),
        ] {
            assert!(block.length() >= 5000);
            // SAFETY: inside the mapping.
            unsafe {
                assert_eq!(block.pointer().read(), 0);
                let last = block.pointer().add(block.length() - 1);
                last.write(7);
                assert_eq!(last.read(), 7);
            }
        }
    }

    #[test]
    fn lengths_beyond_the_address_space_are_errors() {
        assert!(MappedMemory::guarded(usize::MAX).is_err());
        assert!(MappedMemory::guarded(isize::MAX as usize).is_err());
        assert!(MappedMemory::shared(usize::MAX - 10).is_err());
    }

    #[test]
    fn zero_pages_identify_their_binding() {
        let zero = ZeroPages::get();
        let owner = zero.owner_of(zero.buffer(30) as usize + 4);
        assert_eq!(owner, Some(Unbound::Buffer(30)));
        let owner = zero.owner_of(zero.threadgroup(0) as usize);
        assert_eq!(owner, Some(Unbound::Threadgroup(0)));
        assert_eq!(zero.owner_of(0), None);
        // SAFETY: the zeros are readable.
        let last = unsafe { zero.buffer(3).add(ZERO_BYTES_PER_BINDING - 1).read() };
        assert_eq!(last, 0);
    }
}
