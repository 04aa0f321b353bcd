//! Memory straight from the kernel: guarded blocks, shared blocks, and the zero page of unbound bindings.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// Bytes of zeroes behind every unbound buffer index.
pub const ZERO_BYTES: usize = 64 * 1024;
/// Buffer indices a kernel can use.
pub const BUFFERS: usize = 31;

/// The size of a memory page.
pub(crate) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf only reads.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096).max(4096)
    })
}

/// A block of zeroed, page-aligned memory, unmapped on drop.
#[derive(Debug)]
pub struct Block {
    map: NonNull<u8>,
    map_length: usize,
    start: usize,
    length: usize,
}

// SAFETY: a block is plain memory that it alone owns; whoever writes through its pointer answers for races.
unsafe impl Send for Block {}
// SAFETY: as above; `&Block` gives out nothing but an address.
unsafe impl Sync for Block {}

impl Block {
    /// Private memory of at least `length` bytes between two pages that fault when touched.
    ///
    /// # Errors
    /// When the system has no memory or address space left.
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

    /// Memory of `length` bytes that a forked child shares with its parent.
    ///
    /// # Errors
    /// When the system has no memory or address space left.
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

    /// Usable bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody may use a block after dropping it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_length) };
    }
}

fn round_up(length: usize, page: usize) -> io::Result<usize> {
    length
        .checked_next_multiple_of(page)
        .filter(|&length| length <= isize::MAX as usize)
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Read-only zeroes for unbound bindings: a parameter whose function-constant gate is false is still a C++
/// reference, which the optimiser may load from early.
pub(crate) struct ZeroPages {
    start: usize,
}

impl ZeroPages {
    /// The process-wide pages. All slots read as zero; writing to one faults.
    pub(crate) fn get() -> &'static Self {
        static PAGES: OnceLock<ZeroPages> = OnceLock::new();
        PAGES.get_or_init(|| {
            let block = Block::map(2 * BUFFERS * ZERO_BYTES, libc::PROT_READ, libc::MAP_PRIVATE)
                .expect("four megabytes of address space that are never written");
            let start = block.pointer().expose_provenance();
            std::mem::forget(block);
            Self { start }
        })
    }

    /// The zeroes behind buffer `index`.
    pub(crate) fn buffer(&self, index: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.start + (index % BUFFERS) * ZERO_BYTES)
    }

    /// The zeroes behind threadgroup argument `index`.
    pub(crate) fn threadgroup(&self, index: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.start + (BUFFERS + index % BUFFERS) * ZERO_BYTES)
    }

    /// What an address inside the zeroes stands for.
    pub(crate) fn owner_of(&self, address: usize) -> Option<Unbound> {
        let slot = address.checked_sub(self.start)? / ZERO_BYTES;
        match slot {
            0..BUFFERS => Some(Unbound::Buffer(slot as u32)),
            _ if slot < 2 * BUFFERS => Some(Unbound::Threadgroup((slot - BUFFERS) as u32)),
            _ => None,
        }
    }
}

/// A binding to which nothing is bound.
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
    fn blocks_are_zeroed_and_writable_to_the_last_byte() {
        for block in [Block::guarded(5000).unwrap(), Block::shared(5000).unwrap()] {
            assert!(block.length() >= 5000);
            // SAFETY: inside the block.
            unsafe {
                assert_eq!(block.pointer().read(), 0);
                let last = block.pointer().add(block.length() - 1);
                last.write(7);
                assert_eq!(last.read(), 7);
            }
        }
    }

    #[test]
    fn absurd_lengths_are_errors() {
        assert!(Block::guarded(usize::MAX).is_err());
        assert!(Block::guarded(isize::MAX as usize).is_err());
        assert!(Block::shared(usize::MAX - 10).is_err());
    }

    #[test]
    fn zero_pages_know_their_index() {
        let zero = ZeroPages::get();
        let owner = zero.owner_of(zero.buffer(30) as usize + 4);
        assert_eq!(owner, Some(Unbound::Buffer(30)));
        let owner = zero.owner_of(zero.threadgroup(0) as usize);
        assert_eq!(owner, Some(Unbound::Threadgroup(0)));
        assert_eq!(zero.owner_of(0), None);
        // SAFETY: the zeroes are readable.
        assert_eq!(unsafe { zero.buffer(3).add(ZERO_BYTES - 1).read() }, 0);
    }
}
