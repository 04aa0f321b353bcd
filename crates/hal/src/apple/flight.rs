//! Submissions under way: what their command buffers say at the end becomes one result.
#![expect(
    unsafe_code,
    reason = "receives the lines of Metal's log on other threads"
)]

use super::bytes::ByteKernels;
use super::diagnostics::fault;
use super::pipeline::Pipeline;
use crate::driver::{Command, CommandList};
use crate::error::{Error, Fault, Result};
use crate::submission::{Completed, Completion, LogLine};
use block2::RcBlock;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLDevice, MTLLogLevel, MTLLogState,
    MTLLogStateDescriptor,
};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes a submission's kernels may log.
const LOG_BYTES: isize = 1 << 20;

/// A submission on its way: what its command buffers share.
#[derive(Debug)]
pub(super) struct Flight {
    completion: Arc<Completion>,
    /// Tells the queue that a command buffer has failed.
    failed: Arc<AtomicBool>,
    /// Command buffers that have not ended, and one for the thread that commits them.
    open: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Keeps buffers and pipelines until the device is done with them.
    list: Option<Arc<CommandList>>,
    /// Keeps the kernels that copy bytes: the device may go before its work is done.
    kernels: Option<Arc<ByteKernels>>,
    /// Keeps the log that the command buffers write to.
    log: Option<Retained<ProtocolObject<dyn MTLLogState>>>,
    completed: Completed,
    failure: Option<Error>,
}

impl Flight {
    pub(super) fn new(
        list: Arc<CommandList>,
        completion: Arc<Completion>,
        failed: Arc<AtomicBool>,
    ) -> Self {
        Self {
            completion,
            failed,
            open: AtomicUsize::new(1),
            state: Mutex::new(State {
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
        self.open.fetch_add(1, Ordering::Relaxed);
        lock(&self.state).completed.command_buffers += 1;
    }

    /// Notes a failure; the first is the one that is reported, the others follow from it.
    pub(super) fn fail(&self, error: Error) {
        lock(&self.state).failure.get_or_insert(error);
    }

    /// Keeps the kernels that copy bytes until the device is done with them.
    pub(super) fn keep(&self, kernels: Arc<ByteKernels>) {
        lock(&self.state).kernels = Some(kernels);
    }

    /// Takes over what a command buffer says at its end.
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
        // Without work, or after some failures, there are no times.
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

    /// Lets go of one command buffer, or of the committing thread; the last one ends the submission.
    pub(super) fn release(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut state = lock(&self.state);
        let held = (state.list.take(), state.kernels.take(), state.log.take());
        let completed = std::mem::take(&mut state.completed);
        let failure = state.failure.take();
        drop(state);
        // Memory first: whoever waits may count on its being free.
        drop(held);
        self.completion.finish(failure.map_or(Ok(completed), Err));
    }
}

/// The error a command buffer ended with.
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

/// A log for the submission, if one of its kernels may write to it.
pub(super) fn log_state(
    device: &ProtocolObject<dyn MTLDevice>,
    list: &CommandList,
    flight: &Arc<Flight>,
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
    unsafe { descriptor.setBufferSize(LOG_BYTES) };
    let state = device
        .newLogStateWithDescriptor_error(&descriptor)
        .map_err(|error| Error::Execution {
            fault: Fault::Other,
            kernel: None,
            message: format!("no log for os_log: {}", error.localizedDescription()),
        })?;
    // Weak, because the flight keeps the log and the log its handler.
    let writer = send(Arc::downgrade(flight));
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
            if let Some(flight) = writer.upgrade() {
                lock(&flight.state).completed.logs.push(line);
            }
        },
    );
    // SAFETY: the block may be called on any thread: all it holds is `Send` and `Sync`.
    unsafe { state.addLogHandler(&handler) };
    lock(&flight.state).log = Some(state.clone());
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

/// Has the compiler check that a value may go to the threads on which Metal calls blocks.
pub(super) fn send<T: Send + Sync>(value: T) -> T {
    value
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic can leave these states half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
