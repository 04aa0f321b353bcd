//! Where workers run: not on the core of the thread that wakes them.
//!
//! Linux likes to put a thread that is woken next to the one that wakes it. That suits a pair of which one
//! waits for the other; here both work, and a worker on its caller's core does nothing until the caller is
//! done. So before workers are woken, the caller's core is taken off the list of cores they may use. Callers
//! seldom move, so this is seldom a system call. Other systems place threads by themselves.
#![cfg_attr(
    target_os = "linux",
    expect(
        unsafe_code,
        reason = "system calls that read and set the cores of threads"
    )
)]

pub(super) use imp::Place;

#[cfg(target_os = "linux")]
mod imp {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// The cores of the workers.
    pub(in super::super) struct Place {
        /// The cores that the process had when the pool was started.
        cores: libc::cpu_set_t,
        /// The core that workers keep off; -1 for none.
        avoided: AtomicI32,
        /// The workers, as the system counts threads.
        workers: Mutex<Vec<libc::pid_t>>,
    }

    impl Place {
        pub(in super::super) fn new() -> Self {
            // SAFETY: a set of cores is plain bits, of which none set is a valid value.
            let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is as large as the call is told. Where it fails no core is set, and `keep_off`
            // changes nothing.
            unsafe { libc::sched_getaffinity(0, size_of_val(&cores), &raw mut cores) };
            Self {
                cores,
                avoided: AtomicI32::new(-1),
                workers: Mutex::default(),
            }
        }

        /// Counts the calling thread among the workers.
        pub(in super::super) fn enter(&self) {
            // SAFETY: has no arguments and always succeeds.
            super::super::lock(&self.workers).push(unsafe { libc::gettid() });
            // It has not been told to keep off any core.
            self.avoided.store(-1, Ordering::Relaxed);
        }

        /// Takes the core of the calling thread off the workers' list.
        pub(in super::super) fn clear_the_way(&self) {
            // SAFETY: has no arguments.
            let core = unsafe { libc::sched_getcpu() };
            if core == self.avoided.load(Ordering::Relaxed) {
                return;
            }
            self.avoided.store(core, Ordering::Relaxed);
            let Ok(index) = usize::try_from(core) else {
                return;
            };
            let mut cores = self.cores;
            if index < 8 * size_of_val(&cores) {
                // SAFETY: the core is one that the set has a bit for.
                unsafe { libc::CPU_CLR(index, &mut cores) };
            }
            // SAFETY: only reads the set.
            if unsafe { libc::CPU_COUNT(&cores) } == 0 {
                return;
            }
            for &worker in &*super::super::lock(&self.workers) {
                // SAFETY: the set is as large as the call is told. A refusal leaves the worker where it is.
                unsafe { libc::sched_setaffinity(worker, size_of_val(&cores), &raw const cores) };
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    /// Nothing to know.
    pub(in super::super) struct Place;

    impl Place {
        pub(in super::super) fn new() -> Self {
            Self
        }

        pub(in super::super) fn enter(&self) {}

        pub(in super::super) fn clear_the_way(&self) {}
    }
}
