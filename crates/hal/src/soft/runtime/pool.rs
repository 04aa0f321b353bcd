//! The worker threads of a device.
//!
//! The launching thread participates, so a launch needs no hand-over, and a small one wakes no worker: the image
//! remembers the cost of its threadgroups, and only launches worth the wake-up are shared.
#![expect(
    unsafe_code,
    reason = "workers borrow launches from the launching thread's stack"
)]

use std::collections::VecDeque;
use std::hint;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use super::fault::LaunchFault;
use super::launch::{KernelLaunch, LaunchMode, LaunchOutput};
use super::log::Log;
use super::worker::{Job, Worker};

/// Launches below this many nanoseconds run on the calling thread alone: a wake-up costs 5 to 50 microseconds.
const MIN_SHARED_LAUNCH_NS: u64 = 30_000;
/// Nanoseconds of work that a thread takes from the counter at a time.
const CHUNK_NS: u64 = 10_000;
/// Assumed cost of a thread in nanoseconds before the image has run.
const DEFAULT_THREAD_COST_NS: u64 = 10;
/// Iterations that an idle thread spins before it sleeps; a few microseconds.
const IDLE_SPINS: u32 = 2_000;
/// Stack size of a worker. Pages are only committed as private arrays reach them.
const WORKER_STACK_BYTES: usize = 16 << 20;

/// Threads that run launches, created once per device.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolState {
    queue: Mutex<OfferQueue>,
    wake: Condvar,
    /// Worker memory for launching threads, which are not the pool's own.
    spare: Mutex<Vec<Worker>>,
    /// Number of launches that accept helpers; lets idle workers poll without the lock.
    waiting: AtomicUsize,
    log: Log,
}

#[derive(Debug, Default)]
struct OfferQueue {
    offers: VecDeque<Offer>,
    stopping: bool,
}

/// A launch that workers may help with.
#[derive(Debug)]
struct Offer {
    ticket: *const Ticket<'static>,
    helper_slots: usize,
}

// SAFETY: the ticket outlives its offer (see `Pool::share`) and may be used from any thread.
unsafe impl Send for Offer {}

/// A job, and the number of helpers besides its owner.
struct Ticket<'a> {
    job: &'a Job<'a>,
    helpers: AtomicUsize,
    owner: Thread,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Creates a pool with one thread per core.
    ///
    /// # Errors
    /// Threads cannot be created.
    pub fn new() -> io::Result<Self> {
        Self::with_threads(thread::available_parallelism()?.get())
    }

    /// Creates a pool that uses at most `threads` threads per launch, including the launching one.
    ///
    /// # Errors
    /// Threads cannot be created.
    pub fn with_threads(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(PoolState {
            queue: Mutex::default(),
            wake: Condvar::new(),
            spare: Mutex::default(),
            waiting: AtomicUsize::new(0),
            log: Log::default(),
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
        };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let handle = thread::Builder::new()
                .name(format!("bessemer-{index}"))
                .stack_size(WORKER_STACK_BYTES)
                .spawn(move || worker_main(&shared))?;
            pool.threads.push(handle);
        }
        Ok(pool)
    }

    /// Number of threads that a launch can use.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// The log of the kernels.
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Runs a launch to completion.
    ///
    /// # Errors
    /// The launch is invalid, crashes, times out or finds no memory. The pool remains usable.
    pub fn run(&self, launch: &KernelLaunch<'_>) -> Result<LaunchOutput, LaunchFault> {
        let geometry = launch.geometry()?;
        if geometry.total == 0 {
            return Ok(LaunchOutput::default());
        }
        let mut job = Job::new(launch, geometry, &self.shared.log)?;
        let total = geometry.total;
        let lanes: u64 = launch.threadgroup.iter().map(|&n| u64::from(n)).product();
        let cost = launch
            .image
            .cost()
            .unwrap_or(lanes * DEFAULT_THREAD_COST_NS)
            .max(1);
        // Enough chunks to balance the load, but none so small that taking it dominates.
        let max_chunk = total.div_ceil(self.threads() as u64 * 8);
        job.set_chunk((CHUNK_NS / cost).clamp(1, max_chunk.max(1)));
        // Fuzzing is reproducible only if threadgroups run sequentially.
        let single_threaded = matches!(launch.mode, LaunchMode::Fuzz { .. })
            || self.threads.is_empty()
            || total == 1
            || total.saturating_mul(cost) < MIN_SHARED_LAUNCH_NS;
        let mut worker = lock(&self.shared.spare).pop().unwrap_or_default();
        if single_threaded {
            worker.run(&job);
        } else {
            self.share(&job, &mut worker);
        }
        lock(&self.shared.spare).push(worker);
        let done = job.finish()?;
        // The time of a failed launch does not predict the next one's.
        let threads = if single_threaded {
            1
        } else {
            self.threads() as u128
        };
        let cost = done.time.as_nanos() * threads / u128::from(total);
        launch
            .image
            .learn_cost(u64::try_from(cost).unwrap_or(u64::MAX));
        Ok(done)
    }

    /// Runs `job` on this thread and the pool's threads.
    fn share(&self, job: &Job<'_>, worker: &mut Worker) {
        let ticket = Ticket {
            job,
            helpers: AtomicUsize::new(0),
            owner: thread::current(),
        };
        let helpers = self.threads.len().min(job.geometry.total as usize - 1);
        {
            let mut queue = lock(&self.shared.queue);
            queue.offers.push_back(Offer {
                ticket: (&raw const ticket).cast(),
                helper_slots: helpers,
            });
            self.shared.waiting.fetch_add(1, Ordering::Release);
        }
        for _ in 0..helpers {
            self.shared.wake.notify_one();
        }
        worker.run(job);
        {
            // No more helpers can join after this.
            let mut queue = lock(&self.shared.queue);
            let address: *const Ticket<'static> = (&raw const ticket).cast();
            queue
                .offers
                .retain(|offer| !std::ptr::eq(offer.ticket, address));
            self.shared
                .waiting
                .store(queue.offers.len(), Ordering::Release);
        }
        let mut spins = 0;
        while ticket.helpers.load(Ordering::Acquire) > 0 {
            if spins < IDLE_SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                thread::park();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).stopping = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A worker's panic needs no further handling.
            let _ = thread.join();
        }
    }
}

/// Main loop of a worker thread.
fn worker_main(shared: &PoolState) {
    let mut worker = Worker::default();
    while let Some(ticket) = next_ticket(shared) {
        // SAFETY: `next_ticket` counted us as a helper, so the owner waits for us in `share` and the ticket is
        // alive.
        let job = unsafe { (*ticket).job };
        worker.run(job);
        // SAFETY: as above; the clone outlives the ticket, which may be gone once the count has dropped.
        unsafe {
            let owner = (*ticket).owner.clone();
            if (*ticket).helpers.fetch_sub(1, Ordering::Release) == 1 {
                owner.unpark();
            }
        }
    }
}

/// Waits for a launch to help with; `None` when the pool shuts down.
fn next_ticket(shared: &PoolState) -> Option<*const Ticket<'static>> {
    for _ in 0..IDLE_SPINS {
        if shared.waiting.load(Ordering::Acquire) > 0 {
            break;
        }
        hint::spin_loop();
    }
    let mut queue = lock(&shared.queue);
    loop {
        if queue.stopping {
            return None;
        }
        for offer in &mut queue.offers {
            // SAFETY: an offer in the queue has a live ticket: its owner removes it, under this lock, before
            // leaving.
            let ticket = unsafe { &*offer.ticket };
            if offer.helper_slots > 0 && ticket.job.has_work() {
                offer.helper_slots -= 1;
                ticket.helpers.fetch_add(1, Ordering::Relaxed);
                return Some(offer.ticket);
            }
        }
        queue = shared
            .wake
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner);
    }
}
