//! Keeping buffers resident between command buffers.
#![expect(unsafe_code, reason = "shares Metal's residency set between threads")]

use objc2::available;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLDevice, MTLResidencySet, MTLResidencySetDescriptor,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The buffers of a device that the system need not make resident anew for every command buffer.
///
/// A queue's set is resident as a whole, so it must not grow past what the device can hold: buffers
/// beyond the recommended working set stay outside and become resident where they are bound, as on
/// systems without residency sets.
#[derive(Debug)]
pub(super) struct Residency {
    set: Mutex<Set>,
    limit: u64,
}

#[derive(Debug)]
struct Set {
    raw: Retained<ProtocolObject<dyn MTLResidencySet>>,
    bytes: u64,
    /// Additions that Metal has not been told to take over.
    pending: bool,
}

// SAFETY: Metal's objects may be used from any thread; the set, which is not safe to change from two
// at once, is reached only through the mutex of `Residency`.
unsafe impl Send for Set {}

impl Residency {
    /// `None` where the system has no residency sets (before macOS 15 and iOS 18).
    pub(super) fn new(device: &ProtocolObject<dyn MTLDevice>, limit: usize) -> Option<Self> {
        if !available!(macos = 15.0, ios = 18.0, ..) {
            return None;
        }
        let descriptor = MTLResidencySetDescriptor::new();
        descriptor.setLabel(Some(&NSString::from_str("bessemer")));
        let raw = device
            .newResidencySetWithDescriptor_error(&descriptor)
            .ok()?;
        Some(Self {
            set: Mutex::new(Set {
                raw,
                bytes: 0,
                pending: false,
            }),
            limit: limit as u64,
        })
    }

    /// Hands the set to whoever attaches it to a queue.
    pub(super) fn with_set(&self, attach: impl FnOnce(&ProtocolObject<dyn MTLResidencySet>)) {
        attach(&self.lock().raw);
    }

    /// Adds a buffer, unless there is no room for it; true if it was added and must be removed later.
    pub(super) fn add(&self, buffer: &ProtocolObject<dyn MTLBuffer>) -> bool {
        let mut set = self.lock();
        let bytes = set.bytes.saturating_add(buffer.length() as u64);
        if bytes > self.limit {
            return false;
        }
        set.bytes = bytes;
        set.pending = true;
        set.raw.addAllocation(allocation(buffer));
        true
    }

    /// Removes a buffer that was added, at once: until then the set keeps its memory.
    pub(super) fn remove(&self, buffer: &ProtocolObject<dyn MTLBuffer>) {
        let mut set = self.lock();
        set.bytes -= buffer.length() as u64;
        set.raw.removeAllocation(allocation(buffer));
        set.raw.commit();
        set.pending = false;
    }

    /// Makes additions known to Metal, before commands that use them.
    pub(super) fn commit(&self) {
        let mut set = self.lock();
        if set.pending {
            set.raw.commit();
            set.pending = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        // Nothing here panics while it holds the lock.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn allocation(buffer: &ProtocolObject<dyn MTLBuffer>) -> &ProtocolObject<dyn MTLAllocation> {
    ProtocolObject::from_ref(buffer)
}
