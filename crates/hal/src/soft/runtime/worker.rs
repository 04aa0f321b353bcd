//! A worker: the memory one thread needs to run threadgroups, and the loop that runs them.
#![expect(unsafe_code, reason = "hands memory to kernel code and calls it")]

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::fault::{FaultKind, LaunchFault};
use super::fuzz::{self, Permutation};
use super::image::Image;
use super::launch::{Geometry, KernelLaunch, LaunchMode, LaunchOutput};
use super::log::Log;
use super::memory::{BUFFER_INDICES, MappedMemory, ZeroPages};
use super::services::CurrentLaunch;
use super::signal::{self, ContainedExit, RegisteredThread, ThreadSlot};
use super::watchdog;
use crate::soft::check::{CheckObserver, Checker, LaunchCheck};
use crate::soft::group::{self, Observer, SmGroup, Strategy};
use crate::soft::plan::{STEPS_BYTES, STEPS_OFFSET};

/// Alignment of every threadgroup argument in bytes: a pair of cache lines.
const THREADGROUP_ALIGNMENT_BYTES: usize = 128;
/// Size of the red zone around every threadgroup allocation in check mode, in bytes; accesses to it are reported.
const RED_ZONE_BYTES: usize = 256;

/// A running launch.
pub(super) struct Job<'a> {
    pub(super) launch: &'a KernelLaunch<'a>,
    pub(super) geometry: Geometry,
    pub(super) memory: ThreadgroupLayout,
    log: &'a Log,
    check: Option<LaunchCheck<'a>>,
    order: Option<Permutation>,
    /// The next threadgroup to take.
    next: AtomicU64,
    /// Number of threadgroups taken at a time.
    chunk: u64,
    cancelled: AtomicBool,
    fault: Mutex<Option<LaunchFault>>,
    started: u64,
    deadline: u64,
}

/// Layout of threadgroup memory in a worker's mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadgroupLayout {
    /// Offset of the kernel's own variables.
    pub(crate) arena: usize,
    /// Offsets of each host-sized argument.
    pub(crate) arguments: [Option<Range<usize>>; BUFFER_INDICES],
    /// Total size in bytes.
    pub(crate) total: usize,
}

impl ThreadgroupLayout {
    fn new(launch: &KernelLaunch<'_>) -> Option<Self> {
        let red_zone = if launch.mode == LaunchMode::Check {
            RED_ZONE_BYTES
        } else {
            0
        };
        let arena = red_zone;
        let mut end = arena.checked_add(launch.image.plan().arena_bytes)?;
        let mut arguments = [const { None }; BUFFER_INDICES];
        for (argument, &length) in arguments.iter_mut().zip(&launch.threadgroup_memory) {
            if length > 0 {
                let start = end
                    .checked_add(red_zone)?
                    .checked_next_multiple_of(THREADGROUP_ALIGNMENT_BYTES)?;
                end = start.checked_add(length)?;
                *argument = Some(start..end);
            }
        }
        Some(Self {
            arena,
            arguments,
            total: end.checked_add(red_zone)?,
        })
    }
}

impl<'a> Job<'a> {
    /// Prepares a launch.
    pub(super) fn new(
        launch: &'a KernelLaunch<'a>,
        geometry: Geometry,
        log: &'a Log,
    ) -> Result<Self, LaunchFault> {
        let memory = ThreadgroupLayout::new(launch).ok_or_else(|| out_of_memory(launch))?;
        let started = signal::now();
        let limit = u64::try_from(launch.limit.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            launch,
            geometry,
            memory,
            log,
            check: (launch.mode == LaunchMode::Check).then(|| LaunchCheck::new(launch, geometry)),
            order: match launch.mode {
                LaunchMode::Fuzz { seed } => Some(Permutation::new(
                    geometry.total,
                    fuzz::group_seed(seed, launch.sequence, u64::MAX),
                )),
                _ => None,
            },
            next: AtomicU64::new(0),
            chunk: 1,
            cancelled: AtomicBool::new(false),
            fault: Mutex::new(None),
            started,
            // 0 would mean no deadline.
            deadline: started.saturating_add(limit).max(1),
        })
    }

    /// Sets the number of threadgroups taken at a time.
    pub(super) fn set_chunk(&mut self, chunk: u64) {
        self.chunk = chunk.max(1);
    }

    /// Returns whether threadgroups are left.
    pub(super) fn has_work(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.geometry.total
            && !self.cancelled.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<Range<u64>> {
        if !self.has_work() {
            return None;
        }
        let start = self.next.fetch_add(self.chunk, Ordering::Relaxed);
        let end = start.saturating_add(self.chunk).min(self.geometry.total);
        (start < end).then_some(start..end)
    }

    /// Aborts the launch with a fault; the first fault is kept.
    pub(super) fn fail(&self, fault: LaunchFault) {
        self.cancelled.store(true, Ordering::Relaxed);
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
    }

    /// Returns the result, once all workers have left.
    pub(super) fn finish(self) -> Result<LaunchOutput, LaunchFault> {
        let time = Duration::from_nanos(signal::now().saturating_sub(self.started));
        let reports = self
            .check
            .map(LaunchCheck::into_reports)
            .unwrap_or_default();
        let fault = self
            .fault
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some(fault) => Err(LaunchFault { reports, ..fault }),
            None => Ok(LaunchOutput { reports, time }),
        }
    }

    fn fault_of(&self, exit: ContainedExit, overflow: bool, threadgroup: [u32; 3]) -> LaunchFault {
        let mut detail = String::new();
        let kind = match exit {
            ContainedExit::Signal {
                signal: libc::SIGSEGV | libc::SIGBUS,
                code,
                address,
            } => {
                // The processor does not report non-canonical addresses.
                if overflow {
                    FaultKind::StackOverflow
                } else if code == SI_KERNEL {
                    FaultKind::PageFault { address: None }
                } else {
                    detail = self.launch.nearest_buffer(address);
                    FaultKind::PageFault {
                        address: Some(address as u64),
                    }
                }
            }
            ContainedExit::Signal {
                signal: libc::SIGFPE,
                ..
            } => FaultKind::DivisionByZero,
            ContainedExit::Signal {
                signal: libc::SIGILL,
                ..
            } => FaultKind::IllegalInstruction,
            ContainedExit::Signal { signal, .. } => FaultKind::Trap { signal },
            ContainedExit::Deadline | ContainedExit::Returned | ContainedExit::Abandoned => {
                FaultKind::Timeout {
                    limit: self.launch.limit,
                }
            }
        };
        LaunchFault {
            threadgroup: Some(threadgroup),
            detail,
            ..LaunchFault::new(kind, self.launch.image.name())
        }
    }
}

/// `si_code` of a signal without an address.
const SI_KERNEL: i32 = 0x80;

pub(super) fn out_of_memory(launch: &KernelLaunch<'_>) -> LaunchFault {
    LaunchFault::new(FaultKind::OutOfMemory, launch.image.name())
}

/// The memory of one thread that runs threadgroups.
#[derive(Debug, Default)]
pub(super) struct Worker {
    context: Option<MappedMemory>,
    memory: Option<MappedMemory>,
    checker: Option<Box<Checker>>,
}

/// Observes nothing; stops when the launch was cancelled.
struct CancelObserver<'a>(&'a AtomicBool);

impl Observer for CancelObserver<'_> {
    fn stop(&mut self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Runs threadgroups of `job` until none is left. Faults are recorded in the job.
    pub(super) fn run(&mut self, job: &Job<'_>) {
        let launch = job.launch;
        let (context, memory) = match self.reserve(job) {
            Ok(pointers) => pointers,
            Err(_) => return job.fail(out_of_memory(launch)),
        };
        let thread = RegisteredThread::current();
        let checker = match &job.check {
            Some(check) => {
                let checker = self.checker.get_or_insert_default();
                let (slot, layout) = (thread.slot(), &job.memory);
                checker.begin_launch(check, slot, layout, memory as usize, context as usize);
                ptr::from_mut(&mut **checker)
            }
            None => ptr::null_mut(),
        };
        let current = CurrentLaunch {
            slot: thread.slot(),
            log: job.log,
            image: launch.image,
            threadgroup: Cell::new([0; 3]),
            random: Cell::new(0),
            checker,
        };
        let mut group = group_descriptor(job, memory);
        watchdog::arm(thread.slot(), job.deadline);
        current.during(|| {
            while let Some(range) = job.take() {
                for number in range {
                    if job.cancelled.load(Ordering::Relaxed) {
                        return;
                    }
                    run_group(job, number, &mut group, &current, context);
                }
            }
        });
        watchdog::disarm(thread.slot());
        if let Some(checker) = &mut self.checker {
            checker.end_launch();
        }
    }

    /// Allocates the context block and threadgroup memory.
    pub(super) fn reserve(&mut self, job: &Job<'_>) -> io::Result<(*mut u8, *mut u8)> {
        let min_bytes = STEPS_OFFSET + STEPS_BYTES;
        let needed = job.launch.image.plan().context_bytes.max(min_bytes);
        Ok((
            ensure_capacity(&mut self.context, needed)?,
            ensure_capacity(&mut self.memory, job.memory.total)?,
        ))
    }
}

fn ensure_capacity(block: &mut Option<MappedMemory>, length: usize) -> io::Result<*mut u8> {
    match block {
        Some(block) if block.length() >= length => Ok(block.pointer()),
        _ => {
            // Free the old one first: both may not fit.
            *block = None;
            Ok(block.insert(MappedMemory::guarded(length)?).pointer())
        }
    }
}

fn group_descriptor(job: &Job<'_>, memory: *mut u8) -> SmGroup {
    let zero = ZeroPages::get();
    let launch = job.launch;
    SmGroup {
        buf: std::array::from_fn(|index| {
            let binding = &launch.buffers[index];
            if binding.is_bound() {
                binding.pointer().cast()
            } else {
                zero.buffer(index).cast()
            }
        }),
        tgmem: std::array::from_fn(|index| match &job.memory.arguments[index] {
            // SAFETY: the layout lies inside the worker's mapping.
            Some(range) => unsafe { memory.add(range.start).cast() },
            None => zero.threadgroup(index).cast(),
        }),
        // SAFETY: as above.
        arena: unsafe { memory.add(job.memory.arena).cast() },
        grid: job.geometry.grid,
        tgs: job.geometry.threadgroup,
        ngroups: job.geometry.groups,
        tgid: [0; 3],
        dims: [0; 3],
        nthreads: 0,
    }
}

fn run_group(
    job: &Job<'_>,
    number: u64,
    group: &mut SmGroup,
    current: &CurrentLaunch<'_>,
    context: *mut u8,
) {
    let number = job.order.map_or(number, |order| order.apply(number));
    let position = job.geometry.position(number);
    let size = job.geometry.size_at(position);
    group.tgid = position;
    group.dims = size;
    group.nthreads = size.iter().product();
    current.threadgroup.set(position);
    let memory = group.arena.cast::<u8>();
    let used = job.memory.total - job.memory.arena;
    let fill = |byte| {
        // SAFETY: from the arena to the end of the layout, inside the worker's mapping.
        unsafe { memory.write_bytes(byte, used) };
    };
    let image = job.launch.image;
    let slot = current.slot;
    let mut thread = None;
    let mut endless = false;
    let exit = match job.launch.mode {
        LaunchMode::Fast => {
            fill(0);
            let mut observer = CancelObserver(&job.cancelled);
            execute(slot, image, group, context, Strategy::Fast, &mut observer)
        }
        LaunchMode::Fuzz { seed } => {
            let seed = fuzz::group_seed(seed, job.launch.sequence, number);
            current.random.set(seed);
            fill(seed as u8);
            let strategy = Strategy::Shuffled(fuzz::scatter(seed));
            let mut observer = CancelObserver(&job.cancelled);
            execute(slot, image, group, context, strategy, &mut observer)
        }
        LaunchMode::Check => {
            // All ones is a NaN in every floating-point type.
            fill(0xff);
            // SAFETY: the worker's own checker, which it does not touch until `end_launch`.
            let mut observer = unsafe { CheckObserver::new(slot, current.checker) };
            observer.begin_group(number, group);
            let exit = execute(
                slot,
                image,
                group,
                context,
                Strategy::Ordered,
                &mut observer,
            );
            endless = observer.is_endless();
            let in_loop = endless || exit == ContainedExit::Deadline;
            if in_loop || matches!(exit, ContainedExit::Signal { .. }) {
                thread = Some(observer.current_thread(in_loop));
            } else {
                observer.end_group();
            }
            exit
        }
    };
    match exit {
        ContainedExit::Abandoned if endless => {
            let steps = job.launch.step_limit;
            job.fail(LaunchFault {
                threadgroup: Some(position),
                thread: thread.map(Box::new),
                ..LaunchFault::new(FaultKind::Endless { steps }, image.name())
            });
        }
        ContainedExit::Returned | ContainedExit::Abandoned => {}
        other => {
            let overflow =
                matches!(other, ContainedExit::Signal { address, .. } if slot.overflowed(address));
            let mut fault = job.fault_of(other, overflow, position);
            fault.thread = thread.map(Box::new);
            job.fail(fault);
        }
    }
}

/// Runs one threadgroup, contained.
fn execute<O: Observer>(
    slot: &ThreadSlot,
    image: &Image,
    group: &mut SmGroup,
    context: *mut u8,
    strategy: Strategy,
    observer: &mut O,
) -> ContainedExit {
    let kernel = image.kernel();
    // SAFETY: the image's functions belong to its plan by `Image::new`; the context has the plan's size;
    // `group::run` and the observers keep the rules of contained code.
    unsafe { slot.contain(|| group::run(kernel, group, context, strategy, observer)) }
}
