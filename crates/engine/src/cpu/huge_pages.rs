//! Memory for repacked weights: an arena whose blocks are large enough for huge pages and shared by many matrices.
//!
//! Each token reads all weights once. With small pages, a good part of that time is TLB misses, and the hardware
//! prefetcher stops at the end of every page.
#![expect(
    unsafe_code,
    reason = "several owners use disjoint slices of one arena"
)]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::cache_line::CACHE_LINE_BYTES;
use crate::storage::HeapBlock;

/// Bytes of a shared arena. Its unused pages are never touched and cost nothing.
const ARENA_BYTES: usize = 64 << 20;

/// Smaller allocations get memory of their own.
const MIN_SHARED_BYTES: usize = 64 << 10;

/// Weights are repacked in bands of about this many bytes, and the source of each band can be released after it: large
/// enough to occupy all threads, small enough that little memory is needed twice.
pub(crate) const REPACK_BAND_BYTES: usize = 4 << 20;

/// An exclusively owned, zero-initialised slice of an arena.
pub(crate) struct ArenaSlice {
    arena: Arc<Arena>,
    start: usize,
    len: usize,
}

struct Arena {
    start: NonNull<u8>,
    /// Freed with the last slice.
    #[expect(dead_code, reason = "kept for its destructor")]
    memory: HeapBlock,
}

// SAFETY: the arena owns its memory, and its slices are disjoint.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(len: usize) -> Option<Arc<Self>> {
        let mut memory = HeapBlock::new(len)?;
        let start = NonNull::new(memory.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Some(Arc::new(Self { start, memory }))
    }
}

/// The arena that slices are allocated from.
struct BumpAllocator {
    arena: Weak<Arena>,
    /// Allocated bytes of the arena.
    used: usize,
}

static CURRENT: Mutex<BumpAllocator> = Mutex::new(BumpAllocator {
    arena: Weak::new(),
    used: 0,
});

impl ArenaSlice {
    /// Allocates `len` bytes; `None` if memory is exhausted.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let size = len.checked_next_multiple_of(CACHE_LINE_BYTES)?;
        if !(MIN_SHARED_BYTES..=ARENA_BYTES / 2).contains(&size) {
            return Some(Self {
                arena: Arena::new(size)?,
                start: 0,
                len,
            });
        }
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let arena = match current.arena.upgrade() {
            Some(arena) if current.used + size <= ARENA_BYTES => arena,
            _ => {
                let arena = Arena::new(ARENA_BYTES)?;
                current.arena = Arc::downgrade(&arena);
                current.used = 0;
                arena
            }
        };
        let start = current.used;
        current.used += size;
        Some(Self { arena, start, len })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the slice is inside the arena, which is initialised and lives as long; only its owner writes to it.
        unsafe { std::slice::from_raw_parts(self.arena.start.as_ptr().add(self.start), self.len) }
    }

    /// The bytes, mutably.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.arena.start.as_ptr();
        // SAFETY: as above, and no other slice overlaps with this one, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_zeroed_disjoint_and_aligned() {
        let mut slices: Vec<ArenaSlice> = [
            1,
            100_000,
            MIN_SHARED_BYTES,
            3 << 20,
            40 << 20,
            30 << 20,
            30 << 20,
        ]
        .map(|len| ArenaSlice::new(len).unwrap())
        .into();
        for (i, slice) in slices.iter_mut().enumerate() {
            assert!(
                slice
                    .bytes()
                    .as_ptr()
                    .addr()
                    .is_multiple_of(CACHE_LINE_BYTES)
            );
            let bytes = slice.bytes_mut();
            assert!(bytes[0] == 0 && bytes[bytes.len() - 1] == 0);
            bytes.fill(i as u8 + 1);
        }
        for (i, slice) in slices.iter().enumerate() {
            let ends = [slice.bytes()[0], slice.bytes()[slice.len - 1]];
            assert_eq!(ends, [i as u8 + 1; 2]);
        }
    }
}
