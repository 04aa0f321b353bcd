//! Encoding command lists into Metal's command buffers, in submission order.
#![expect(
    unsafe_code,
    reason = "keeps a command buffer of Metal's behind a lock"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{MTLCommandBuffer, MTLCommandQueue, MTLDevice};

use super::in_flight::{InFlight, lock, log_state};
use super::recorder::Recorder;
use super::residency::Residency;
use super::unaligned_copy::ByteKernels;
use crate::driver::CommandList;
use crate::error::Result;
use crate::submission::Completion;

/// A device's queue.
#[derive(Debug)]
pub(super) struct Queue {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    residency: Option<Arc<Residency>>,
    byte_kernels: OnceLock<Result<Arc<ByteKernels>>>,
    /// Whether a command buffer has failed since the queue was opened.
    failed: Arc<AtomicBool>,
    /// Locked from the first command buffer of a list to its last, so that lists do not interleave. Command
    /// buffers are committed as they fill: Metal allows only 64 to exist and blocks the creation of the next,
    /// which must never wait for one that has not been committed.
    open: Mutex<OpenQueue>,
}

/// Metal's queue, and the last command buffer that was committed to it.
#[derive(Debug)]
pub(super) struct OpenQueue {
    pub(super) raw: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    pub(super) last: Option<Retained<ProtocolObject<dyn MTLCommandBuffer>>>,
}

// SAFETY: Metal's objects may be used from any thread. A command buffer must not be used from two threads
// concurrently; this one is accessed only through the mutex of `Queue`, and only to wait for its end.
unsafe impl Send for OpenQueue {}

impl OpenQueue {
    fn new(
        device: &ProtocolObject<dyn MTLDevice>,
        residency: Option<&Arc<Residency>>,
    ) -> Option<Self> {
        let raw = device.newCommandQueue()?;
        raw.setLabel(Some(&NSString::from_str("bessemer")));
        if let Some(residency) = residency {
            residency.forget_queue();
        }
        Some(Self { raw, last: None })
    }
}

impl Queue {
    pub(super) fn new(
        device: &Retained<ProtocolObject<dyn MTLDevice>>,
        residency: Option<Arc<Residency>>,
    ) -> Option<Self> {
        Some(Self {
            device: device.clone(),
            open: Mutex::new(OpenQueue::new(device, residency.as_ref())?),
            residency,
            byte_kernels: OnceLock::new(),
            failed: Arc::default(),
        })
    }

    /// Implements [`crate::driver::Device::submit`].
    pub(super) fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        let list = Arc::new(list);
        let in_flight = Arc::new(InFlight::new(list.clone(), completion, self.failed.clone()));
        let log = log_state(&self.device, &list, &in_flight)?;
        let mut open = lock(&self.open);
        self.reopen_after_failure(&mut open);
        if let Some(residency) = &self.residency {
            residency.commit(&open.raw);
        }
        let mut recorder = Recorder::new(self, &mut open, &in_flight, log, &list)?;
        let outcome = recorder
            .clear_blank(&list)
            .and_then(|()| recorder.record_all(&list))
            .map(|()| recorder.commit());
        drop(recorder);
        drop(open);
        drop(list);
        match outcome {
            // Nothing was committed to the device.
            Err(error) if !in_flight.has_started() => return Err(error),
            Err(error) => in_flight.fail(error),
            Ok(()) => {}
        }
        in_flight.release();
        Ok(())
    }

    /// Opens a new queue after a failure, once the old one is empty: the system refuses work from a
    /// queue that has failed several times.
    fn reopen_after_failure(&self, open: &mut OpenQueue) {
        if !self.failed.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Some(last) = open.last.take() {
            last.waitUntilCompleted();
        }
        if let Some(new) = OpenQueue::new(&self.device, self.residency.as_ref()) {
            *open = new;
        }
    }

    pub(super) fn device(&self) -> &ProtocolObject<dyn MTLDevice> {
        &self.device
    }

    pub(super) fn byte_kernels(&self) -> Result<Arc<ByteKernels>> {
        self.byte_kernels
            .get_or_init(|| ByteKernels::new(&self.device).map(Arc::new))
            .clone()
    }
}
