//! The job whose tasks are handed out, one at a time.
//!
//! A task is taken by counting down the tasks left. Whoever succeeds has a task of the job that is open at that moment,
//! and that job stays open until the task is done: so a worker that was held up since another job cannot do harm, and
//! one that has taken nothing need not be waited for.
//!
//! Memory: `open` writes the job, then stores `left` (release); a claim counts `left` down (acquire, and its own
//! writes continue the release sequence), then reads the job. The last `done` of a task happens before the caller sees
//! `unfinished` at zero (release, acquire), and only then is the job written again.
#![expect(
    unsafe_code,
    reason = "a job is read by the holders of its tasks, and written when there are none"
)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) type Body<'a> = &'a (dyn Fn(usize) + Sync);

type Panic = Box<dyn Any + Send>;

/// What is known of a job.
#[derive(Clone, Copy)]
struct Job {
    /// The body, with its lifetime removed.
    body: Body<'static>,
    tasks: usize,
}

/// Room for one job.
#[derive(Default)]
pub(super) struct Slot {
    /// Tasks that nobody has taken.
    left: AtomicUsize,
    /// Tasks that are not done.
    unfinished: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Panic>>,
}

// SAFETY: the job is written by `open` alone, when no task is unfinished, and read only by holders of a task.
unsafe impl Sync for Slot {}

/// A task that nobody else has.
pub(super) struct Claim {
    pub(super) body: Body<'static>,
    pub(super) task: usize,
}

impl Slot {
    /// Hands out a job of at least one task.
    ///
    /// # Safety
    /// The job before is done ([`Slot::is_done`]), nobody else opens one, and `body` lives until this one is.
    pub(super) unsafe fn open(&self, tasks: usize, body: Body<'_>) {
        // SAFETY: only the lifetime changes; by contract, the body outlives its last use.
        let body = unsafe { std::mem::transmute::<Body<'_>, Body<'static>>(body) };
        // SAFETY: no task is unfinished, so nobody reads.
        unsafe { *self.job.get() = Some(Job { body, tasks }) };
        self.unfinished.store(tasks, Ordering::Relaxed);
        // Sequentially consistent with the flags of sleeping workers.
        self.left.store(tasks, Ordering::SeqCst);
    }

    /// Whether there are tasks to take.
    pub(super) fn has_tasks(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    /// Takes a task, the first of those that are left. Its holder calls [`Slot::done`].
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
        // SAFETY: the task is not done, so the job is not written.
        let job = unsafe { *self.job.get() }.expect("a job with tasks is open");
        Some(Claim {
            body: job.body,
            task: job.tasks - left,
        })
    }

    /// Says that a task is done, and whether it was the last one. Nobody needs to begin another task of a job that has
    /// failed: those left count as done.
    pub(super) fn done(&self, panic: Option<Panic>) -> bool {
        let mut count = 1;
        if let Some(panic) = panic {
            *super::lock(&self.panic) = Some(panic);
            count += self.left.swap(0, Ordering::Relaxed);
        }
        // Sequentially consistent with the flag of a sleeping caller.
        self.unfinished.fetch_sub(count, Ordering::SeqCst) == count
    }

    /// Whether all tasks are done.
    pub(super) fn is_done(&self) -> bool {
        self.unfinished.load(Ordering::SeqCst) == 0
    }

    /// The panic of a job that is done, if it had one.
    pub(super) fn panic(&self) -> Option<Panic> {
        super::lock(&self.panic).take()
    }
}
