//! The threads of the CPU backend: one pool for the process.
//!
//! The calling thread always works too. Tasks are handed out one by one from a shared counter, so a
//! thread that the system holds up does not hold up the others. After a job the workers watch for the
//! next one for a moment before they sleep: the ops of a graph follow each other within microseconds,
//! and waking a sleeping thread takes longer than many of them.
//!
//! What a task computes must not depend on which thread runs it, nor on how many there are: then results
//! have the same bits for every thread count.
#![expect(
    unsafe_code,
    reason = "a job on the caller's stack is shared with the workers until all its tasks are done"
)]

mod place;

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use self::place::Place;
use crate::env;

/// Bytes that make a task worth a thread of its own: about 20 µs at the speed of one core's memory,
/// several times what handing out a task costs.
pub(crate) const TASK_BYTES: usize = 256 << 10;

/// How long a worker watches for the next job before it sleeps.
const WATCH: Duration = Duration::from_micros(60);

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
    let n = n.clamp(1, pool.workers + 1);
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

type Body<'a> = &'a (dyn Fn(usize) + Sync);

/// One call of [`run`], on its caller's stack.
struct Job {
    /// The body, with its lifetime removed.
    body: Body<'static>,
    tasks: usize,
    next: AtomicUsize,
    /// Workers that may still look at this job.
    guests: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job {
    /// Takes tasks until there are none.
    fn work(&self) {
        let outer = IN_JOB.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let i = self.next.fetch_add(1, Ordering::Relaxed);
                if i >= self.tasks {
                    break;
                }
                (self.body)(i);
            }
        }));
        IN_JOB.set(outer);
        if let Err(panic) = result {
            // Nobody needs to begin another task of a job that has failed.
            self.next.store(self.tasks, Ordering::Relaxed);
            *lock(&self.panic) = Some(panic);
        }
    }
}

/// The job on offer, by address; workers count themselves in as guests under the lock.
#[derive(Clone, Copy)]
struct Offer(*const Job);

// SAFETY: the pointer is followed only by workers that counted themselves into `guests` while the job
// was on offer, and `Pool::run` returns only when the offer is withdrawn and all guests have left.
unsafe impl Send for Offer {}

struct Pool {
    /// Workers started, the callers not counted.
    workers: usize,
    /// Threads to use, the caller counted.
    limit: AtomicUsize,
    /// The job on offer and how many workers may still join it.
    offer: Mutex<Option<(Offer, usize)>>,
    /// Whether there is an offer with a place left: what watching workers look at, without the lock.
    open: AtomicBool,
    sleepers: AtomicUsize,
    wake: Condvar,
    /// Held by the thread whose job has the workers.
    busy: Mutex<()>,
    place: Place,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = env::threads().unwrap_or(cores);
        let pool: &'static Pool = Box::leak(Box::new(Pool {
            workers: threads - 1,
            limit: AtomicUsize::new(threads),
            offer: Mutex::new(None),
            open: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            wake: Condvar::new(),
            busy: Mutex::new(()),
            place: Place::new(),
        }));
        let mut started = 1;
        for i in 1..threads {
            let spawned = std::thread::Builder::new()
                .name(format!("bessemer-{i}"))
                .spawn(move || pool.serve());
            started += usize::from(spawned.is_ok());
        }
        // Where the system refuses threads, the work is done with those there are.
        pool.limit.store(started, Ordering::Relaxed);
        pool
    })
}

impl Pool {
    fn run(&'static self, tasks: usize, body: Body<'_>) {
        // One job has the workers; a second thread with a job does its own work meanwhile.
        let Ok(_busy) = self.busy.try_lock() else {
            (0..tasks).for_each(body);
            return;
        };
        // SAFETY: only the lifetime changes. The job is withdrawn and left by all guests before this
        // function returns, so the body is not used after its true lifetime.
        let body = unsafe { std::mem::transmute::<Body<'_>, Body<'static>>(body) };
        let job = Job {
            body,
            tasks,
            next: AtomicUsize::new(0),
            guests: AtomicUsize::new(0),
            panic: Mutex::new(None),
        };
        let guests = (self.limit.load(Ordering::Relaxed) - 1).min(tasks - 1);
        *lock(&self.offer) = Some((Offer(&raw const job), guests));
        self.open.store(true, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // The lock makes sure that a worker about to sleep sees the offer or hears the call.
            drop(lock(&self.offer));
            self.place.clear_the_way();
            self.wake.notify_all();
        }
        job.work();
        self.open.store(false, Ordering::SeqCst);
        *lock(&self.offer) = None;
        let mut spins = 0_u32;
        while job.guests.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < 2000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let panic = lock(&job.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// What a worker does, for ever.
    fn serve(&'static self) {
        self.place.enter();
        loop {
            let Some(Offer(job)) = self.next_job() else {
                continue;
            };
            // SAFETY: this worker is a guest of the job, so the job lives until `guests` is let go.
            let job = unsafe { &*job };
            job.work();
            job.guests.fetch_sub(1, Ordering::Release);
        }
    }

    /// Joins the job on offer, waiting for one if need be.
    fn next_job(&self) -> Option<Offer> {
        let start = Instant::now();
        while !self.open.load(Ordering::Acquire) {
            if start.elapsed() > WATCH {
                let mut offer = lock(&self.offer);
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                while !self.open.load(Ordering::SeqCst) {
                    offer = self
                        .wake
                        .wait(offer)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                return self.join(&mut offer);
            }
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
        self.join(&mut lock(&self.offer))
    }

    /// Makes this worker a guest of the job on offer; the last place closes the offer.
    fn join(&self, offer: &mut Option<(Offer, usize)>) -> Option<Offer> {
        let (job, places) = offer.as_mut().filter(|(_, places)| *places > 0)?;
        *places -= 1;
        if *places == 0 {
            self.open.store(false, Ordering::SeqCst);
        }
        // SAFETY: the job is on offer, so its caller is inside `Pool::run`.
        unsafe { &*job.0 }.guests.fetch_add(1, Ordering::AcqRel);
        Some(*job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for tasks in [0, 1, 2, 3, 1000] {
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            run(tasks, |i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn pieces_cover_the_slice_and_jobs_inside_jobs_finish() {
        let mut data = vec![0_usize; 1001];
        pieces(&mut data, 100, |i, piece| {
            pieces(piece, 7, |_, inner| inner.fill(i));
        });
        assert!(data.iter().enumerate().all(|(at, &i)| i == at / 100));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let result = catch_unwind(|| run(64, |i| assert!(i != 13, "unlucky")));
        assert!(result.is_err());
        let sum = AtomicUsize::new(0);
        run(64, |i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 64 * 63 / 2);
    }

    #[test]
    fn many_threads_share_the_pool() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let sum = AtomicUsize::new(0);
                        run(16, |i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 120);
                    }
                });
            }
        });
    }
}
