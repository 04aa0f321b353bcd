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
const BLOCK: usize = 64 << 20;

/// Fewer bytes are not worth a part of a block.
const SMALL: usize = 64 << 10;

/// Weights are repacked in bands of about this many bytes, after each of which its source can be given back: all
/// threads have enough to do, and little is in memory twice.
pub(crate) const REPACK_BAND_BYTES: usize = 4 << 20;

/// Parts begin at cache lines.
const LINE: usize = 64;

/// A part of a block, zeros at first, that is nobody else's.
pub(crate) struct Part {
    block: Arc<Block>,
    start: usize,
    len: usize,
}

struct Block {
    start: NonNull<u8>,
    /// Freed with the last part.
    #[expect(dead_code, reason = "kept for its end")]
    memory: Memory,
}

// SAFETY: the block owns its memory, and parts of it are disjoint.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(len: usize) -> Arc<Self> {
        let Some(mut memory) = Memory::new(len) else {
            handle_alloc_error(Layout::from_size_align(len, LINE).unwrap_or(Layout::new::<u8>()))
        };
        let start = NonNull::new(memory.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Arc::new(Self { start, memory })
    }
}

/// The block that is being given out, and how much of it is.
static CURRENT: Mutex<(Weak<Block>, usize)> = Mutex::new((Weak::new(), 0));

impl Part {
    /// So many bytes.
    pub(crate) fn new(len: usize) -> Self {
        let whole = len.next_multiple_of(LINE);
        if !(SMALL..=BLOCK / 2).contains(&whole) {
            return Self {
                block: Block::new(whole),
                start: 0,
                len,
            };
        }
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match current.0.upgrade() {
            Some(block) if current.1 + whole <= BLOCK => block,
            _ => {
                let block = Block::new(BLOCK);
                *current = (Arc::downgrade(&block), 0);
                block
            }
        };
        let start = current.1;
        current.1 += whole;
        Self { block, start, len }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the part lies in the block, which is initialised and lives as long; only its owner writes to it.
        unsafe { std::slice::from_raw_parts(self.block.start.as_ptr().add(self.start), self.len) }
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.block.start.as_ptr();
        // SAFETY: as above, and no other part overlaps with this one, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeros_apart_and_aligned() {
        let mut parts: Vec<Part> = [1, 100_000, SMALL, 3 << 20, 40 << 20, 30 << 20, 30 << 20]
            .map(Part::new)
            .into();
        for (i, part) in parts.iter_mut().enumerate() {
            assert!(part.bytes().as_ptr().addr().is_multiple_of(LINE));
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
