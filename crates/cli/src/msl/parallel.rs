//! Parallel work on many files or kernels, with progress.

use std::io::Write as _;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// The requested number of jobs, or one per core and at least 2.
pub(crate) fn jobs(requested: Option<usize>) -> usize {
    requested.unwrap_or_else(|| {
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

/// A progress bar on a terminal; otherwise an occasional line, so that a log shows progress.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    last_line: Mutex<Instant>,
}

/// Interval between progress lines without a terminal.
const PROGRESS_LINE_INTERVAL: Duration = Duration::from_secs(10);

impl Progress {
    pub(crate) fn new(what: &'static str, total: usize) -> Self {
        let bar = match total {
            // A single item finishes before the bar can be read.
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
            last_line: Instant::now().into(),
        }
    }

    pub(crate) fn step(&self, count: usize) {
        self.bar.inc(count as u64);
        let Ok(mut last_line) = self.last_line.lock() else {
            return;
        };
        if self.bar.is_hidden() && last_line.elapsed() >= PROGRESS_LINE_INTERVAL {
            *last_line = Instant::now();
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
