//! The slot that holds the current job and hands out its tasks one at a time.
//!
//! A task is claimed by decrementing the number of tasks left. A successful claim is for the job that is open
//! at that moment, and that job stays open until the task is done. So a worker that was stalled since an
//! earlier job cannot do harm, and one that has claimed nothing need not be waited for.
//!
//! Memory ordering: `open` writes the job, then stores `left` (release). A claim decrements `left` (acquire;
//! the decrement continues the release sequence), then reads the job. The last `done` happens before the caller
//! sees `unfinished` reach zero (release/acquire), and only then is the job overwritten.
#![expect(
    unsafe_code,
    reason = "a job is read by threads that run its tasks, and written when there are none"
)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) type Body<'a> = &'a (dyn Fn(usize) + Sync);

type Panic = Box<dyn Any + Send>;

/// A job as the slot stores it.
#[derive(Clone, Copy)]
struct Job {
    /// The body, with its lifetime erased.
    body: Body<'static>,
    tasks: usize,
}

/// Storage for one job.
#[derive(Default)]
pub(super) struct JobSlot {
    /// Unclaimed tasks.
    left: AtomicUsize,
    /// Tasks that have not finished.
    unfinished: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Panic>>,
}

// SAFETY: the job is written only by `open`, when no task is unfinished, and read only by holders of a task.
unsafe impl Sync for JobSlot {}

/// A claimed task.
pub(super) struct Claim {
    pub(super) body: Body<'static>,
    pub(super) task: usize,
}

impl JobSlot {
    /// Publishes a job of at least one task.
    ///
    /// # Safety
    /// The previous job is done ([`JobSlot::is_done`]), no other thread opens one, and `body` outlives this job.
    pub(super) unsafe fn open(&self, tasks: usize, body: Body<'_>) {
        // SAFETY: only the lifetime changes; by contract, the body outlives its last use.
        let body = unsafe { std::mem::transmute::<Body<'_>, Body<'static>>(body) };
        // SAFETY: no task is unfinished, so there are no readers.
        unsafe { *self.job.get() = Some(Job { body, tasks }) };
        self.unfinished.store(tasks, Ordering::Relaxed);
        // Sequentially consistent with the flags of sleeping workers.
        self.left.store(tasks, Ordering::SeqCst);
    }

    /// Returns true if there are unclaimed tasks.
    pub(super) fn has_tasks(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    /// Claims the first unclaimed task. Its holder calls [`JobSlot::done`].
    pub(super) fn claim(&self) -> Option<Claim> {
        let mut left = self.left.load(Ordering::Relaxed);
        loop {
            let rest = left.checked_sub(1)?;
            match self
                .left
                .compare_exchange_weak(left, rest, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => left = now,
            }
        }
        // SAFETY: the task is unfinished, so the job is not overwritten.
        let job = unsafe { *self.job.get() }.expect("a job with tasks is open");
        Some(Claim {
            body: job.body,
            task: job.tasks - left,
        })
    }

    /// Marks a task as done, and returns true if it was the last one. After a panic the unclaimed tasks are
    /// dropped and count as done.
    pub(super) fn done(&self, panic: Option<Panic>) -> bool {
        let mut count = 1;
        if let Some(panic) = panic {
            *super::lock(&self.panic) = Some(panic);
            count += self.left.swap(0, Ordering::Relaxed);
        }
        // Sequentially consistent with the flag of a sleeping caller.
        self.unfinished.fetch_sub(count, Ordering::SeqCst) == count
    }

    /// Returns true if all tasks are done.
    pub(super) fn is_done(&self) -> bool {
        self.unfinished.load(Ordering::SeqCst) == 0
    }

    /// The panic payload of a finished job, if a task panicked.
    pub(super) fn panic(&self) -> Option<Panic> {
        super::lock(&self.panic).take()
    }
}
