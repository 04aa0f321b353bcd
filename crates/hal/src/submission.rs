//! Submissions and their results.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Committed commands. Dropping it does not cancel them.
#[derive(Debug, Clone)]
#[must_use = "a submission may fail; wait for it, or keep it until a later one is waited for"]
pub struct Submission {
    completion: Arc<Completion>,
}

impl Submission {
    pub(crate) fn new(completion: Arc<Completion>) -> Self {
        Self { completion }
    }

    /// Waits until the commands have run.
    ///
    /// # Errors
    /// [`Error::Execution`] if the commands failed, or [`Error::Checked`] from a checking device.
    pub fn wait(&self) -> Result<Completed> {
        self.completion.wait()
    }

    /// Waits at most `limit`; `None` if the commands are still running then.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<Completed>> {
        self.completion.wait_for(limit)
    }

    /// Returns whether the commands have run or failed.
    pub fn is_done(&self) -> bool {
        self.completion.outcome().is_some()
    }
}

/// Result of commands that have run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completed {
    /// When the device started, on its own clock.
    pub gpu_start: Duration,
    /// When it ended, on the same clock.
    pub gpu_end: Duration,
    /// Command buffers that the driver used (long work is split to stay below the watchdog).
    pub command_buffers: u32,
    /// Lines that kernels logged with `os_log`.
    pub logs: Vec<LogLine>,
}

impl Completed {
    /// Time on the device.
    pub fn gpu_time(&self) -> Duration {
        self.gpu_end.saturating_sub(self.gpu_start)
    }
}

/// A line that a kernel logged with `os_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `default`, `debug`, `info`, `error` or `fault`.
    pub level: String,
    /// As given to `os_log`; empty for the default log.
    pub subsystem: String,
    /// As given to `os_log`; empty for the default log.
    pub category: String,
    /// The formatted text.
    pub message: String,
}

/// Holds the result of a submission, once the driver has stored it.
#[derive(Debug, Default)]
pub struct Completion {
    outcome: Mutex<Option<Result<Completed>>>,
    done: Condvar,
}

impl Completion {
    /// Stores the result and wakes all waiting threads. Only the first result counts.
    pub fn finish(&self, result: Result<Completed>) {
        let mut outcome = self.lock();
        if outcome.is_none() {
            *outcome = Some(result);
            self.done.notify_all();
        }
    }

    pub(crate) fn outcome(&self) -> Option<Result<Completed>> {
        self.lock().clone()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.lock().is_some()
    }

    /// The error of the commands, if they have failed.
    pub(crate) fn error(&self) -> Option<Error> {
        match &*self.lock() {
            Some(Err(error)) => Some(error.clone()),
            _ => None,
        }
    }

    pub(crate) fn wait(&self) -> Result<Completed> {
        let mut outcome = self.lock();
        loop {
            if let Some(result) = &*outcome {
                return result.clone();
            }
            outcome = self
                .done
                .wait(outcome)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn wait_for(&self, limit: Duration) -> Option<Result<Completed>> {
        let deadline = Instant::now().checked_add(limit);
        let mut outcome = self.lock();
        loop {
            if let Some(result) = &*outcome {
                return Some(result.clone());
            }
            let remaining = match deadline {
                Some(deadline) => deadline.checked_duration_since(Instant::now())?,
                None => limit,
            };
            outcome = self
                .done
                .wait_timeout(outcome, remaining)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<Completed>>> {
        // A panic while the lock is held cannot leave the option half written.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_on_the_device_is_from_start_to_end() {
        let completed = |start, end| Completed {
            gpu_start: Duration::from_millis(start),
            gpu_end: Duration::from_millis(end),
            ..Completed::default()
        };
        assert_eq!(completed(20, 27).gpu_time(), Duration::from_millis(7));
        assert_eq!(completed(20, 0).gpu_time(), Duration::ZERO, "no clock");
    }

    #[test]
    fn only_the_first_result_counts() {
        let completion = Completion::default();
        let completed = Completed {
            command_buffers: 3,
            ..Completed::default()
        };
        completion.finish(Ok(completed.clone()));
        completion.finish(Err(Error::Toolchain {
            message: "late".into(),
        }));
        assert_eq!(completion.wait(), Ok(completed));
        assert_eq!(completion.error(), None);
    }

    #[test]
    fn a_failure_completes_the_submission_and_is_reported_to_every_waiter() {
        let completion = Arc::new(Completion::default());
        let submission = Submission::new(completion.clone());
        assert_eq!((completion.error(), completion.is_done()), (None, false));
        let failure = Error::Toolchain {
            message: "gone".into(),
        };
        completion.finish(Err(failure.clone()));
        assert!(completion.is_done() && submission.is_done());
        assert_eq!(completion.error(), Some(failure.clone()));
        assert_eq!(completion.outcome(), Some(Err(failure.clone())));
        assert_eq!(submission.wait(), Err(failure.clone()));
        assert_eq!(submission.wait_for(Duration::ZERO), Some(Err(failure)));
    }

    #[test]
    fn waiting_with_a_limit_gives_up_and_can_be_tried_again() {
        let completion = Arc::new(Completion::default());
        let submission = Submission::new(completion.clone());
        assert_eq!(submission.wait_for(Duration::from_millis(1)), None);
        assert!(!submission.is_done());
        let other = completion.clone();
        let thread = std::thread::spawn(move || other.finish(Ok(Completed::default())));
        assert_eq!(
            submission.wait_for(Duration::MAX),
            Some(Ok(Completed::default()))
        );
        thread.join().unwrap();
    }
}
