//! Thread-local scratch memory for blocks.

use std::cell::RefCell;

/// A cache line, aligned for the widest vector.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

thread_local! {
    static SCRATCH: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with at least `bytes` bytes of this thread's scratch memory.
pub(super) fn with_memory<R>(bytes: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with_borrow_mut(|memory| {
        let lines = bytes.div_ceil(64);
        if memory.len() < lines {
            memory.resize(lines, CacheLine([0; 64]));
        }
        body(bytemuck::cast_slice_mut(&mut memory[..lines]))
    })
}
