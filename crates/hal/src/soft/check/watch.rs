//! The checker as an observer of threadgroups.
#![expect(
    unsafe_code,
    reason = "shares the checker with the services of its thread"
)]

use super::{Checker, MEM_DEVICE, MEM_THREADGROUP};
use crate::soft::group::{Divergence, Observer, SmGroup};
use crate::soft::plan::SiteKind;
use crate::soft::runtime::fault::Whereabouts;
use crate::soft::runtime::signal::Slot;

/// Tells a worker's checker what its threadgroup does.
#[derive(Debug)]
pub(crate) struct Watch {
    slot: &'static Slot,
    checker: *mut Checker,
}

impl Watch {
    /// A watch for the worker that owns `checker` and runs on `slot`'s thread.
    ///
    /// # Safety
    /// `checker` must stay valid, and must only be used through this and the services of the same thread.
    pub(crate) unsafe fn new(slot: &'static Slot, checker: *mut Checker) -> Self {
        Self { slot, checker }
    }

    pub(crate) fn begin_group(&mut self, number: u64, group: &SmGroup) {
        self.serve(|checker| checker.begin_group(number, group));
    }

    pub(crate) fn end_group(&mut self) {
        self.serve(Checker::end_group);
    }

    /// The running thread's position in the grid, and the place of its last access; of a thread that `runs` on and on,
    /// the place of its last loop.
    pub(crate) fn whereabouts(&mut self, runs: bool) -> Whereabouts {
        self.serve(|checker| checker.whereabouts(runs))
    }

    /// Whether the threadgroup was ended because a thread had used up its steps.
    pub(crate) fn is_endless(&mut self) -> bool {
        self.serve(|checker| checker.steps.is_endless())
    }

    fn serve<R>(&mut self, service: impl FnOnce(&mut Checker) -> R) -> R {
        self.slot.serve(|| {
            // SAFETY: valid by the promise to `new`; services and observers run one after the other on this thread, so
            // no other reference exists.
            service(unsafe { &mut *self.checker })
        })
    }
}

impl Observer for Watch {
    fn lane(&mut self, lane: u32) {
        // SAFETY: as in `serve`; a plain store may be interrupted anywhere.
        unsafe {
            (*self.checker).lane = lane;
            (*self.checker).location = 0;
            (*self.checker).steps.refill();
        }
    }

    fn collective(&mut self, simdgroup: u32, site: u32, mask: u32) {
        self.serve(|checker| {
            checker.simd_function(simdgroup, site, mask);
            let site = &checker.launch().image.plan().sites[site as usize - 1];
            let flags = match site.kind {
                SiteKind::Collective => MEM_DEVICE | MEM_THREADGROUP,
                _ => site.flags,
            };
            checker.synchronised(Some(simdgroup), flags);
        });
    }

    fn barrier(&mut self, site: u32) {
        self.serve(|checker| {
            let flags = checker.launch().image.plan().sites[site as usize - 1].flags;
            checker.synchronised(None, flags);
        });
    }

    fn diverged(&mut self, divergence: Divergence) {
        self.serve(|checker| checker.diverged(divergence));
    }

    fn early_return(&mut self, site: u32, lane: u32, finished: u32) {
        self.serve(|checker| checker.early_return(site, lane, finished));
    }
}
