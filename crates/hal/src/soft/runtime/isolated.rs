//! Launches in a forked child process.
//!
//! The calling thread forks; the child runs the launches alone, and returns its results through shared memory.
//! Buffers must be [`MappedMemory::shared`]: everything else that the child writes is its own copy. A
//! child that dies is a fault, one that does not exit is killed.
//!
//! The child has one thread and must not wait for any other: it may allocate (glibc makes that safe after a fork),
//! but takes no lock that another thread of the parent could have held. Process-wide state that it needs is
//! initialised before the fork.
#![expect(unsafe_code, reason = "forks, and shares memory with the child")]

use std::cell::RefCell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fault::{FaultKind, LaunchFault};
use super::launch::{KernelLaunch, LaunchOutput};
use super::log::{KernelLogLine, Log};
use super::memory::{MappedMemory, ZeroPages, page_size};
use super::signal::{self, RegisteredThread};
use super::worker::{Job, Worker};

/// Size of the shared mapping for results; pages are only committed as they are used.
const SHARED_BYTES: usize = 16 << 20;
/// Offset of the result's length in the shared mapping.
const LENGTH_OFFSET: usize = 0;
/// Offset of the running kernel's name: its length, then its bytes.
const NAME_OFFSET: usize = 64;
/// Maximum length of the name in bytes.
const MAX_NAME_BYTES: usize = 1024;
/// Offset of the result.
const RESULT_OFFSET: usize = 4096;

/// Runs launches in forked children, one at a time.
#[derive(Debug)]
pub struct Isolation {
    shared: Mutex<MappedMemory>,
}

/// Result that a child sends back.
#[derive(Debug, Serialize, Deserialize)]
struct ChildOutcome {
    result: Result<LaunchOutput, LaunchFault>,
    log: Vec<KernelLogLine>,
    log_dropped: u64,
}

/// Runs launches on the only thread of the child.
#[derive(Debug)]
pub struct ChildRunner<'a> {
    worker: RefCell<Worker>,
    log: Log,
    shared: &'a MappedMemory,
}

impl ChildRunner<'_> {
    /// Runs a launch to completion. Its own limit is ignored: the whole child has one.
    ///
    /// # Errors
    /// As [`Pool::run`](super::Pool::run).
    pub fn run(&self, launch: &KernelLaunch<'_>) -> Result<LaunchOutput, LaunchFault> {
        self.record_kernel(launch.image.name());
        let geometry = launch.geometry()?;
        if geometry.total == 0 {
            return Ok(LaunchOutput::default());
        }
        // Without a limit, nothing here uses the watchdog, which the child does not have.
        let launch = KernelLaunch {
            limit: Duration::MAX,
            ..launch.clone()
        };
        let job = Job::new(&launch, geometry, &self.log)?;
        self.worker.borrow_mut().run(&job);
        job.finish()
    }

    fn record_kernel(&self, name: &str) {
        let length = name.len().min(MAX_NAME_BYTES);
        // SAFETY: inside the shared mapping; the parent reads it after the child has exited.
        unsafe {
            let address = self.shared.pointer().add(NAME_OFFSET);
            address.write(0);
            ptr::copy_nonoverlapping(name.as_ptr(), address.add(8), length);
            address
                .cast::<[u8; 8]>()
                .write((length as u64).to_ne_bytes());
        }
    }
}

impl Isolation {
    /// Maps the memory through which children report.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            shared: Mutex::new(MappedMemory::shared(SHARED_BYTES)?),
        })
    }

    /// Runs `body` in a child with the time limit `limit`. The child's log lines go to `log`.
    ///
    /// `body` runs on a copy of this thread alone: it must not wait for another thread or take a lock that one
    /// could hold. None of its changes are visible here, except shared mappings and its result.
    ///
    /// # Errors
    /// The error of `body`, or a fault if the child dies, is killed or cannot be created.
    pub fn run(
        &self,
        limit: Duration,
        log: &Log,
        body: impl FnOnce(&ChildRunner<'_>) -> Result<LaunchOutput, LaunchFault>,
    ) -> Result<LaunchOutput, LaunchFault> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let length = length_of(&shared);
        length.store(0, Ordering::Relaxed);
        // SAFETY: inside the mapping; no child is running.
        unsafe { shared.pointer().add(NAME_OFFSET).write_bytes(0, 8) };
        // Process-wide state that launches use.
        RegisteredThread::current();
        ZeroPages::get();
        page_size();
        // Both processes release their own copy.
        let guard = loader_lock();
        // SAFETY: getpid and fork have no preconditions; the child follows the rules above.
        let (parent, child) = unsafe { (libc::getpid(), libc::fork()) };
        drop(guard);
        match child {
            -1 => Err(LaunchFault {
                detail: format!("fork failed: {}", io::Error::last_os_error()),
                ..LaunchFault::new(FaultKind::OutOfMemory, "")
            }),
            0 => run_child(parent, &shared, body),
            child => {
                let exit = wait(child, limit);
                let outcome = read_outcome(&shared);
                let Some(outcome) = outcome.filter(|_| exit == ChildExit::Exited(0)) else {
                    let kind = match exit {
                        ChildExit::TimedOut => FaultKind::Timeout { limit },
                        ChildExit::Killed(signal) => FaultKind::Died { signal },
                        ChildExit::Exited(_) | ChildExit::Lost => FaultKind::Died { signal: 0 },
                    };
                    return Err(LaunchFault::new(kind, &read_kernel(&shared)));
                };
                for line in outcome.log {
                    log.push(line);
                }
                log.count_dropped(outcome.log_dropped);
                outcome.result
            }
        }
    }
}

/// Locks the dynamic linker. The guard is held while the linker is used and while the process forks: the linker's own
/// lock is not reset in a child, which would wait for a thread it does not have.
pub(crate) fn loader_lock() -> MutexGuard<'static, ()> {
    static LOADER: Mutex<()> = Mutex::new(());
    LOADER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn length_of(shared: &MappedMemory) -> &AtomicU64 {
    // SAFETY: the mapping is page-aligned, larger than this, lives as long as the reference, and this word is only
    // used as an atomic.
    unsafe { AtomicU64::from_ptr(shared.pointer().add(LENGTH_OFFSET).cast()) }
}

/// Main function of the child.
fn run_child(
    parent: libc::pid_t,
    shared: &MappedMemory,
    body: impl FnOnce(&ChildRunner<'_>) -> Result<LaunchOutput, LaunchFault>,
) -> ! {
    // SAFETY: plain system calls; `_exit` runs no handlers of the parent.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(1);
        }
    }
    let status = panic::catch_unwind(AssertUnwindSafe(|| {
        let runner = ChildRunner {
            worker: RefCell::default(),
            log: Log::default(),
            shared,
        };
        let result = body(&runner);
        let (log, log_dropped) = runner.log.take();
        write_outcome(
            shared,
            ChildOutcome {
                result,
                log,
                log_dropped,
            },
        )
    }));
    let code = match status {
        Ok(true) => 0,
        _ => 1,
    };
    // SAFETY: as above.
    unsafe { libc::_exit(code) }
}

/// Stores the outcome; drops the log if that does not fit. False if nothing fits.
fn write_outcome(shared: &MappedMemory, mut outcome: ChildOutcome) -> bool {
    loop {
        let Ok(text) = serde_json::to_vec(&outcome) else {
            return false;
        };
        if text.len() <= shared.length() - RESULT_OFFSET {
            // SAFETY: checked to fit after the header.
            unsafe {
                let address = shared.pointer().add(RESULT_OFFSET);
                ptr::copy_nonoverlapping(text.as_ptr(), address, text.len());
            }
            length_of(shared).store(text.len() as u64, Ordering::Release);
            return true;
        }
        if outcome.log.is_empty() {
            return false;
        }
        outcome.log_dropped += outcome.log.len() as u64;
        outcome.log.clear();
    }
}

/// Returns the outcome, if the child left a valid one: its kernels may have overwritten it.
fn read_outcome(shared: &MappedMemory) -> Option<ChildOutcome> {
    let length = usize::try_from(length_of(shared).load(Ordering::Acquire)).ok()?;
    if length == 0 || length > shared.length() - RESULT_OFFSET {
        return None;
    }
    // SAFETY: inside the mapping, and the child that wrote it has exited.
    let text = unsafe { std::slice::from_raw_parts(shared.pointer().add(RESULT_OFFSET), length) };
    serde_json::from_slice(text).ok()
}

fn read_kernel(shared: &MappedMemory) -> String {
    // SAFETY: inside the mapping, and the child that wrote it has exited.
    let bytes = unsafe {
        let address = shared.pointer().add(NAME_OFFSET);
        let length = u64::from_ne_bytes(address.cast::<[u8; 8]>().read());
        let length = usize::try_from(length).unwrap_or(0).min(MAX_NAME_BYTES);
        std::slice::from_raw_parts(address.add(8), length)
    };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit status of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildExit {
    Exited(i32),
    Killed(i32),
    /// It exceeded the limit and was killed.
    TimedOut,
    /// Other code of the process has reaped it.
    Lost,
}

fn wait(child: libc::pid_t, limit: Duration) -> ChildExit {
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let deadline = signal::now().saturating_add(limit);
    // SAFETY: plain system calls on our own child; the descriptor is closed below.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as i32;
    let exit = loop {
        if let Some(exit) = reap(child, libc::WNOHANG) {
            break exit;
        }
        let remaining_ns = deadline.saturating_sub(signal::now());
        if remaining_ns == 0 {
            // SAFETY: not reaped yet, so the id still refers to our child.
            unsafe { libc::kill(child, libc::SIGKILL) };
            reap(child, 0);
            break ChildExit::TimedOut;
        }
        sleep_until_exit(descriptor, remaining_ns);
    };
    if descriptor >= 0 {
        // SAFETY: ours.
        unsafe { libc::close(descriptor) };
    }
    exit
}

/// Sleeps until the child exits, but at most `limit_ns` nanoseconds; less if the kernel has no process descriptors.
fn sleep_until_exit(descriptor: i32, limit_ns: u64) {
    if descriptor < 0 {
        std::thread::sleep(Duration::from_nanos(limit_ns).min(Duration::from_millis(1)));
        return;
    }
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(limit_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    // SAFETY: one descriptor of ours.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
}

/// Reaps the child if it has exited, or waits for that, depending on `flags`.
fn reap(child: libc::pid_t, flags: i32) -> Option<ChildExit> {
    loop {
        let mut status = 0;
        // SAFETY: writes our own variable.
        let found = unsafe { libc::waitpid(child, &raw mut status, flags) };
        if found == child {
            return Some(if libc::WIFSIGNALED(status) {
                ChildExit::Killed(libc::WTERMSIG(status))
            } else {
                ChildExit::Exited(libc::WEXITSTATUS(status))
            });
        }
        if found == 0 {
            return None;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Some(ChildExit::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::report::ReportKind;
    use crate::soft::plan::FINISHED;
    use crate::soft::runtime::services::{ACCESS_WRITE, table};
    use crate::soft::runtime::test_kernel::{Lane, image, region};
    use crate::soft::runtime::{BindingAccess, BufferBinding, Image, LaunchMode};

    static PARENT_VALUE: AtomicU32 = AtomicU32::new(7);

    region!(write_everywhere, |lane: Lane| {
        PARENT_VALUE.store(99, Ordering::Relaxed);
        // SAFETY: the buffer has an element per thread.
        unsafe {
            lane.buffer::<u32>(0)
                .add(lane.at[0] as usize)
                .write(lane.at[0] + 1);
        }
        FINISHED
    });
    region!(abort, |_: Lane| std::process::abort());
    region!(hang, |_: Lane| loop {
        std::hint::spin_loop();
    });
    region!(crash, |_: Lane| {
        // SAFETY: none, on purpose.
        unsafe { ptr::with_exposed_provenance_mut::<u32>(64).write_volatile(1) };
        FINISHED
    });
    region!(announce_and_log, |lane: Lane| {
        // SAFETY: announces a wild address and does not use it.
        unsafe {
            (table().log)(
                1,
                c"".as_ptr(),
                c"".as_ptr(),
                c"hello".as_ptr(),
                ptr::null(),
                ptr::null(),
                0,
            );
            let wild = lane.buffer::<u32>(0).wrapping_add(2000);
            (table().access)(wild.cast(), 4 | ACCESS_WRITE, 0);
        }
        FINISHED
    });
    region!(flood_log, |_: Lane| {
        let arguments = [0x4141_4141_u64; 1];
        // SAFETY: the table's contract.
        unsafe {
            (table().log)(
                1,
                c"".as_ptr(),
                c"".as_ptr(),
                c"%500u%500u%500u%500u%500u%500u%500u%500u".as_ptr(),
                arguments.as_ptr(),
                b"u".as_ptr(),
                1,
            );
        }
        FINISHED
    });

    const LIMIT: Duration = Duration::from_secs(20);

    fn run(
        image: &Image,
        limit: Duration,
        mode: LaunchMode,
        log: &Log,
    ) -> (Result<LaunchOutput, LaunchFault>, MappedMemory) {
        let block = MappedMemory::shared(4096).unwrap();
        let mut launch = KernelLaunch::new(image, [100, 1, 1], [10, 1, 1]);
        // SAFETY: the block lives through the launch.
        launch.buffers[0] =
            unsafe { BufferBinding::new(block.pointer(), 4096, BindingAccess::Write) };
        launch.mode = mode;
        let isolation = Isolation::new().unwrap();
        let result = isolation.run(limit, log, |runner| runner.run(&launch));
        (result, block)
    }

    #[test]
    fn only_results_and_buffers_reach_the_parent() {
        let log = Log::default();
        let image = image("write_everywhere", &[write_everywhere]);
        let (result, block) = run(&image, LIMIT, LaunchMode::Fast, &log);
        assert_eq!(result.unwrap().reports, []);
        assert_eq!(PARENT_VALUE.load(Ordering::Relaxed), 7);
        // SAFETY: inside the block.
        let last = unsafe { block.pointer().add(99 * 4).cast::<[u8; 4]>().read() };
        assert_eq!(u32::from_ne_bytes(last), 100);
    }

    #[test]
    fn crashes_aborts_and_hangs_are_faults_with_the_kernels_name() {
        let log = Log::default();
        let short = Duration::from_millis(100);
        let cases = [
            (
                image("crash", &[crash]),
                FaultKind::PageFault { address: Some(64) },
            ),
            (
                image("abort", &[abort]),
                FaultKind::Died {
                    signal: libc::SIGABRT,
                },
            ),
            (image("hang", &[hang]), FaultKind::Timeout { limit: short }),
        ];
        for (image, kind) in &cases {
            let limit = match kind {
                FaultKind::Timeout { .. } => short,
                _ => LIMIT,
            };
            let fault = run(image, limit, LaunchMode::Fast, &log)
                .0
                .expect_err("the kernel misbehaves");
            assert_eq!((fault.kind, fault.kernel.as_str()), (*kind, image.name()));
        }
    }

    #[test]
    fn reports_and_log_lines_reach_the_parent() {
        let log = Log::default();
        let image = image("announce", &[announce_and_log]);
        let (result, _block) = run(&image, LIMIT, LaunchMode::Check, &log);
        let reports = result.unwrap().reports;
        assert_eq!(reports.len(), 1);
        assert_eq!(
            (reports[0].kind, reports[0].count),
            (ReportKind::Bounds, 10)
        );
        let (lines, dropped) = log.take();
        assert_eq!((lines.len(), dropped), (10, 0));
        assert_eq!(lines[0].text, "hello");
    }

    #[test]
    fn log_lines_that_do_not_fit_are_counted() {
        let log = Log::default();
        let image = image("flood_log", &[flood_log]);
        let isolation = Isolation::new().unwrap();
        let launch = KernelLaunch::new(&image, [10_000, 1, 1], [100, 1, 1]);
        isolation
            .run(LIMIT, &log, |runner| runner.run(&launch))
            .unwrap();
        let (lines, dropped) = log.take();
        assert_eq!(lines.len() as u64 + dropped, 10_000);
    }

    #[test]
    fn children_run_while_other_threads_allocate_and_launch() {
        let image = image("write_everywhere", &[write_everywhere]);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(vec![0_u8; 100_000]);
                    let pool = crate::soft::runtime::Pool::with_threads(2).unwrap();
                    let _ = pool.run(&KernelLaunch::new(&image, [0, 1, 1], [1, 1, 1]));
                }
            });
            let log = Log::default();
            for _ in 0..100 {
                run(&image, LIMIT, LaunchMode::Fast, &log).0.unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
