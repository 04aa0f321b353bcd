//! Scratch buffers for the packed panels of one thread, about the size of an L2 cache, and for the vectors of GEMV:
//! aligned to cache lines and kept for the next call. The panels shared by all threads are allocated as tensor
//! memory, and counted there.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use crate::cache_line::{CACHE_LINE_BYTES, CacheLine};

/// A buffer that starts at a cache line.
#[derive(Default)]
pub(super) struct Buffer(Vec<CacheLine>);

impl Buffer {
    /// The first `len` elements, with unspecified contents.
    pub(super) fn get<F: bytemuck::Pod>(&mut self, len: usize) -> &mut [F] {
        let lines = (len * size_of::<F>()).div_ceil(CACHE_LINE_BYTES);
        if self.0.len() < lines {
            // Not `resize`, which would copy the old contents.
            self.0 = vec![bytemuck::Zeroable::zeroed(); lines];
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }

    /// A pointer to its start.
    pub(super) fn start<F: bytemuck::Pod>(&self) -> *const F {
        self.0.as_ptr().cast::<F>()
    }

    fn bytes(&self) -> usize {
        self.0.len() * CACHE_LINE_BYTES
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

/// Maximum bytes of a buffer of vectors that is kept: fresh pages cost more than filling them.
const MAX_KEPT_BYTES: usize = 1 << 20;

static SHARED_BUFFERS: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// Calls `body` with exclusive use of a buffer.
pub(super) fn shared<R>(body: impl FnOnce(&mut Buffer) -> R) -> R {
    let kept = || {
        SHARED_BUFFERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    };
    let mut buffer = kept().pop().unwrap_or_default();
    let result = body(&mut buffer);
    if buffer.bytes() <= MAX_KEPT_BYTES {
        let mut kept = kept();
        if kept.len() < 2 {
            kept.push(buffer);
        }
    }
    result
}
