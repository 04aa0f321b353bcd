//! Turning command lists into Metal's command buffers, in their order.
#![expect(
    unsafe_code,
    reason = "keeps a command buffer of Metal's behind a lock"
)]

use super::bytes::ByteKernels;
use super::flight::{Flight, lock, log_state};
use super::recorder::Recorder;
use super::residency::Residency;
use crate::driver::CommandList;
use crate::error::Result;
use crate::submission::Completion;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{MTLCommandBuffer, MTLCommandQueue, MTLDevice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A device's queue.
#[derive(Debug)]
pub(super) struct Queue {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    residency: Option<Arc<Residency>>,
    bytes: OnceLock<Result<Arc<ByteKernels>>>,
    /// A command buffer has failed since the line was opened.
    failed: Arc<AtomicBool>,
    /// Held from the first command buffer of a list to its last, so that lists do not interleave. Command
    /// buffers are committed as they fill: Metal lets only some (64) exist and makes the next one wait,
    /// which must never be for one that nobody has committed.
    line: Mutex<Line>,
}

/// Metal's queue, and the last command buffer that went into it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) raw: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    pub(super) last: Option<Retained<ProtocolObject<dyn MTLCommandBuffer>>>,
}

// SAFETY: Metal's objects may be used from any thread. A command buffer is not safe to use from two at
// once; this one is reached only through the mutex of `Queue`, and only to wait for its end.
unsafe impl Send for Line {}

impl Line {
    fn open(
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
            line: Mutex::new(Line::open(device, residency.as_ref())?),
            residency,
            bytes: OnceLock::new(),
            failed: Arc::default(),
        })
    }

    /// As the driver's contract says.
    pub(super) fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        let list = Arc::new(list);
        let flight = Arc::new(Flight::new(list.clone(), completion, self.failed.clone()));
        let log = log_state(&self.device, &list, &flight)?;
        let mut line = lock(&self.line);
        self.renew(&mut line);
        if let Some(residency) = &self.residency {
            residency.commit(&line.raw);
        }
        let mut recorder = Recorder::new(self, &mut line, &flight, log, &list)?;
        let outcome = recorder
            .clear_blank(&list)
            .and_then(|()| recorder.record_all(&list))
            .map(|()| recorder.commit());
        drop(recorder);
        drop(line);
        drop(list);
        match outcome {
            // Nothing has reached the device.
            Err(error) if !flight.has_started() => return Err(error),
            Err(error) => flight.fail(error),
            Ok(()) => {}
        }
        flight.release();
        Ok(())
    }

    /// Takes a new queue after a failure, once the old one is empty: the system refuses work from a
    /// queue that has failed several times.
    fn renew(&self, line: &mut Line) {
        if !self.failed.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Some(last) = line.last.take() {
            last.waitUntilCompleted();
        }
        if let Some(new) = Line::open(&self.device, self.residency.as_ref()) {
            *line = new;
        }
    }

    pub(super) fn device(&self) -> &ProtocolObject<dyn MTLDevice> {
        &self.device
    }

    pub(super) fn byte_kernels(&self) -> Result<Arc<ByteKernels>> {
        self.bytes
            .get_or_init(|| ByteKernels::new(&self.device).map(Arc::new))
            .clone()
    }
}
