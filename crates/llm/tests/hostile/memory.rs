//! Peak memory of a call, on its own thread.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static CURRENT: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // Ending threads free memory after their thread-locals are destroyed.
    let _ = CURRENT.try_with(|now| {
        now.set(now.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: all calls are forwarded to the system's allocator; the counters are plain numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist during the copy.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the result of a call, and the peak of bytes that it allocated.
pub(crate) fn peak<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = CURRENT.get();
    PEAK.set(before);
    let result = call();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

#[test]
fn allocations_of_a_call_are_counted() {
    let (_, bytes) = peak(|| drop(vec![0_u8; 100_000]));
    assert!((100_000..101_000).contains(&bytes), "{bytes}");
    let (_, bytes) = peak(|| ());
    assert_eq!(bytes, 0);
}
