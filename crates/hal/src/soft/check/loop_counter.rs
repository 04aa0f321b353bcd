//! Detects endless loops.
//!
//! Check-mode code counts down the iterations of its loops, in the context block of its threadgroup, and records
//! the current loop. The count restarts at the limit whenever a lane continues after a synchronisation.
#![expect(unsafe_code, reason = "shares the counter with kernel code")]

use std::ptr;

use super::{Checker, Verdict};
use crate::soft::plan::STEPS_OFFSET;

/// The loop iteration counter of a worker's threadgroup.
#[derive(Debug)]
pub(super) struct LoopCounter {
    /// Remaining iterations; kernel code decrements it.
    remaining: *mut i64,
    /// Location of the last loop; kernel code writes it.
    last: *mut u32,
    limit: i64,
    /// The loop that exhausted the counter.
    endless: Option<u32>,
}

impl Default for LoopCounter {
    fn default() -> Self {
        Self {
            remaining: ptr::null_mut(),
            last: ptr::null_mut(),
            limit: i64::MAX,
            endless: None,
        }
    }
}

impl LoopCounter {
    /// Creates the counter in the context block at address `context`.
    ///
    /// # Safety
    /// The block's address must be exposed; while the counter exists, the block must stay mapped and be used by the
    /// calling worker only.
    pub(super) unsafe fn new(context: usize, limit: u64) -> Self {
        let remaining = ptr::with_exposed_provenance_mut::<i64>(context + STEPS_OFFSET);
        Self {
            remaining,
            // SAFETY: both words lie in the context.
            last: unsafe { remaining.add(1) }.cast(),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            endless: None,
        }
    }

    pub(super) fn begin_group(&mut self) {
        self.endless = None;
        // SAFETY: by the promise to `new`; no kernel code runs now.
        unsafe { self.last.write_volatile(0) };
    }

    /// Resets the counter for the lane that is about to run. May be interrupted anywhere.
    pub(super) fn refill(&self) {
        // SAFETY: as above.
        unsafe { self.remaining.write_volatile(self.limit) };
    }

    pub(super) fn is_endless(&self) -> bool {
        self.endless.is_some()
    }

    /// Returns the location of the loop that the threadgroup was last in.
    pub(super) fn last_loop(&self) -> Option<u32> {
        // SAFETY: as above.
        let last = unsafe { self.last.read_volatile() };
        self.endless.or((last != 0).then_some(last))
    }
}

impl Checker {
    /// Abandons the threadgroup: a thread has exhausted its loop iterations.
    pub(crate) fn iterations_exhausted(&mut self, location: u32) -> Verdict {
        if self.launch.is_null() || self.group.is_null() {
            return Verdict::Proceed;
        }
        self.loop_counter.endless = Some(location);
        self.abandon()
    }
}
