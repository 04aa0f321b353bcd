//! Tests of the pool, including late workers.

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
fn chunks_cover_the_slice_and_nested_jobs_finish() {
    let mut data = vec![0_usize; 1001];
    for_each_chunk(&mut data, 100, |i, piece| {
        for_each_chunk(piece, 7, |_, inner| inner.fill(i));
    });
    assert!(data.iter().enumerate().all(|(at, &i)| i == at / 100));
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_stays_usable() {
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

/// A pool of two threads whose worker signals when it has seen a job but claimed no task, and continues when
/// released.
fn pool_with_a_gate() -> (&'static ThreadPool, &'static Gate) {
    let pool = ThreadPool::start(2);
    let gate: &Gate = Box::leak(Box::default());
    let hook: Box<dyn Fn() + Send + Sync> = Box::new(|| gate.pass());
    assert!(pool.before_claim.set(hook).is_ok());
    (pool, gate)
}

#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    /// Workers blocked at the gate.
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.is_shut.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }

    fn wait_for_a_worker(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_worker_that_has_not_claimed_a_task_does_not_delay_the_job() {
    let (pool, gate) = pool_with_a_gate();
    gate.shut();
    let me = std::thread::current().id();
    let by_caller = AtomicUsize::new(0);
    // The job lasts until the worker has seen it, yet the worker never gets to claim a task.
    pool.run(8, &|i| {
        if i == 0 {
            gate.wait_for_a_worker();
        }
        by_caller.fetch_add(
            usize::from(std::thread::current().id() == me),
            Ordering::SeqCst,
        );
    });
    assert_eq!(by_caller.into_inner(), 8);
    gate.open();
}

#[test]
fn a_worker_stalled_since_an_earlier_job_claims_each_task_of_a_later_one_once() {
    let (pool, gate) = pool_with_a_gate();
    for round in 0..200 {
        // If it were still inside the gate from the last round, it would claim tasks of this job without
        // stopping there.
        while !pool.workers[0].is_asleep.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // On a loaded machine the worker would sit out.
        *lock(&pool.busy) = Balance::default();
        gate.shut();
        let counts: Vec<AtomicUsize> = (0..6).map(|_| AtomicUsize::new(0)).collect();
        pool.run(6, &|i| {
            if i == 0 {
                gate.wait_for_a_worker();
            }
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        // The first job's memory is freed before the worker continues.
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        drop(counts);
        let later: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
        pool.run(5, &|i| {
            if i == round % 5 {
                gate.open();
            }
            later[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(later.iter().all(|c| c.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn a_caller_sleeps_until_a_late_worker_is_done() {
    let pool = ThreadPool::start(2);
    let me = std::thread::current().id();
    for _ in 0..20 {
        let done = AtomicUsize::new(0);
        let has_other = AtomicBool::new(false);
        pool.run(2, &|_| {
            if std::thread::current().id() == me {
                // The other task is the worker's.
                while !has_other.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            } else {
                has_other.store(true, Ordering::SeqCst);
                while !pool.is_waiting.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(done.into_inner(), 2);
        // Waiting must not make the pool drop the worker: this test is about workers that return.
        *lock(&pool.busy) = Balance::default();
    }
}

#[test]
fn a_panic_of_a_worker_reaches_the_caller_and_drops_the_unclaimed_tasks() {
    let pool = ThreadPool::start(3);
    let me = std::thread::current().id();
    let has_panicked = AtomicBool::new(false);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.run(100, &|_| {
            if std::thread::current().id() == me {
                while !has_panicked.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            } else if !has_panicked.swap(true, Ordering::SeqCst) {
                panic!("unlucky");
            }
        });
    }));
    assert!(result.is_err());
    let sum = AtomicUsize::new(0);
    pool.run(64, &|i| {
        sum.fetch_add(i, Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 64 * 63 / 2);
}
