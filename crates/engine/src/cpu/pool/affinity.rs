//! Core affinity of the workers: keep them off the core of the thread that wakes them.
//!
//! Linux tends to place a woken thread on the core of the thread that wakes it. That suits a pair in which one
//! waits for the other. Here both have work, and a worker on its caller's core makes no progress until the
//! caller is done. So before workers are woken, the caller's core is removed from their affinity mask. Callers
//! rarely migrate, so this rarely costs a system call. Other systems place threads by themselves.
#![cfg_attr(
    target_os = "linux",
    expect(
        unsafe_code,
        reason = "system calls that read and set the cores of threads"
    )
)]

pub(super) use imp::Affinity;

#[cfg(target_os = "linux")]
mod imp {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// Affinity mask of the workers.
    pub(in super::super) struct Affinity {
        /// The mask of the process when the pool was started.
        cores: libc::cpu_set_t,
        /// The core excluded from the mask; -1 for none.
        avoided: AtomicI32,
        /// Thread ids of the workers.
        workers: Mutex<Vec<libc::pid_t>>,
    }

    impl Affinity {
        pub(in super::super) fn new() -> Self {
            // SAFETY: a CPU set is plain bits, and all zeros is a valid value.
            let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the size passed is that of the set. If the call fails, no core is set and
            // `avoid_current_core` changes nothing.
            unsafe { libc::sched_getaffinity(0, size_of_val(&cores), &raw mut cores) };
            Self {
                cores,
                avoided: AtomicI32::new(-1),
                workers: Mutex::default(),
            }
        }

        /// Registers the calling thread as a worker.
        pub(in super::super) fn enter(&self) {
            // SAFETY: takes no arguments and always succeeds.
            super::super::lock(&self.workers).push(unsafe { libc::gettid() });
            // Its mask does not exclude any core yet.
            self.avoided.store(-1, Ordering::Relaxed);
        }

        /// Excludes the core of the calling thread from the workers' mask.
        pub(in super::super) fn avoid_current_core(&self) {
            // SAFETY: takes no arguments.
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
                // SAFETY: the set has a bit for this core.
                unsafe { libc::CPU_CLR(index, &mut cores) };
            }
            // SAFETY: only reads the set.
            if unsafe { libc::CPU_COUNT(&cores) } == 0 {
                return;
            }
            for &worker in &*super::super::lock(&self.workers) {
                // SAFETY: the size passed is that of the set. On failure the worker keeps its mask.
                unsafe { libc::sched_setaffinity(worker, size_of_val(&cores), &raw const cores) };
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    /// Affinity is left to the system.
    pub(in super::super) struct Affinity;

    impl Affinity {
        pub(in super::super) fn new() -> Self {
            Self
        }

        pub(in super::super) fn enter(&self) {}

        pub(in super::super) fn avoid_current_core(&self) {}
    }
}
