//! Connects the checker to the execution of threadgroups.
#![expect(
    unsafe_code,
    reason = "shares the checker with the services of its thread"
)]

use super::{Checker, MEM_DEVICE, MEM_THREADGROUP};
use crate::soft::group::{Divergence, Observer, SmGroup};
use crate::soft::plan::SiteKind;
use crate::soft::runtime::fault::ThreadLocation;
use crate::soft::runtime::signal::ThreadSlot;

/// Observer that reports a threadgroup's events to the worker's checker.
#[derive(Debug)]
pub(crate) struct CheckObserver {
    slot: &'static ThreadSlot,
    checker: *mut Checker,
}

impl CheckObserver {
    /// Creates the observer of the worker that owns `checker` and runs on `slot`'s thread.
    ///
    /// # Safety
    /// `checker` must stay valid, and must only be used through the observer and the services of the same thread.
    pub(crate) unsafe fn new(slot: &'static ThreadSlot, checker: *mut Checker) -> Self {
        Self { slot, checker }
    }

    pub(crate) fn begin_group(&mut self, number: u64, group: &SmGroup) {
        self.with_checker(|checker| checker.begin_group(number, group));
    }

    pub(crate) fn end_group(&mut self) {
        self.with_checker(Checker::end_group);
    }

    /// Returns the running thread's position in the grid, and the location of its last access; for a thread that was
    /// interrupted in a loop (`in_loop`), the location of the loop.
    pub(crate) fn current_thread(&mut self, in_loop: bool) -> ThreadLocation {
        self.with_checker(|checker| checker.current_thread(in_loop))
    }

    /// Returns whether the threadgroup was aborted because a thread exhausted its loop iterations.
    pub(crate) fn is_endless(&mut self) -> bool {
        self.with_checker(|checker| checker.loop_counter.is_endless())
    }

    fn with_checker<R>(&mut self, service: impl FnOnce(&mut Checker) -> R) -> R {
        self.slot.run_service(|| {
            // SAFETY: valid by the promise to `new`; services and observers run sequentially on this thread, so no
            // other reference exists.
            service(unsafe { &mut *self.checker })
        })
    }
}

impl Observer for CheckObserver {
    fn lane(&mut self, lane: u32) {
        // SAFETY: as in `with_checker`; a plain store may be interrupted anywhere.
        unsafe {
            (*self.checker).lane = lane;
            (*self.checker).location = 0;
            (*self.checker).loop_counter.refill();
        }
    }

    fn collective(&mut self, simdgroup: u32, site: u32, mask: u32) {
        self.with_checker(|checker| {
            checker.simd_function(simdgroup, site, mask);
            let site = &checker.launch().image.plan().sites[site as usize - 1];
            let flags = match site.kind {
                SiteKind::Collective => MEM_DEVICE | MEM_THREADGROUP,
                _ => site.flags,
            };
            checker.synchronise(Some(simdgroup), flags);
        });
    }

    fn barrier(&mut self, site: u32) {
        self.with_checker(|checker| {
            let flags = checker.launch().image.plan().sites[site as usize - 1].flags;
            checker.synchronise(None, flags);
        });
    }

    fn diverged(&mut self, divergence: Divergence) {
        self.with_checker(|checker| checker.diverged(divergence));
    }

    fn early_return(&mut self, site: u32, lane: u32, finished: u32) {
        self.with_checker(|checker| checker.early_return(site, lane, finished));
    }
}
