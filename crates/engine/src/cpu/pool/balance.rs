//! Adapts the number of threads to the load of the machine.
//!
//! A worker that shares its core with another process may be preempted in the middle of a task, and the job
//! then stalls for a whole time slice. With `n` threads, jobs that spend more than `1/n` of their time waiting
//! finish sooner on `n - 1` threads that never stall. So time waited is weighed against time worked, and if
//! waiting wins, one thread sits out for a while. Schedulers favour threads that have slept, so a returning
//! thread has its core to itself at first and looks good. Hence the pause doubles each time, until a thread has
//! stayed for as long as the pause.

use std::time::{Duration, Instant};

/// Upper bound of the credit, in seconds: shorter than the time slice of another process, so one stall can
/// exceed it.
const MAX_CREDIT_SECONDS: f64 = 1.5e-3;

/// How long a thread sits out. At the maximum, retrying costs a few percent of the time.
const MIN_PAUSE: Duration = Duration::from_millis(4);
const MAX_PAUSE: Duration = Duration::from_millis(256);

/// Tasks of one job may differ in length by this factor; waiting for a longer task is not waiting for a late
/// worker.
const MAX_TASK_IMBALANCE: f64 = 4.0;

/// Timing of a job, as seen by its caller.
pub(super) struct JobTiming {
    /// Threads that could take part.
    pub(super) width: usize,
    /// Tasks that the caller ran itself.
    pub(super) own: usize,
    /// How long the caller worked, and then waited for the others.
    pub(super) spent: Duration,
    pub(super) waited: Duration,
    /// When the job finished.
    pub(super) now: Instant,
}

/// State carried from job to job.
#[derive(Debug)]
pub(super) struct Balance {
    /// Number of threads that sit out.
    absent: usize,
    /// When one of them may return, and how long the next one sits out.
    again: Option<Instant>,
    pause: Duration,
    /// When the last one returned.
    back: Option<Instant>,
    /// Seconds of on-time work not yet offset by waiting.
    credit: f64,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            absent: 0,
            again: None,
            pause: MIN_PAUSE,
            back: None,
            credit: MAX_CREDIT_SECONDS,
        }
    }
}

impl Balance {
    /// Number of threads for the next job, at most `limit`.
    pub(super) fn width(&mut self, limit: usize, now: Instant) -> usize {
        if self.again.is_some_and(|again| now >= again) {
            self.absent -= 1;
            self.again = (self.absent > 0).then(|| now + self.pause);
            // A returning thread starts without credit.
            self.credit = 0.0;
            self.back = Some(now);
        }
        limit.saturating_sub(self.absent).max(1)
    }

    /// Updates the credit with the timing of a job.
    pub(super) fn learn(&mut self, timing: &JobTiming) {
        let (spent, waited) = (timing.spent.as_secs_f64(), timing.waited.as_secs_f64());
        let task = spent / timing.own.max(1) as f64;
        let others = timing.width.saturating_sub(1).max(1) as f64;
        let late = (waited - MAX_TASK_IMBALANCE * task).max(0.0);
        self.credit += spent / others - late;
        if self.credit < -MAX_CREDIT_SECONDS {
            self.absent += 1;
            self.again = Some(timing.now + self.pause);
            self.pause = (2 * self.pause).min(MAX_PAUSE);
            self.credit = 0.0;
        } else if self.credit > MAX_CREDIT_SECONDS {
            self.credit = MAX_CREDIT_SECONDS;
            let stayed = |back| timing.now.saturating_duration_since(back) >= self.pause;
            if self.absent == 0 && self.back.is_none_or(stayed) {
                self.pause = MIN_PAUSE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated sequence of jobs of 100 µs.
    struct Simulation {
        balance: Balance,
        limit: usize,
        now: Instant,
        /// Jobs since the number of threads last changed.
        same: usize,
        last: usize,
    }

    impl Simulation {
        fn new(limit: usize) -> Self {
            Self {
                balance: Balance::default(),
                limit,
                now: Instant::now(),
                same: 0,
                last: 0,
            }
        }

        /// With `n` threads, every `stalls[n]`th job waits 4 ms for a worker, counted from when there were `n`.
        /// Returns the number of threads of every job.
        fn jobs(&mut self, stalls: &[usize], count: usize) -> Vec<usize> {
            let spent = Duration::from_micros(100);
            let one = |_| {
                let width = self.balance.width(self.limit, self.now);
                self.same = if width == self.last { self.same + 1 } else { 1 };
                self.last = width;
                let is_late = stalls[width] > 0 && self.same.is_multiple_of(stalls[width]);
                let waited = Duration::from_micros(if is_late { 4000 } else { 5 });
                self.now += spent;
                if width > 1 {
                    self.now += waited;
                    self.balance.learn(&JobTiming {
                        width,
                        own: 10,
                        spent,
                        waited,
                        now: self.now,
                    });
                }
                width
            };
            (1..=count).map(one).collect()
        }
    }

    fn share(widths: &[usize], width: usize) -> f64 {
        widths.iter().filter(|&&w| w == width).count() as f64 / widths.len() as f64
    }

    #[test]
    fn an_idle_machine_uses_all_threads() {
        let widths = Simulation::new(2).jobs(&[0, 0, 0], 10_000);
        assert_eq!(share(&widths, 2), 1.0);
    }

    #[test]
    fn a_worker_that_is_often_late_sits_out() {
        // 4 ms of every 5.2 ms are spent waiting: one thread does the same work in 2 ms.
        let widths = Simulation::new(2).jobs(&[0, 0, 12], 50_000);
        assert!(share(&widths, 1) > 0.97, "{}", share(&widths, 1));
    }

    #[test]
    fn a_worker_that_is_late_once_its_time_slice_ends_sits_out() {
        // After 3 ms without a stall another process takes the core for 4 ms.
        let widths = Simulation::new(2).jobs(&[0, 0, 30], 50_000);
        assert!(share(&widths, 1) > 0.97, "{}", share(&widths, 1));
    }

    #[test]
    fn a_worker_that_is_seldom_late_is_kept() {
        let widths = Simulation::new(2).jobs(&[0, 0, 500], 50_000);
        assert!(share(&widths, 2) > 0.9, "{}", share(&widths, 2));
    }

    #[test]
    fn only_threads_that_do_not_stall_are_left() {
        // Two of four cores are taken: three threads stall as often as four.
        let widths = Simulation::new(4).jobs(&[0, 0, 0, 12, 12], 50_000);
        assert!(share(&widths, 2) > 0.9, "{}", share(&widths, 2));
    }

    #[test]
    fn threads_return_once_the_machine_is_idle_again() {
        let mut run = Simulation::new(2);
        run.jobs(&[0, 0, 12], 20_000);
        let widths = run.jobs(&[0, 0, 0], 20_000);
        assert!(share(&widths, 2) > 0.8, "{}", share(&widths, 2));
        assert_eq!(widths.last(), Some(&2));
    }

    #[test]
    fn tasks_of_uneven_length_do_not_count_as_late_workers() {
        let mut balance = Balance::default();
        let now = Instant::now();
        for _ in 0..100 {
            // The worker ran two of three tasks of 20 ms.
            balance.learn(&JobTiming {
                width: 2,
                own: 1,
                spent: Duration::from_millis(20),
                waited: Duration::from_millis(20),
                now,
            });
            assert_eq!(balance.width(2, now), 2);
        }
    }
}
