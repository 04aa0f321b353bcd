//! How many threads are worth their while.
//!
//! A worker that shares its core with another process may be preempted in the middle of a task, and the job then waits for
//! it for a whole time slice. With `n` threads, jobs that wait for more than one part in `n` of their time are done
//! sooner by `n - 1` threads that are never waited for. So waiting is held against working, and where it weighs more,
//! one thread sits out for a while. Whoever comes back has the core for a moment first, since schedulers favour threads that
//! have slept: so the next pause is twice as long until a thread has stayed for as long as that.

use std::time::{Duration, Instant};

/// What working in good time outweighs later: the slice of another process is longer.
const CREDIT: f64 = 1.5e-3;

/// A thread sits out for so long, at least and at most. At the most, trying again costs a few percent of the time.
const LEAST: Duration = Duration::from_millis(4);
const MOST: Duration = Duration::from_millis(256);

/// A task may take so many times as long as another one of the same job: waiting for that is not waiting for a late worker.
const UNEVEN: f64 = 4.0;

/// What a job cost its caller.
pub(super) struct Cost {
    /// Threads that could take part.
    pub(super) width: usize,
    /// Tasks that the caller did itself.
    pub(super) own: usize,
    /// How long the caller worked, and then waited for others.
    pub(super) spent: Duration,
    pub(super) waited: Duration,
    /// When it was over.
    pub(super) now: Instant,
}

/// The state between jobs.
#[derive(Debug)]
pub(super) struct Balance {
    /// Threads that sit out.
    absent: usize,
    /// When one of them may try again, and how long the next one sits out.
    again: Option<Instant>,
    pause: Duration,
    /// When the last one came back.
    back: Option<Instant>,
    /// Seconds of work in good time that have not been outweighed.
    credit: f64,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            absent: 0,
            again: None,
            pause: LEAST,
            back: None,
            credit: CREDIT,
        }
    }
}

impl Balance {
    /// Threads for the next job of those that `limit` allows.
    pub(super) fn width(&mut self, limit: usize, now: Instant) -> usize {
        if self.again.is_some_and(|again| now >= again) {
            self.absent -= 1;
            self.again = (self.absent > 0).then(|| now + self.pause);
            // It has to prove itself.
            self.credit = 0.0;
            self.back = Some(now);
        }
        limit.saturating_sub(self.absent).max(1)
    }

    /// Weighs what a job cost.
    pub(super) fn learn(&mut self, cost: &Cost) {
        let (spent, waited) = (cost.spent.as_secs_f64(), cost.waited.as_secs_f64());
        let task = spent / cost.own.max(1) as f64;
        let others = cost.width.saturating_sub(1).max(1) as f64;
        let late = (waited - UNEVEN * task).max(0.0);
        self.credit += spent / others - late;
        if self.credit < -CREDIT {
            self.absent += 1;
            self.again = Some(cost.now + self.pause);
            self.pause = (2 * self.pause).min(MOST);
            self.credit = 0.0;
        } else if self.credit > CREDIT {
            self.credit = CREDIT;
            let stayed = |back| cost.now.saturating_duration_since(back) >= self.pause;
            if self.absent == 0 && self.back.is_none_or(stayed) {
                self.pause = LEAST;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of jobs of 100 µs, in time of its own.
    struct Run {
        balance: Balance,
        limit: usize,
        now: Instant,
        /// Jobs since the number of threads changed.
        same: usize,
        last: usize,
    }

    impl Run {
        fn new(limit: usize) -> Self {
            Self {
                balance: Balance::default(),
                limit,
                now: Instant::now(),
                same: 0,
                last: 0,
            }
        }

        /// With `n` threads, every `stalls[n]`th job waits 4 ms for a worker, counted from when they became `n`.
        /// Returns the threads of every job.
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
                    self.balance.learn(&Cost {
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
    fn a_machine_of_our_own_is_used_as_a_whole() {
        let widths = Run::new(2).jobs(&[0, 0, 0], 10_000);
        assert_eq!(share(&widths, 2), 1.0);
    }

    #[test]
    fn a_worker_that_is_often_late_sits_out() {
        // 4 ms in every 5.2 ms are waited for: one thread does as much in 2 ms.
        let widths = Run::new(2).jobs(&[0, 0, 12], 50_000);
        assert!(share(&widths, 1) > 0.97, "{}", share(&widths, 1));
    }

    #[test]
    fn a_worker_that_is_late_as_soon_as_its_turn_is_over_sits_out() {
        // 3 ms go well before another process has the core for 4 ms.
        let widths = Run::new(2).jobs(&[0, 0, 30], 50_000);
        assert!(share(&widths, 1) > 0.97, "{}", share(&widths, 1));
    }

    #[test]
    fn a_worker_that_is_seldom_late_is_kept() {
        let widths = Run::new(2).jobs(&[0, 0, 500], 50_000);
        assert!(share(&widths, 2) > 0.9, "{}", share(&widths, 2));
    }

    #[test]
    fn as_many_threads_are_left_as_are_not_held_up() {
        // Two of four cores are taken: three threads wait as often as four.
        let widths = Run::new(4).jobs(&[0, 0, 0, 12, 12], 50_000);
        assert!(share(&widths, 2) > 0.9, "{}", share(&widths, 2));
    }

    #[test]
    fn a_machine_that_is_free_again_is_used_again() {
        let mut run = Run::new(2);
        run.jobs(&[0, 0, 12], 20_000);
        let widths = run.jobs(&[0, 0, 0], 20_000);
        assert!(share(&widths, 2) > 0.8, "{}", share(&widths, 2));
        assert_eq!(widths.last(), Some(&2));
    }

    #[test]
    fn tasks_of_uneven_length_are_no_late_workers() {
        let mut balance = Balance::default();
        let now = Instant::now();
        for _ in 0..100 {
            // Of three tasks of 20 ms the worker had two.
            balance.learn(&Cost {
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
