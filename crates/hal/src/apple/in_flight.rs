//! Submissions in flight: the results of their command buffers are merged into one.
#![expect(unsafe_code, reason = "receives lines of Metal's log on other threads")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block2::RcBlock;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLDevice, MTLLogLevel, MTLLogState,
    MTLLogStateDescriptor,
};

use super::diagnostics::fault;
use super::pipeline::Pipeline;
use super::unaligned_copy::ByteKernels;
use crate::driver::{Command, CommandList};
use crate::error::{Error, Fault, Result};
use crate::submission::{Completed, Completion, LogLine};

/// Maximum bytes that a submission's kernels may log.
const MAX_LOG_BYTES: isize = 1 << 20;

/// State of a submission in flight, shared by its command buffers.
#[derive(Debug)]
pub(super) struct InFlight {
    completion: Arc<Completion>,
    /// Tells the queue that a command buffer has failed.
    failed: Arc<AtomicBool>,
    /// Number of command buffers that have not ended, plus one for the thread that commits them.
    pending: AtomicUsize,
    state: Mutex<InFlightState>,
}

#[derive(Debug)]
struct InFlightState {
    /// Keeps buffers and pipelines alive until the device is done with them.
    list: Option<Arc<CommandList>>,
    /// Keeps the unaligned copy kernels alive: the device may be dropped before its work is done.
    kernels: Option<Arc<ByteKernels>>,
    /// Keeps the log that the command buffers write to alive.
    log: Option<Retained<ProtocolObject<dyn MTLLogState>>>,
    completed: Completed,
    failure: Option<Error>,
}

impl InFlight {
    pub(super) fn new(
        list: Arc<CommandList>,
        completion: Arc<Completion>,
        failed: Arc<AtomicBool>,
    ) -> Self {
        Self {
            completion,
            failed,
            pending: AtomicUsize::new(1),
            state: Mutex::new(InFlightState {
                list: Some(list),
                kernels: None,
                log: None,
                completed: Completed::default(),
                failure: None,
            }),
        }
    }

    pub(super) fn has_started(&self) -> bool {
        lock(&self.state).completed.command_buffers > 0
    }

    /// Counts a command buffer that is about to be committed.
    pub(super) fn start(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        lock(&self.state).completed.command_buffers += 1;
    }

    /// Records a failure; only the first is reported, since the others are its consequences.
    pub(super) fn fail(&self, error: Error) {
        lock(&self.state).failure.get_or_insert(error);
    }

    /// Keeps the unaligned copy kernels alive until the device is done with them.
    pub(super) fn keep(&self, kernels: Arc<ByteKernels>) {
        lock(&self.state).kernels = Some(kernels);
    }

    /// Records the result of a command buffer that has ended.
    pub(super) fn ended(
        &self,
        buffer: &ProtocolObject<dyn MTLCommandBuffer>,
        kernel: Option<&str>,
    ) {
        if let Some(error) = failure(buffer, kernel) {
            self.failed.store(true, Ordering::Relaxed);
            self.fail(error);
        }
        let seconds = |t| Duration::try_from_secs_f64(t).unwrap_or_default();
        let start = seconds(buffer.GPUStartTime());
        let end = seconds(buffer.GPUEndTime());
        // Command buffers without work, and some failed ones, have no times.
        if !end.is_zero() {
            let mut state = lock(&self.state);
            let completed = &mut state.completed;
            if completed.gpu_end.is_zero() {
                completed.gpu_start = start;
            }
            completed.gpu_start = completed.gpu_start.min(start);
            completed.gpu_end = completed.gpu_end.max(end);
        }
        self.release();
    }

    /// Releases the reference of a command buffer or of the committing thread; the last one completes the submission.
    pub(super) fn release(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut state = lock(&self.state);
        let resources = (state.list.take(), state.kernels.take(), state.log.take());
        let completed = std::mem::take(&mut state.completed);
        let failure = state.failure.take();
        drop(state);
        // Memory first: waiting threads may rely on it being free.
        drop(resources);
        self.completion.finish(failure.map_or(Ok(completed), Err));
    }
}

/// The error of a command buffer that has ended.
fn failure(buffer: &ProtocolObject<dyn MTLCommandBuffer>, kernel: Option<&str>) -> Option<Error> {
    let status = buffer.status();
    let error = buffer.error();
    if status == MTLCommandBufferStatus::Completed && error.is_none() {
        return None;
    }
    let (fault, message) = match error {
        Some(error) => {
            let text = error.localizedDescription().to_string();
            let code = usize::try_from(error.code()).unwrap_or_default();
            (fault(code, &text), text)
        }
        None => (
            Fault::Other,
            format!("the command buffer ended with status {}", status.0),
        ),
    };
    Some(Error::Execution {
        fault,
        kernel: kernel.map(str::to_owned),
        message,
    })
}

/// Creates a log for the submission, if one of its kernels may log.
pub(super) fn log_state(
    device: &ProtocolObject<dyn MTLDevice>,
    list: &CommandList,
    in_flight: &Arc<InFlight>,
) -> Result<Option<Retained<ProtocolObject<dyn MTLLogState>>>> {
    let logs = list.commands.iter().any(|command| match command {
        Command::Dispatch(dispatch) => Pipeline::of(dispatch).logs,
        _ => false,
    });
    if !logs {
        return Ok(None);
    }
    let descriptor = MTLLogStateDescriptor::new();
    descriptor.setLevel(MTLLogLevel::Debug);
    // SAFETY: the size is between Metal's bounds of 1 KB and 1 GB.
    unsafe { descriptor.setBufferSize(MAX_LOG_BYTES) };
    let state = device
        .newLogStateWithDescriptor_error(&descriptor)
        .map_err(|error| Error::Execution {
            fault: Fault::Other,
            kernel: None,
            message: format!("no log for os_log: {}", error.localizedDescription()),
        })?;
    // Weak, because `InFlight` keeps the log and the log its handler.
    let writer = assert_send(Arc::downgrade(in_flight));
    let handler = RcBlock::new(
        move |subsystem: *mut NSString,
              category: *mut NSString,
              level: MTLLogLevel,
              message: NonNull<NSString>| {
            // SAFETY: Metal passes strings, or null for the first two, that live during the call.
            let line = unsafe {
                LogLine {
                    level: level_name(level).to_owned(),
                    subsystem: subsystem
                        .as_ref()
                        .map(NSString::to_string)
                        .unwrap_or_default(),
                    category: category
                        .as_ref()
                        .map(NSString::to_string)
                        .unwrap_or_default(),
                    message: message.as_ref().to_string(),
                }
            };
            if let Some(in_flight) = writer.upgrade() {
                lock(&in_flight.state).completed.logs.push(line);
            }
        },
    );
    // SAFETY: the block may be called on any thread: everything it captures is `Send` and `Sync`.
    unsafe { state.addLogHandler(&handler) };
    lock(&in_flight.state).log = Some(state.clone());
    Ok(Some(state))
}

fn level_name(level: MTLLogLevel) -> &'static str {
    match level {
        MTLLogLevel::Debug => "debug",
        MTLLogLevel::Info => "info",
        MTLLogLevel::Error => "error",
        MTLLogLevel::Fault => "fault",
        _ => "default",
    }
}

/// Makes the compiler check that a value may be sent to the threads on which Metal calls blocks.
pub(super) fn assert_send<T: Send + Sync>(value: T) -> T {
    value
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic can leave these states half updated.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
