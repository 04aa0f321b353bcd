//! Thread-local scratch memory for blocks.

use std::cell::RefCell;

use crate::cache_line::{CACHE_LINE_BYTES, CacheLine};

thread_local! {
    static SCRATCH: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with at least `bytes` bytes of this thread's scratch memory.
pub(super) fn with_memory<R>(bytes: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with_borrow_mut(|memory| {
        let lines = bytes.div_ceil(CACHE_LINE_BYTES);
        if memory.len() < lines {
            memory.resize(lines, bytemuck::Zeroable::zeroed());
        }
        body(bytemuck::cast_slice_mut(&mut memory[..lines]))
    })
}
