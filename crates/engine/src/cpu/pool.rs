//! The threads of the CPU backend: one pool for the process.
//!
//! The calling thread always works too. Tasks are handed out one by one from a shared counter (`slot`), and the
//! caller waits for tasks that were begun, never for a worker that has not begun one. After a job the workers watch
//! for the next one for a moment before they sleep: the ops of a graph follow each other within microseconds, and
//! waking a sleeping thread takes longer than many of them.
//!
//! Cores may be busy with other processes. A worker that is preempted in the middle of a task holds up the job for
//! the milliseconds of the other's time slice. So workers give up their core between two tasks every now and then, where
//! it holds up nobody; and where jobs still wait for late workers longer than these are worth, fewer take part for a
//! while (`balance`).
//!
//! What a task computes must not depend on which thread runs it, nor on how many there are: then results
//! have the same bits for every thread count.
#![expect(
    unsafe_code,
    reason = "a job on the caller's stack is shared with the workers until all its tasks are done"
)]

mod balance;
mod place;
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

use self::balance::{Balance, Cost};
use self::place::Place;
use self::slot::{Body, Claim, Slot};
use crate::env;

/// Bytes that make a task worth a thread of its own: about 20 µs at the speed of one core's memory,
/// several times what handing out a task costs.
pub(crate) const TASK_BYTES: usize = 256 << 10;

/// How long a worker watches for the next job before it sleeps, and a caller for the last tasks.
const WATCH: Duration = Duration::from_micros(60);

/// How long a worker works before it offers its core to others, between two tasks. Shorter than the time slices of
/// schedulers, so that a worker is seldom preempted in the middle of a task; a call that nobody takes costs less than
/// a thousandth of it.
const TURN: Duration = Duration::from_micros(1000);

/// Items of a task for which each item reads and writes `bytes`, so that a task is worth its while.
pub(crate) fn grain(bytes: usize) -> usize {
    (TASK_BYTES / bytes.max(1)).max(1)
}

/// Threads that share the work, the caller included.
pub fn threads() -> usize {
    pool().limit.load(Ordering::Relaxed)
}

/// Uses at most `n` threads from now on; at least one, and no more than the pool was started with.
/// Returns the number in use.
pub fn set_threads(n: usize) -> usize {
    let pool = pool();
    let n = n.clamp(1, pool.workers.len() + 1);
    pool.limit.store(n, Ordering::Relaxed);
    n
}

/// Calls `body(i)` for every `i` below `tasks`, on all threads, and returns when all calls have returned.
/// Inside another job the calls are made here, one after the other. A panic in a call is passed on to
/// the caller, after the job is over.
pub(crate) fn run(tasks: usize, body: impl Fn(usize) + Sync) {
    if tasks <= 1 || IN_JOB.get() || threads() == 1 {
        (0..tasks).for_each(body);
        return;
    }
    pool().run(tasks, &body);
}

/// Cuts `data` into pieces of `len` elements (the last may be shorter) and calls `body` with the number
/// of each piece and the piece, on all threads.
pub(crate) fn pieces<T: Send>(data: &mut [T], len: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    let len = len.max(1);
    let total = data.len();
    let whole = Pieces::new(data);
    run(total.div_ceil(len), |i| {
        let start = i * len;
        // SAFETY: the ranges of different `i` do not overlap, and `run` calls each `i` once.
        body(i, unsafe { whole.range(start, len.min(total - start)) });
    });
}

/// A slice of which several threads may take disjoint parts at once.
pub(crate) struct Pieces<'a, T> {
    start: *mut T,
    len: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: parts handed to other threads are disjoint (`range`'s contract), so this is as good as
// sending `&mut [T]`s there.
unsafe impl<T: Send> Sync for Pieces<'_, T> {}

impl<'a, T> Pieces<'a, T> {
    /// Shares `data`.
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self {
            start: data.as_mut_ptr(),
            len: data.len(),
            data: PhantomData,
        }
    }

    /// The elements from `start` on, `len` of them.
    ///
    /// # Safety
    /// No element of the range may be in another range that is still in use.
    ///
    /// # Panics
    /// Where the range does not lie inside the slice.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn range(&self, start: usize, len: usize) -> &mut [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "piece outside the slice"
        );
        // SAFETY: the range is inside the slice and, by contract, used by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

thread_local! {
    /// Whether this thread is running a task: jobs inside jobs are not shared again.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

struct Pool {
    /// Those beside the callers.
    workers: Box<[Worker]>,
    /// Threads to use, the caller counted.
    limit: AtomicUsize,
    /// The job whose tasks are handed out.
    slot: Slot,
    /// Threads that may take part in it, the caller counted.
    width: AtomicUsize,
    /// Held by the thread whose job has the workers.
    busy: Mutex<Balance>,
    /// The caller that sleeps until the last task is done.
    waiting: Mutex<Option<Thread>>,
    is_waiting: AtomicBool,
    place: Place,
    /// Called by workers that have seen a job and not yet taken a task of it.
    #[cfg(test)]
    before_claim: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Worker {
    thread: OnceLock<Thread>,
    /// Set before it sleeps. Whoever clears it wakes it.
    is_asleep: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Pool::start(env::threads().unwrap_or(cores))
    })
}

impl Pool {
    fn start(threads: usize) -> &'static Self {
        let pool: &'static Self = Box::leak(Box::new(Self {
            workers: (1..threads).map(|_| Worker::default()).collect(),
            limit: AtomicUsize::new(threads),
            slot: Slot::default(),
            width: AtomicUsize::new(threads),
            busy: Mutex::default(),
            waiting: Mutex::default(),
            is_waiting: AtomicBool::new(false),
            place: Place::new(),
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
        // Where the system refuses threads, the work is done with those there are.
        pool.limit.store(started, Ordering::Relaxed);
        pool
    }

    fn run(&'static self, tasks: usize, body: Body<'_>) {
        // One job has the workers; a second thread with a job does its own work meanwhile.
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
        // SAFETY: the slot has no job, since this thread holds the lock and every job is waited for; and this one
        // is over before this function returns.
        unsafe { self.slot.open(tasks, body) };
        self.wake(width - 1);
        let mut own = 0;
        while let Some(claim) = self.slot.claim() {
            own += 1;
            self.one(claim);
        }
        let spent = start.elapsed();
        let waited = self.wait(start + spent);
        balance.learn(&Cost {
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

    /// Wakes those of the first `count` workers that sleep.
    fn wake(&self, count: usize) {
        let mut is_clear = false;
        for worker in &self.workers[..count] {
            // With `sleep`: either the worker sees the job, or its flag is seen here.
            if worker.is_asleep.load(Ordering::SeqCst)
                && worker.is_asleep.swap(false, Ordering::SeqCst)
                && let Some(thread) = worker.thread.get()
            {
                if !is_clear {
                    self.place.clear_the_way();
                    is_clear = true;
                }
                thread.unpark();
            }
        }
    }

    /// Does a task.
    fn one(&self, claim: Claim) {
        let outer = IN_JOB.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| (claim.body)(claim.task)));
        IN_JOB.set(outer);
        // The job may be over from here on. Whoever waits now may wait for another one, and looks again.
        if self.slot.done(result.err())
            && self.is_waiting.load(Ordering::SeqCst)
            && let Some(thread) = &*lock(&self.waiting)
        {
            thread.unpark();
        }
    }

    /// Waits until the tasks that others began are done, and returns how long that took.
    fn wait(&self, start: Instant) -> Duration {
        let mut waited = Duration::ZERO;
        while !self.slot.is_done() {
            if waited < WATCH {
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

    /// The core is left to others: to the worker that is waited for, perhaps.
    fn sleep_until_done(&self) {
        *lock(&self.waiting) = Some(std::thread::current());
        self.is_waiting.store(true, Ordering::SeqCst);
        while !self.slot.is_done() {
            std::thread::park();
        }
        self.is_waiting.store(false, Ordering::Relaxed);
        *lock(&self.waiting) = None;
    }

    /// What worker `index` does, for ever.
    fn serve(&'static self, index: usize) {
        self.place.enter();
        let worker = &self.workers[index];
        // The first time that it is set.
        let _ = worker.thread.set(std::thread::current());
        // In this order: the width is that of the job, or of a later one.
        let is_wanted = || self.slot.has_tasks() && index + 1 < self.width.load(Ordering::Relaxed);
        let mut turn = Instant::now();
        loop {
            let start = Instant::now();
            while !is_wanted() {
                if start.elapsed() > WATCH {
                    worker.sleep(is_wanted);
                    turn = Instant::now();
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
                self.one(claim);
                if turn.elapsed() > TURN {
                    std::thread::yield_now();
                    turn = Instant::now();
                }
            }
        }
    }
}

impl Worker {
    /// Sleeps until it is woken, unless there is work.
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
