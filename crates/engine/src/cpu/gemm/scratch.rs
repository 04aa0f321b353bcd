//! Memory for the packed panels of one thread, which are as much as a second-level cache holds, and for the
//! vectors of matrix-vector products: aligned to cache lines and kept for the next product. The panels that
//! all threads share come from where tensors have their memory, and are counted there.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// A cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A buffer that starts at a cache line.
#[derive(Default)]
pub(super) struct Buffer(Vec<Line>);

impl Buffer {
    /// The first `len` elements, which hold whatever was there before.
    pub(super) fn get<F: bytemuck::Pod>(&mut self, len: usize) -> &mut [F] {
        let lines = (len * size_of::<F>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            // Not `resize`: nobody needs the old contents moved.
            self.0 = vec![bytemuck::Zeroable::zeroed(); lines];
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }

    /// Where it starts, to be read as elements of some type.
    pub(super) fn start<F: bytemuck::Pod>(&self) -> *const F {
        self.0.as_ptr().cast::<F>()
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<Line>()
    }
}

/// The buffers of one thread: for the left panels, the right panels and a tile of sums.
#[derive(Default)]
pub(super) struct Local {
    pub(super) a: Buffer,
    pub(super) b: Buffer,
    pub(super) c: Buffer,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::default();
}

/// Calls `body` with this thread's buffers; `body` must not call this again.
pub(super) fn local<R>(body: impl FnOnce(&mut Local) -> R) -> R {
    LOCAL.with_borrow_mut(body)
}

/// Bytes of a buffer of vectors that is kept: fresh pages cost more than filling them.
const KEPT: usize = 1 << 20;

static SHARED: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// Calls `body` with a buffer that is nobody else's meanwhile.
pub(super) fn shared<R>(body: impl FnOnce(&mut Buffer) -> R) -> R {
    let kept = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = kept().pop().unwrap_or_default();
    let result = body(&mut buffer);
    if buffer.bytes() <= KEPT {
        let mut kept = kept();
        if kept.len() < 2 {
            kept.push(buffer);
        }
    }
    result
}
