//! Keeping buffers resident between command buffers.
#![expect(unsafe_code, reason = "shares Metal's residency sets between threads")]

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use objc2::available;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLCommandQueue, MTLDevice, MTLResidencySet,
    MTLResidencySetDescriptor,
};

use super::in_flight::lock;
use super::residency_sets::ResidencySets;

/// Interval at which residency is requested again while memory is kept resident. The system evicts pages after about
/// a second without work for the GPU.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// The buffers of a device that the system need not make resident again for every command buffer.
///
/// The sets are resident as a whole, so they must not exceed what the device can hold: buffers
/// beyond the recommended working set stay outside and become resident when they are bound, as on
/// systems without residency sets.
#[derive(Debug)]
pub(super) struct Residency {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    state: Mutex<ResidencyState>,
}

#[derive(Debug)]
struct ResidencyState {
    sets: ResidencySets,
    raw: Vec<Set>,
}

#[derive(Debug)]
struct Set {
    raw: Retained<ProtocolObject<dyn MTLResidencySet>>,
    /// Whether there are additions that have not been committed.
    is_pending: bool,
    /// Whether residency was requested and not ended.
    is_requested: bool,
    /// Whether the set was added to the current queue.
    is_attached: bool,
}

// SAFETY: Metal's objects may be used from any thread; a set, which must not be changed from two threads
// concurrently, is accessed only through the mutex of `Residency`.
unsafe impl Send for Set {}

impl Residency {
    /// `None` if the system has no residency sets (before macOS 15 and iOS 18).
    pub(super) fn new(
        device: &Retained<ProtocolObject<dyn MTLDevice>>,
        limit: usize,
    ) -> Option<Self> {
        if !available!(macos = 15.0, ios = 18.0, ..) {
            return None;
        }
        Some(Self {
            device: device.clone(),
            state: Mutex::new(ResidencyState {
                sets: ResidencySets::new(limit as u64),
                raw: Vec::new(),
            }),
        })
    }

    /// Adds a buffer, unless it exceeds the limit, and returns the index of its set, for [`Residency::remove`].
    pub(super) fn add(&self, buffer: &ProtocolObject<dyn MTLBuffer>) -> Option<usize> {
        let mut state = lock(&self.state);
        let length = buffer.length() as u64;
        let index = state.sets.add(length)?;
        if index == state.raw.len() {
            let Some(set) = self.set(index) else {
                // The buffer also works outside of all sets.
                state.sets.remove(index, length);
                return None;
            };
            state.raw.push(set);
        }
        let set = &mut state.raw[index];
        set.raw.addAllocation(allocation(buffer));
        set.is_pending = true;
        Some(index)
    }

    fn set(&self, index: usize) -> Option<Set> {
        let descriptor = MTLResidencySetDescriptor::new();
        descriptor.setLabel(Some(&NSString::from_str(&format!("bessemer {index}"))));
        let raw = self
            .device
            .newResidencySetWithDescriptor_error(&descriptor)
            .ok()?;
        Some(Set {
            raw,
            is_pending: false,
            is_requested: false,
            is_attached: false,
        })
    }

    /// Removes a buffer that was added, and commits immediately: until then its set keeps its memory.
    pub(super) fn remove(&self, buffer: &ProtocolObject<dyn MTLBuffer>, index: usize) {
        let mut state = lock(&self.state);
        let is_empty = state.sets.remove(index, buffer.length() as u64);
        let set = &mut state.raw[index];
        if is_empty && set.is_requested {
            set.raw.endResidency();
            set.is_requested = false;
        }
        set.raw.removeAllocation(allocation(buffer));
        set.raw.commit();
        // A set whose residency has not been requested stays pending.
        set.is_pending &= !set.is_requested;
    }

    /// Marks all sets as unattached, for a new queue.
    pub(super) fn forget_queue(&self) {
        for set in &mut lock(&self.state).raw {
            set.is_attached = false;
        }
    }

    /// Commits additions and adds the sets to the queue, before commands that use them. Residency of a set is requested
    /// once: later additions become resident when they are committed.
    pub(super) fn commit(&self, queue: &ProtocolObject<dyn MTLCommandQueue>) {
        for set in &mut lock(&self.state).raw {
            if !set.is_attached {
                queue.addResidencySet(&set.raw);
                set.is_attached = true;
            }
            if set.is_pending {
                set.commit_additions();
            }
        }
    }

    /// Requests residency periodically until the returned value is dropped; `None` if the thread cannot be started.
    pub(super) fn keep_alive(self: &Arc<Self>) -> Option<KeepAlive> {
        let (stop, stopped) = channel::<()>();
        let residency = Arc::downgrade(self);
        std::thread::Builder::new()
            .name("bessemer-residency".to_owned())
            .spawn(move || {
                while let Some(residency) = residency.upgrade() {
                    autoreleasepool(|_| residency.request());
                    drop(residency);
                    if stopped.recv_timeout(REQUEST_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                        break;
                    }
                }
            })
            .ok()?;
        Some(KeepAlive { _stop: stop })
    }

    /// Requests residency of all sets, including additions since the last commands.
    fn request(&self) {
        for set in &mut lock(&self.state).raw {
            if set.is_pending {
                set.commit_additions();
            } else if set.is_requested {
                set.raw.requestResidency();
            }
        }
    }
}

impl Set {
    /// Commits additions, and requests residency if that has not been done.
    fn commit_additions(&mut self) {
        self.raw.commit();
        self.is_pending = false;
        if !self.is_requested {
            self.raw.requestResidency();
            self.is_requested = true;
        }
    }
}

/// Keeps memory resident while the device is idle; dropping it ends its thread.
#[derive(Debug)]
pub(super) struct KeepAlive {
    _stop: Sender<()>,
}

fn allocation(buffer: &ProtocolObject<dyn MTLBuffer>) -> &ProtocolObject<dyn MTLAllocation> {
    ProtocolObject::from_ref(buffer)
}
