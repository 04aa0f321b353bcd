//! The worker threads of a device.
//!
//! The thread that launches takes part itself, so a launch needs no hand-over, and a small one wakes nobody: the image
//! remembers what its threadgroups cost, and only work that is worth the wake-up is shared.
#![expect(
    unsafe_code,
    reason = "workers borrow launches from the launching thread's stack"
)]

use super::fault::Fault;
use super::launch::{Done, Launch, Mode};
use super::log::Log;
use super::worker::{Job, Worker};
use std::collections::VecDeque;
use std::hint;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Launches below this many nanoseconds run on the calling thread: waking another costs 5 to 50 microseconds.
const WORTH_WAKING: u64 = 30_000;
/// Threadgroups are taken in portions of about this many nanoseconds.
const PORTION: u64 = 10_000;
/// What a thread is assumed to cost while an image has not run yet, in nanoseconds.
const UNKNOWN_THREAD: u64 = 10;
/// Turns that an idle thread spins before it sleeps; a few microseconds.
const SPINS: u32 = 2_000;
/// Stack of a worker. Memory is only used where a kernel's private arrays reach it.
const STACK: usize = 16 << 20;

/// Threads that run launches, created once a device.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Worker memory for launching threads, which come and go.
    spare: Mutex<Vec<Worker>>,
    /// Launches that want helpers; lets idle workers look without the lock.
    waiting: AtomicUsize,
    log: Log,
}

#[derive(Debug, Default)]
struct Queue {
    offers: VecDeque<Offer>,
    stopping: bool,
}

/// A launch that others may help with.
#[derive(Debug)]
struct Offer {
    ticket: *const Ticket<'static>,
    helpers_wanted: usize,
}

// SAFETY: the ticket outlives its offer (see `Pool::share`) and may be used from any thread.
unsafe impl Send for Offer {}

/// A job, and who is working on it besides its owner.
struct Ticket<'a> {
    job: &'a Job<'a>,
    helpers: AtomicUsize,
    owner: Thread,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool that uses as many threads as the machine has cores.
    ///
    /// # Errors
    /// When threads cannot be created.
    pub fn new() -> io::Result<Self> {
        Self::with_threads(thread::available_parallelism()?.get())
    }

    /// A pool that uses at most `threads` threads for a launch, the launching one included.
    ///
    /// # Errors
    /// When threads cannot be created.
    pub fn with_threads(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
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
                .stack_size(STACK)
                .spawn(move || help(&shared))?;
            pool.threads.push(handle);
        }
        Ok(pool)
    }

    /// Threads that a launch can use.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// What the kernels have logged.
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Runs a launch to its end.
    ///
    /// # Errors
    /// When the launch is invalid, crashes, runs too long or finds no memory. The pool can be used as before.
    pub fn run(&self, launch: &Launch<'_>) -> Result<Done, Fault> {
        let geometry = launch.geometry()?;
        if geometry.total == 0 {
            return Ok(Done::default());
        }
        let mut job = Job::new(launch, geometry, &self.shared.log)?;
        let total = geometry.total;
        let lanes: u64 = launch.threadgroup.iter().map(|&n| u64::from(n)).product();
        let cost = launch.image.cost().unwrap_or(lanes * UNKNOWN_THREAD).max(1);
        // Enough portions for all threads to end together, and none so small that taking it counts.
        let fair = total.div_ceil(self.threads() as u64 * 8);
        job.take_by((PORTION / cost).clamp(1, fair.max(1)));
        // Fuzzing is repeatable only when threadgroups run one after the other.
        let alone = matches!(launch.mode, Mode::Fuzz { .. })
            || self.threads.is_empty()
            || total == 1
            || total.saturating_mul(cost) < WORTH_WAKING;
        let mut worker = lock(&self.shared.spare).pop().unwrap_or_default();
        if alone {
            worker.run(&job);
        } else {
            self.share(&job, &mut worker);
        }
        lock(&self.shared.spare).push(worker);
        let done = job.finish()?;
        // What failed launches took says nothing about the next.
        let threads = if alone { 1 } else { self.threads() as u128 };
        let cost = done.time.as_nanos() * threads / u128::from(total);
        launch
            .image
            .learn_cost(u64::try_from(cost).unwrap_or(u64::MAX));
        Ok(done)
    }

    /// Works on `job` together with the pool's threads.
    fn share(&self, job: &Job<'_>, worker: &mut Worker) {
        let ticket = Ticket {
            job,
            helpers: AtomicUsize::new(0),
            owner: thread::current(),
        };
        let wanted = self.threads.len().min(job.geometry.total as usize - 1);
        {
            let mut queue = lock(&self.shared.queue);
            queue.offers.push_back(Offer {
                ticket: (&raw const ticket).cast(),
                helpers_wanted: wanted,
            });
            self.shared.waiting.fetch_add(1, Ordering::Release);
        }
        for _ in 0..wanted {
            self.shared.wake.notify_one();
        }
        worker.run(job);
        {
            // From here on nobody can join.
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
            if spins < SPINS {
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
            // A worker that panicked has nothing left to tell.
            let _ = thread.join();
        }
    }
}

/// The life of a worker thread.
fn help(shared: &Shared) {
    let mut worker = Worker::default();
    while let Some(ticket) = next_ticket(shared) {
        // SAFETY: `next_ticket` counted us as a helper, so the owner waits for us in `share` and the ticket lives.
        let job = unsafe { (*ticket).job };
        worker.run(job);
        // SAFETY: as above; the clone outlives the ticket, which may be gone once the count is down.
        unsafe {
            let owner = (*ticket).owner.clone();
            if (*ticket).helpers.fetch_sub(1, Ordering::Release) == 1 {
                owner.unpark();
            }
        }
    }
}

/// Waits for a launch to help with; nothing when the pool ends.
fn next_ticket(shared: &Shared) -> Option<*const Ticket<'static>> {
    for _ in 0..SPINS {
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
            // SAFETY: an offer in the queue has a living ticket: its owner removes it, under this lock, before leaving.
            let ticket = unsafe { &*offer.ticket };
            if offer.helpers_wanted > 0 && ticket.job.has_work() {
                offer.helpers_wanted -= 1;
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
