//! Memory for blocks, kept by each thread.

use std::cell::RefCell;

/// Memory with the alignment of the widest vector.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    static MEMORY: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Lends the scratch memory of this thread, at least so many bytes of it.
pub(super) fn with_memory<R>(bytes: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
    MEMORY.with_borrow_mut(|memory| {
        let lines = bytes.div_ceil(64);
        if memory.len() < lines {
            memory.resize(lines, Line([0; 64]));
        }
        body(bytemuck::cast_slice_mut(&mut memory[..lines]))
    })
}
