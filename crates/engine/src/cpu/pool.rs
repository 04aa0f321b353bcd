//! The thread pool of the CPU backend, one per process.
//!
//! The calling thread takes part in its own job. Tasks are handed out one at a time from a shared counter
//! (`slot`), and the caller waits only for tasks that have started, never for a worker that has not claimed
//! one. After a job, workers spin briefly before they park: the ops of a graph follow each other within
//! microseconds, and waking a parked thread takes longer than many of them.
//!
//! Cores may be shared with other processes. A worker preempted in the middle of a task stalls the job for the
//! other process's time slice, which is milliseconds. So workers yield their core from time to time between two
//! tasks, where that stalls nothing. If jobs still spend more time waiting for late workers than those workers
//! contribute, fewer threads take part for a while (`balance`).
//!
//! The result of a task must not depend on which thread runs it, nor on the number of threads, so results are
//! bit-identical for every thread count.
#![expect(
    unsafe_code,
    reason = "a job on the caller's stack is shared with the workers until all its tasks are done"
)]

mod affinity;
mod balance;
mod slot;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use self::affinity::Affinity;
use self::balance::{Balance, JobTiming};
use self::slot::{Body, Claim, JobSlot};
use crate::env;

/// Memory traffic that makes a task worth its own thread: about 20 µs at the bandwidth of one core, several
/// times the cost of handing out a task.
pub(crate) const TASK_BYTES: usize = 256 << 10;

/// How long a worker spins for the next job before it parks, and a caller for the last tasks.
const SPIN_TIME: Duration = Duration::from_micros(60);

/// How long a worker runs before it yields its core between two tasks. Shorter than a scheduler time slice, so
/// a worker is rarely preempted in the middle of a task. A yield with no other runnable thread costs less than
/// a thousandth of this.
const YIELD_INTERVAL: Duration = Duration::from_micros(1000);

/// Items per task if each item reads and writes `bytes`.
pub(crate) fn grain(bytes: usize) -> usize {
    (TASK_BYTES / bytes.max(1)).max(1)
}

/// Number of threads that share the work, including the caller.
pub fn threads() -> usize {
    pool().limit.load(Ordering::Relaxed)
}

/// Limits the pool to `n` threads, clamped to between one and the number it was started with. Returns the
/// number in use.
pub fn set_threads(n: usize) -> usize {
    let pool = pool();
    let n = n.clamp(1, pool.workers.len() + 1);
    pool.limit.store(n, Ordering::Relaxed);
    n
}

/// Calls `body(i)` for every `i` below `tasks` on all threads, and returns when all calls have returned. Nested
/// jobs run serially on the calling thread. A panic in a call is propagated to the caller once the job is over.
pub(crate) fn run(tasks: usize, body: impl Fn(usize) + Sync) {
    if tasks <= 1 || IN_JOB.get() || threads() == 1 {
        (0..tasks).for_each(body);
        return;
    }
    pool().run(tasks, &body);
}

/// Splits `data` into chunks of `len` elements (the last may be shorter) and calls `body` with each chunk's
/// index and the chunk, on all threads. Public for the benchmarks only.
#[doc(hidden)]
pub fn for_each_chunk<T: Send>(data: &mut [T], len: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    let len = len.max(1);
    let total = data.len();
    let whole = DisjointSlice::new(data);
    run(total.div_ceil(len), |i| {
        let start = i * len;
        // SAFETY: the ranges of different `i` do not overlap, and `run` calls each `i` once.
        body(i, unsafe { whole.range(start, len.min(total - start)) });
    });
}

/// A slice that several threads may mutate at once, through disjoint ranges.
pub(crate) struct DisjointSlice<'a, T> {
    start: *mut T,
    len: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: ranges handed to other threads are disjoint (`range`'s contract), which is equivalent to sending
// `&mut [T]`s.
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    /// Shares `data`.
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self {
            start: data.as_mut_ptr(),
            len: data.len(),
            data: PhantomData,
        }
    }

    /// The `len` elements from `start`.
    ///
    /// # Safety
    /// No element of the range may be in another range that is still in use.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn range(&self, start: usize, len: usize) -> &mut [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "range out of bounds"
        );
        // SAFETY: the range is inside the slice and, by contract, not aliased.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

thread_local! {
    /// Set while this thread runs a task: nested jobs are not parallelised.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

struct ThreadPool {
    /// The threads besides the callers.
    workers: Box<[Worker]>,
    /// Threads to use, including the caller.
    limit: AtomicUsize,
    /// The current job.
    slot: JobSlot,
    /// Threads that may take part in the current job, including the caller.
    width: AtomicUsize,
    /// Held by the thread whose job owns the workers.
    busy: Mutex<Balance>,
    /// The caller that is parked until the last task is done.
    waiting: Mutex<Option<Thread>>,
    is_waiting: AtomicBool,
    affinity: Affinity,
    /// Called by workers that have seen a job and not yet claimed a task of it.
    #[cfg(test)]
    before_claim: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Worker {
    thread: OnceLock<Thread>,
    /// Set before it parks. The thread that clears it also unparks the worker.
    is_asleep: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> &'static ThreadPool {
    static POOL: OnceLock<&'static ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        ThreadPool::start(env::settings().threads.unwrap_or(cores))
    })
}

impl ThreadPool {
    fn start(threads: usize) -> &'static Self {
        let pool: &'static Self = Box::leak(Box::new(Self {
            workers: (1..threads).map(|_| Worker::default()).collect(),
            limit: AtomicUsize::new(threads),
            slot: JobSlot::default(),
            width: AtomicUsize::new(threads),
            busy: Mutex::default(),
            waiting: Mutex::default(),
            is_waiting: AtomicBool::new(false),
            affinity: Affinity::new(),
            #[cfg(test)]
            before_claim: OnceLock::new(),
        }));
        let mut started = 1;
        for i in 0..pool.workers.len() {
            let spawned = std::thread::Builder::new()
                .name(format!("bessemer-{}", i + 1))
                .spawn(move || pool.serve(i));
            if spawned.is_err() {
                break;
            }
            started += 1;
        }
        // If the system refuses to spawn more threads, make do with those that started.
        pool.limit.store(started, Ordering::Relaxed);
        event!(DEBUG, "thread pool started", threads = started);
        pool
    }

    fn run(&'static self, tasks: usize, body: Body<'_>) {
        // One job at a time owns the workers; a second caller runs its job serially meanwhile.
        let Ok(mut balance) = self.busy.try_lock() else {
            (0..tasks).for_each(body);
            return;
        };
        let start = Instant::now();
        let limit = self.limit.load(Ordering::Relaxed);
        let width = balance.width(limit, start).min(tasks);
        if width == 1 {
            drop(balance);
            (0..tasks).for_each(body);
            return;
        }
        self.width.store(width, Ordering::Relaxed);
        // SAFETY: the slot has no job, since this thread holds the lock and every job is waited for. This job
        // is over before this function returns.
        unsafe { self.slot.open(tasks, body) };
        self.wake(width - 1);
        let mut own = 0;
        while let Some(claim) = self.slot.claim() {
            own += 1;
            self.run_task(claim);
        }
        let spent = start.elapsed();
        let waited = self.wait(start + spent);
        balance.learn(&JobTiming {
            width,
            own,
            spent,
            waited,
            now: start + spent + waited,
        });
        let panic = self.slot.panic();
        drop(balance);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Unparks the parked workers among the first `count`.
    fn wake(&self, count: usize) {
        let mut is_core_avoided = false;
        for worker in &self.workers[..count] {
            // Pairs with `sleep`: either the worker sees the job, or its flag is seen here.
            if worker.is_asleep.load(Ordering::SeqCst)
                && worker.is_asleep.swap(false, Ordering::SeqCst)
                && let Some(thread) = worker.thread.get()
            {
                if !is_core_avoided {
                    self.affinity.avoid_current_core();
                    is_core_avoided = true;
                }
                thread.unpark();
            }
        }
    }

    /// Runs one task.
    fn run_task(&self, claim: Claim) {
        let outer = IN_JOB.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| (claim.body)(claim.task)));
        IN_JOB.set(outer);
        // The job may be over from here on. A caller that waits now may wait for another job, and checks again.
        if self.slot.done(result.err())
            && self.is_waiting.load(Ordering::SeqCst)
            && let Some(thread) = &*lock(&self.waiting)
        {
            thread.unpark();
        }
    }

    /// Waits for tasks that workers have started, and returns how long that took.
    fn wait(&self, start: Instant) -> Duration {
        let mut waited = Duration::ZERO;
        while !self.slot.is_done() {
            if waited < SPIN_TIME {
                for _ in 0..32 {
                    std::hint::spin_loop();
                }
            } else {
                self.sleep_until_done();
            }
            waited = start.elapsed();
        }
        waited
    }

    /// Parks, which frees the core, possibly for the very worker that the job waits for.
    fn sleep_until_done(&self) {
        *lock(&self.waiting) = Some(std::thread::current());
        self.is_waiting.store(true, Ordering::SeqCst);
        while !self.slot.is_done() {
            std::thread::park();
        }
        self.is_waiting.store(false, Ordering::Relaxed);
        *lock(&self.waiting) = None;
    }

    /// The main loop of worker `index`.
    fn serve(&'static self, index: usize) {
        self.affinity.enter();
        let worker = &self.workers[index];
        // Set once, so this cannot fail.
        let _ = worker.thread.set(std::thread::current());
        // The order matters: the width read is that of this job or of a later one.
        let is_wanted = || self.slot.has_tasks() && index + 1 < self.width.load(Ordering::Relaxed);
        let mut last_yield = Instant::now();
        loop {
            let start = Instant::now();
            while !is_wanted() {
                if start.elapsed() > SPIN_TIME {
                    worker.sleep(is_wanted);
                    last_yield = Instant::now();
                    break;
                }
                for _ in 0..32 {
                    std::hint::spin_loop();
                }
            }
            #[cfg(test)]
            if let Some(hook) = self.before_claim.get() {
                hook();
            }
            while is_wanted()
                && let Some(claim) = self.slot.claim()
            {
                self.run_task(claim);
                if last_yield.elapsed() > YIELD_INTERVAL {
                    std::thread::yield_now();
                    last_yield = Instant::now();
                }
            }
        }
    }
}

impl Worker {
    /// Parks until it is woken, unless there is work.
    fn sleep(&self, is_wanted: impl Fn() -> bool) {
        self.is_asleep.store(true, Ordering::SeqCst);
        while !is_wanted() {
            std::thread::park();
            if !self.is_asleep.load(Ordering::SeqCst) {
                return;
            }
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}
