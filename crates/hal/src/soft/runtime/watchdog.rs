//! Interrupts kernels that run past their deadline.
//!
//! One thread per process sleeps until the earliest deadline it knows of. A launch only stores its own deadline,
//! and wakes the thread if that is earlier than the current one: with equal limits, once.
#![expect(unsafe_code, reason = "sends signals to threads")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::signal::{self, ThreadSlot};

/// Nanoseconds after which a thread past its deadline is signalled again.
const RESIGNAL_INTERVAL_NS: u64 = 5_000_000;

static SLOTS: Mutex<Vec<&'static ThreadSlot>> = Mutex::new(Vec::new());
/// Next wake-up time in monotonic nanoseconds; `u64::MAX` while the watchdog is parked.
static NEXT_WAKE_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static THREAD: OnceLock<Option<Thread>> = OnceLock::new();

fn slots() -> MutexGuard<'static, Vec<&'static ThreadSlot>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a thread to the watchdog's list.
pub(super) fn register(slot: &'static ThreadSlot) {
    slots().push(slot);
}

/// Removes it. The slot is not accessed after this returns.
pub(super) fn unregister(slot: &ThreadSlot) {
    slots().retain(|other| !std::ptr::eq(*other, slot));
}

/// Sets the deadline of the calling thread's slot.
pub(super) fn arm(slot: &ThreadSlot, deadline: u64) {
    slot.deadline.store(deadline, Ordering::SeqCst);
    if deadline < NEXT_WAKE_NS.load(Ordering::SeqCst) {
        NEXT_WAKE_NS.fetch_min(deadline, Ordering::SeqCst);
        if let Some(thread) = thread() {
            thread.unpark();
        }
    }
}

/// Removes the deadline.
pub(super) fn disarm(slot: &ThreadSlot) {
    slot.deadline.store(0, Ordering::SeqCst);
}

fn thread() -> Option<&'static Thread> {
    THREAD
        .get_or_init(|| {
            // Looked up here and not in the new thread, which must not wait for anything.
            let alarm = signal::alarm_signal();
            thread::Builder::new()
                .name("bessemer-watchdog".into())
                .stack_size(128 * 1024)
                .spawn(move || watch(alarm))
                .ok()
                .map(|handle| handle.thread().clone())
        })
        .as_ref()
}

fn watch(alarm: i32) {
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    loop {
        // Reset first: a launch that arms after the scan compares with this round's decision.
        NEXT_WAKE_NS.store(u64::MAX, Ordering::SeqCst);
        let now = signal::now();
        let mut next = u64::MAX;
        for slot in slots().iter() {
            let deadline = slot.deadline.load(Ordering::SeqCst);
            if deadline == 0 {
                continue;
            }
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            let target = slot.thread.load(Ordering::Relaxed);
            // SAFETY: the list is locked, so the thread is alive; its handler checks the deadline again.
            unsafe { libc::syscall(libc::SYS_tgkill, process, target, alarm) };
            next = next.min(now + RESIGNAL_INTERVAL_NS);
        }
        let until = NEXT_WAKE_NS.fetch_min(next, Ordering::SeqCst).min(next);
        if until == u64::MAX {
            thread::park();
        } else {
            thread::park_timeout(Duration::from_nanos(until.saturating_sub(signal::now())));
        }
    }
}
