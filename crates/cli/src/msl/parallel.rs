//! Work on many files or kernels at once, with progress.

use crate::terminal;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write as _;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number asked for, or one for each core and at least 2.
pub(crate) fn jobs(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        cores.max(2)
    })
}

/// Applies `work` to all items, `jobs` at a time; the results are in the order of the items.
pub(crate) fn in_parallel<'a, T: Sync, R: Send>(
    jobs: usize,
    items: &'a [T],
    work: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(item) = items.get(index)
            {
                done.push((index, work(item)));
            }
            done
        };
        let workers: Vec<_> = (0..jobs.min(items.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("workers do not panic"))
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A bar on a terminal; elsewhere a line now and then, so that a log shows life.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    told: Mutex<Instant>,
}

const QUIET_TIME: Duration = Duration::from_secs(10);

impl Progress {
    pub(crate) fn new(what: &'static str, total: usize) -> Self {
        let bar = match total {
            // Over before it can be read.
            0 | 1 => ProgressBar::hidden(),
            _ => ProgressBar::new(total as u64),
        };
        let template = "{msg} {pos}/{len} [{bar:30}] {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        Self {
            bar,
            what,
            told: Instant::now().into(),
        }
    }

    pub(crate) fn step(&self, count: usize) {
        self.bar.inc(count as u64);
        let Ok(mut told) = self.told.lock() else {
            return;
        };
        if self.bar.is_hidden() && told.elapsed() >= QUIET_TIME {
            *told = Instant::now();
            let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
            let _ = writeln!(terminal::stderr(), "{}: {done} of {total}", self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
