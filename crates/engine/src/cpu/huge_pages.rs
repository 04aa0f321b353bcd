//! Memory for weights that were arranged anew: many matrices share blocks that are large enough for huge pages.
//!
//! A token reads all weights once. In small pages, a processor then spends a good part of its time on looking up
//! where the next page is, and what fetches ahead stops at the end of every one.
#![expect(
    unsafe_code,
    reason = "several owners of one block have disjoint parts of it"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::storage::Memory;

/// Bytes of a block that is shared. What of it is not used is never touched and costs nothing.
const ARENA_BYTES: usize = 64 << 20;

/// Fewer bytes are not worth a part of a block.
const MIN_SHARED_BYTES: usize = 64 << 10;

/// Weights are repacked in bands of about this many bytes, after each of which its source can be given back: all
/// threads have enough to do, and little is in memory twice.
pub(crate) const REPACK_BAND_BYTES: usize = 4 << 20;

/// Parts begin at cache lines.
const CACHE_LINE_BYTES: usize = 64;

/// A part of a block, zeros at first, that is nobody else's.
pub(crate) struct ArenaSlice {
    arena: Arc<Arena>,
    start: usize,
    len: usize,
}

struct Arena {
    start: NonNull<u8>,
    /// Freed with the last part.
    #[expect(dead_code, reason = "kept for its end")]
    memory: Memory,
}

// SAFETY: the block owns its memory, and parts of it are disjoint.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(len: usize) -> Arc<Self> {
        let Some(mut memory) = Memory::new(len) else {
            handle_alloc_error(
                Layout::from_size_align(len, CACHE_LINE_BYTES).unwrap_or(Layout::new::<u8>()),
            )
        };
        let start = NonNull::new(memory.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Arc::new(Self { start, memory })
    }
}

/// The block that is being given out, and how much of it is.
static CURRENT: Mutex<(Weak<Arena>, usize)> = Mutex::new((Weak::new(), 0));

impl ArenaSlice {
    /// So many bytes.
    pub(crate) fn new(len: usize) -> Self {
        let whole = len.next_multiple_of(CACHE_LINE_BYTES);
        if !(MIN_SHARED_BYTES..=ARENA_BYTES / 2).contains(&whole) {
            return Self {
                arena: Arena::new(whole),
                start: 0,
                len,
            };
        }
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let arena = match current.0.upgrade() {
            Some(arena) if current.1 + whole <= ARENA_BYTES => arena,
            _ => {
                let arena = Arena::new(ARENA_BYTES);
                *current = (Arc::downgrade(&arena), 0);
                arena
            }
        };
        let start = current.1;
        current.1 += whole;
        Self { arena, start, len }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the part lies in the block, which is initialised and lives as long; only its owner writes to it.
        unsafe { std::slice::from_raw_parts(self.arena.start.as_ptr().add(self.start), self.len) }
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.arena.start.as_ptr();
        // SAFETY: as above, and no other part overlaps with this one, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeros_apart_and_aligned() {
        let mut parts: Vec<ArenaSlice> = [
            1,
            100_000,
            MIN_SHARED_BYTES,
            3 << 20,
            40 << 20,
            30 << 20,
            30 << 20,
        ]
        .map(ArenaSlice::new)
        .into();
        for (i, part) in parts.iter_mut().enumerate() {
            assert!(
                part.bytes()
                    .as_ptr()
                    .addr()
                    .is_multiple_of(CACHE_LINE_BYTES)
            );
            let bytes = part.bytes_mut();
            assert!(bytes[0] == 0 && bytes[bytes.len() - 1] == 0);
            bytes.fill(i as u8 + 1);
        }
        for (i, part) in parts.iter().enumerate() {
            let ends = [part.bytes()[0], part.bytes()[part.len - 1]];
            assert_eq!(ends, [i as u8 + 1; 2]);
        }
    }
}
