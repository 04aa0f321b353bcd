//! Executes command lists in submission order.
#![expect(
    unsafe_code,
    reason = "binds, copies and fills device memory that the command list keeps alive"
)]

mod segment;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::segment::Segment;
use super::buffer::Buffer;
use super::matrix;
use super::pipeline::{Code, Pipeline};
use super::runtime::fault::FaultKind;
use super::runtime::fuzz::scatter;
use super::runtime::{
    self, BufferBinding, Image, InlineBytes, Isolation, KernelLaunch, LaunchOutput, Pool,
};
use super::{Mode, SoftOptions};
use crate::driver::{self, Command, CommandList, DispatchCommand, Region, Resource, own};
use crate::error::{Error, Fault, Result};
use crate::report::{Report, ReportKind};
use crate::size::Size;
use crate::submission::{Completed, Completion, LogLine};

/// Stack size of the executor thread, which runs kernels too; pages are only committed as private arrays reach them.
const EXECUTOR_STACK_BYTES: usize = 16 << 20;

/// Sends command lists to the executor thread.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: Sender<QueuedList>,
    executed: Arc<LaunchCounts>,
    suppressed: Arc<AtomicU64>,
}

/// Launch counts by kernel name, of command lists that ran without a failure.
type LaunchCounts = Mutex<BTreeMap<String, u64>>;

#[derive(Debug)]
struct QueuedList {
    list: CommandList,
    guard: CompletionGuard,
}

/// Completes a submission with an error if the executor never gets to it.
#[derive(Debug)]
struct CompletionGuard(Arc<Completion>);

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        // A no-op if there is a result already: only the first one counts.
        self.0.finish(Err(Error::Execution {
            fault: Fault::DeviceLost,
            kernel: None,
            message: "the software device stopped before it executed this submission".to_owned(),
        }));
    }
}

impl Queue {
    /// Starts the threads. They exit when the queue is dropped and all submitted lists have run.
    ///
    /// # Errors
    /// No more threads can be created.
    pub(crate) fn new(options: &SoftOptions) -> io::Result<Self> {
        let executed = Arc::<LaunchCounts>::default();
        let suppressed = Arc::<AtomicU64>::default();
        let executor = Executor::new(options, executed.clone(), suppressed.clone())?;
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("bessemer-0".to_owned())
            .stack_size(EXECUTOR_STACK_BYTES)
            .spawn(move || executor.run(&receiver))?;
        Ok(Self {
            sender,
            executed,
            suppressed,
        })
    }

    /// Launch counts by kernel name, of command lists that ran without a failure.
    pub(crate) fn executed(&self) -> BTreeMap<String, u64> {
        self.executed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Number of reports that comments in kernels have suppressed so far.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// Submits a list.
    ///
    /// # Errors
    /// The executor has stopped.
    pub(crate) fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()> {
        let queued = QueuedList {
            list,
            guard: CompletionGuard(completion),
        };
        self.sender.send(queued).map_err(|_| Error::Execution {
            fault: Fault::DeviceLost,
            kernel: None,
            message: "the software device has stopped".to_owned(),
        })
    }
}

/// Returns the time on the device's clock.
fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

struct Executor {
    pool: Pool,
    /// Runs submissions in child processes, in isolated mode.
    isolation: Option<Isolation>,
    mode: Mode,
    timeout: Duration,
    step_limit: u64,
    seed: u64,
    submissions: u64,
    executed: Arc<LaunchCounts>,
    suppressed: Arc<AtomicU64>,
}

impl Executor {
    fn new(
        options: &SoftOptions,
        executed: Arc<LaunchCounts>,
        suppressed: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let isolated = options.mode == Mode::Isolated;
        let threads = match options.threads {
            // A forked process has one thread.
            _ if isolated => 1,
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Ok(Self {
            pool: Pool::with_threads(threads)?,
            isolation: isolated.then(Isolation::new).transpose()?,
            mode: options.mode,
            timeout: options.timeout,
            step_limit: options.step_limit,
            seed: options.seed,
            submissions: 0,
            executed,
            suppressed,
        })
    }

    fn run(mut self, receiver: &Receiver<QueuedList>) {
        while let Ok(QueuedList { list, guard }) = receiver.recv() {
            self.submissions += 1;
            let outcome = catch_unwind(AssertUnwindSafe(|| self.execute(&list)));
            // Resources are released before the result is published: a waiter may rely on that.
            drop(list);
            guard.0.finish(outcome.unwrap_or_else(|_| {
                Err(Error::Execution {
                    fault: Fault::Other,
                    kernel: None,
                    message: "the software device panicked; this is a bug in it".to_owned(),
                })
            }));
        }
    }

    fn execute(&self, list: &CommandList) -> Result<Completed> {
        let start = now();
        let deadline = Instant::now().checked_add(self.timeout);
        let outcome = match &self.isolation {
            None => self.execute_commands(list, deadline, |launch| self.pool.run(launch)),
            Some(isolation) => {
                let staged = staged_buffers(list);
                staged.iter().for_each(|staged| staged.buffer.stage_in());
                let outcome = isolation.run(self.timeout, self.pool.log(), |runner| {
                    self.execute_commands(list, deadline, |launch| runner.run(launch))
                });
                staged
                    .iter()
                    .filter(|staged| staged.writes)
                    .for_each(|staged| staged.buffer.stage_out());
                outcome
            }
        };
        let logs = self.logs();
        let reports = outcome.map_err(execution_error)?.reports;
        if !reports.is_empty() {
            return Err(Error::Checked { reports });
        }
        self.count(list);
        Ok(Completed {
            gpu_start: start,
            gpu_end: now(),
            command_buffers: 1,
            logs,
        })
    }

    /// Counts the launches of a list that ran without a failure.
    fn count(&self, list: &CommandList) {
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        for command in &list.commands {
            let Command::Dispatch(dispatch) = command else {
                continue;
            };
            let name = &driver::Pipeline::info(own::<Pipeline>(&*dispatch.pipeline)).name;
            match executed.get_mut(name) {
                Some(count) => *count += 1,
                None => {
                    executed.insert(name.clone(), 1);
                }
            }
        }
    }

    /// Executes the commands; `run` runs their kernels. In isolated mode this runs in the forked process: it takes
    /// no locks and modifies nothing but shared memory.
    fn execute_commands(
        &self,
        list: &CommandList,
        deadline: Option<Instant>,
        run: impl Fn(&KernelLaunch<'_>) -> Result<LaunchOutput, runtime::LaunchFault>,
    ) -> Result<LaunchOutput, runtime::LaunchFault> {
        let mut done = LaunchOutput::default();
        let mut forked = ForkedImages::default();
        let mut segment = Segment::default();
        for (step, index) in self.order(&list.commands).into_iter().enumerate() {
            if self.mode == Mode::Check {
                segment.advance(&list.commands, index);
                merge_reports(
                    &mut done.reports,
                    segment.check_command(&list.commands[index]),
                );
            }
            match &list.commands[index] {
                Command::Dispatch(dispatch) => {
                    let bytes = inline_bytes(dispatch);
                    let image = forked.image(own(&*dispatch.pipeline))?;
                    let mut launch = self.launch(&image, dispatch, &bytes);
                    launch.overlaps = segment.overlaps();
                    launch.sequence = self.submissions.rotate_left(32) ^ step as u64;
                    launch.limit = deadline.map_or(Duration::MAX, |deadline| {
                        deadline.saturating_duration_since(Instant::now())
                    });
                    match run(&launch) {
                        Ok(mut output) => {
                            self.suppress(dispatch, &mut output.reports);
                            merge_reports(&mut done.reports, output.reports);
                        }
                        Err(mut fault) => {
                            // The launch had the remaining time; report the limit of the whole submission.
                            if let FaultKind::Timeout { limit } = &mut fault.kind {
                                *limit = self.timeout;
                            }
                            self.suppress(dispatch, &mut fault.reports);
                            merge_reports(&mut done.reports, std::mem::take(&mut fault.reports));
                            fault.reports = done.reports;
                            if self.threadgroup(dispatch) != dispatch.threadgroup {
                                fault.threadgroup = None;
                            }
                            return Err(fault);
                        }
                    }
                }
                Command::Product(product) => {
                    let factors =
                        [&product.left, &product.right].map(|m| address(&m.region).cast_const());
                    let result = address(&product.result.region);
                    // SAFETY: the front checked that all elements lie in the buffers, which the list keeps alive,
                    // and that the result does not overlap a factor.
                    let finished = unsafe { matrix::multiply(product, factors, result, deadline) };
                    if !finished {
                        let kind = FaultKind::Timeout {
                            limit: self.timeout,
                        };
                        let mut fault = runtime::LaunchFault::new(kind, "matrix product");
                        fault.reports = done.reports;
                        return Err(fault);
                    }
                }
                Command::Copy { source, target } => {
                    let length = source.length.min(target.length);
                    // SAFETY: the front checked both ranges and that they do not overlap; the list keeps the
                    // buffers alive.
                    unsafe { ptr::copy_nonoverlapping(address(source), address(target), length) };
                }
                Command::Fill { target, value } => {
                    // SAFETY: as above.
                    unsafe { ptr::write_bytes(address(target), *value, target.length) };
                }
                Command::Synchronize { buffer } => own::<Buffer>(&**buffer).synchronize(),
                Command::Barrier | Command::PushGroup(_) | Command::PopGroup => {}
            }
        }
        Ok(done)
    }

    /// Removes the reports that comments in the kernel suppress, and counts them.
    fn suppress(&self, dispatch: &DispatchCommand, reports: &mut Vec<Report>) {
        if !reports.is_empty() {
            let count = own::<Pipeline>(&*dispatch.pipeline).suppress(reports);
            self.suppressed.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Returns the execution order of the commands; fuzz mode shuffles those between two barriers.
    fn order(&self, commands: &[Command]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..commands.len()).collect();
        if self.mode != Mode::Fuzz {
            return order;
        }
        let mut state = scatter(self.seed ^ self.submissions.rotate_left(32));
        let barrier = |index: &usize| matches!(commands[*index], Command::Barrier);
        for segment in order.split_mut(barrier) {
            for last in (1..segment.len()).rev() {
                state = scatter(state.wrapping_add(last as u64));
                segment.swap(last, (state % (last as u64 + 1)) as usize);
            }
        }
        order
    }

    /// Returns the threadgroup size to run with. Only fast mode may change the one that was dispatched.
    fn threadgroup(&self, dispatch: &DispatchCommand) -> Size {
        match self.mode {
            Mode::Fast => own::<Pipeline>(&*dispatch.pipeline).threadgroup(dispatch.threadgroup),
            _ => dispatch.threadgroup,
        }
    }

    fn launch<'a>(
        &self,
        image: &'a Image,
        dispatch: &DispatchCommand,
        bytes: &[(u32, InlineBytes)],
    ) -> KernelLaunch<'a> {
        let size = |dims: [usize; 3]| dims.map(|d| u32::try_from(d).unwrap_or(u32::MAX));
        let mut launch = KernelLaunch::new(
            image,
            size(dispatch.grid.dims()),
            size(self.threadgroup(dispatch).dims()),
        );
        launch.mode = match self.mode {
            Mode::Fast | Mode::Isolated => runtime::LaunchMode::Fast,
            Mode::Check => runtime::LaunchMode::Check,
            Mode::Fuzz => runtime::LaunchMode::Fuzz { seed: self.seed },
        };
        launch.step_limit = self.step_limit;
        for binding in &dispatch.bindings {
            let Some(slot) = launch.buffers.get_mut(binding.index as usize) else {
                continue;
            };
            if let Resource::Buffer { region, access } = &binding.resource {
                let access = if access.writes() {
                    runtime::BindingAccess::Write
                } else {
                    runtime::BindingAccess::Read
                };
                // SAFETY: the front checked the range and its hazards; the list keeps the buffer alive.
                *slot = unsafe { BufferBinding::new(address(region), region.length, access) };
            }
        }
        for (index, bytes) in bytes {
            if let Some(slot) = launch.buffers.get_mut(*index as usize) {
                *slot = bytes.binding();
            }
        }
        for (index, length) in &dispatch.threadgroup_memory {
            if let Some(slot) = launch.threadgroup_memory.get_mut(*index as usize) {
                *slot = *length;
            }
        }
        launch
    }

    fn logs(&self) -> Vec<LogLine> {
        let (lines, dropped) = self.pool.log().take();
        let mut logs: Vec<LogLine> = lines
            .into_iter()
            .map(|line| LogLine {
                level: level(line.level).to_owned(),
                subsystem: line.subsystem,
                category: line.category,
                message: line.text,
            })
            .collect();
        if dropped > 0 {
            logs.push(LogLine {
                level: "default".to_owned(),
                subsystem: String::new(),
                category: String::new(),
                message: format!("{dropped} more lines did not fit in the log"),
            });
        }
        logs
    }
}

/// Images that a forked process has loaded for its submission. They are never unloaded: the process exits.
#[derive(Default)]
struct ForkedImages(HashMap<*const Pipeline, ManuallyDrop<Rc<Image>>>);

/// An image of the pipeline, or one loaded for this submission.
enum ImageRef<'a> {
    Shared(&'a Image),
    Forked(Rc<Image>),
}

impl Deref for ImageRef<'_> {
    type Target = Image;

    fn deref(&self) -> &Image {
        match self {
            Self::Shared(image) => image,
            Self::Forked(image) => image,
        }
    }
}

impl ForkedImages {
    fn image<'a>(&mut self, pipeline: &'a Pipeline) -> Result<ImageRef<'a>, runtime::LaunchFault> {
        let loader = match pipeline.code() {
            Code::InProcess(image) => return Ok(ImageRef::Shared(image)),
            Code::PerProcess(loader) => loader,
        };
        let key = ptr::from_ref(pipeline);
        if let Some(image) = self.0.get(&key) {
            return Ok(ImageRef::Forked(Rc::clone(image)));
        }
        let loaded = loader.load().map_err(|error| loader.fault(error))?;
        let image = Rc::new(loaded.image);
        self.0.insert(key, ManuallyDrop::new(image.clone()));
        Ok(ImageRef::Forked(image))
    }
}

/// Metal's names of its log levels.
fn level(number: u32) -> &'static str {
    match number {
        1 => "debug",
        2 => "info",
        4 => "error",
        5 => "fault",
        _ => "default",
    }
}

/// Merges reports; equal ones of earlier launches are counted.
fn merge_reports(reports: &mut Vec<Report>, more: Vec<Report>) {
    fn key(r: &Report) -> impl PartialEq {
        (r.kind, &r.kernel, &r.file, r.line, r.column, r.buffer)
    }
    for report in more {
        match reports.iter_mut().find(|r| key(r) == key(&report)) {
            Some(known) => known.count += report.count,
            None => reports.push(report),
        }
    }
}

/// Converts a fault to the front's error. Earlier findings of the checker explain more than the crash that they
/// caused.
fn execution_error(fault: runtime::LaunchFault) -> Error {
    let crash = fault.report();
    // In check mode, an endless loop has a source location.
    let endless = crash.kind == ReportKind::Timeout && fault.thread.is_some();
    if endless || !fault.reports.is_empty() {
        let mut reports = fault.reports;
        reports.push(crash);
        return Error::Checked { reports };
    }
    let kind = match fault.kind {
        FaultKind::PageFault { .. } => Fault::PageFault,
        FaultKind::DivisionByZero => Fault::DivisionByZero,
        FaultKind::Timeout { .. } | FaultKind::Endless { .. } => Fault::Timeout,
        FaultKind::OutOfMemory => Fault::OutOfMemory,
        FaultKind::Invalid => Fault::Refused,
        _ => Fault::Crash,
    };
    let mut message = crash.message;
    if let Some(threadgroup) = fault.threadgroup {
        message.push_str(&format!(" (threadgroup {threadgroup:?}"));
        if let Some(thread) = crash.thread {
            message.push_str(&format!(", thread {thread:?}"));
        }
        if crash.line > 0 {
            let (file, line, column) = (crash.file, crash.line, crash.column);
            message.push_str(&format!(", after {file}:{line}:{column}"));
        }
        message.push(')');
    }
    Error::Execution {
        fault: kind,
        kernel: Some(fault.kernel).filter(|name| !name.is_empty()),
        message,
    }
}

/// A buffer of a command list, and whether the list may write to it.
struct StagedBuffer<'a> {
    buffer: &'a Buffer,
    writes: bool,
}

/// A buffer range that a command accesses, and whether it may write to it.
struct AccessedRegion<'a> {
    region: &'a Region,
    writes: bool,
}

/// Returns every buffer of a list.
fn staged_buffers(list: &CommandList) -> Vec<StagedBuffer<'_>> {
    let mut found: Vec<StagedBuffer<'_>> = Vec::new();
    for AccessedRegion { region, writes } in list.commands.iter().flat_map(accessed_regions) {
        let buffer: &Buffer = own(&*region.buffer);
        match found.iter_mut().find(|known| ptr::eq(known.buffer, buffer)) {
            Some(known) => known.writes |= writes,
            None => found.push(StagedBuffer { buffer, writes }),
        }
    }
    found
}

/// Returns the buffer ranges that a command accesses.
fn accessed_regions(command: &Command) -> Vec<AccessedRegion<'_>> {
    let read = |region| AccessedRegion {
        region,
        writes: false,
    };
    let write = |region| AccessedRegion {
        region,
        writes: true,
    };
    match command {
        Command::Dispatch(dispatch) => dispatch
            .bindings
            .iter()
            .filter_map(|binding| match &binding.resource {
                Resource::Buffer { region, access } => Some(AccessedRegion {
                    region,
                    writes: access.writes(),
                }),
                Resource::Bytes(_) => None,
            })
            .collect(),
        Command::Product(product) => vec![
            read(&product.left.region),
            read(&product.right.region),
            write(&product.result.region),
        ],
        Command::Copy { source, target } => vec![read(source), write(target)],
        Command::Fill { target, .. } => vec![write(target)],
        _ => Vec::new(),
    }
}

fn address(region: &Region) -> *mut u8 {
    let buffer: &Buffer = own(&*region.buffer);
    debug_assert!(region.offset + region.length <= buffer.length());
    // SAFETY: the front checked that the region lies inside the buffer.
    unsafe { buffer.pointer().as_ptr().add(region.offset) }
}

/// Aligned copies of inline bytes; they live as long as the launch.
fn inline_bytes(dispatch: &DispatchCommand) -> Vec<(u32, InlineBytes)> {
    dispatch
        .bindings
        .iter()
        .filter_map(|binding| match &binding.resource {
            Resource::Bytes(bytes) => Some((binding.index, InlineBytes::new(bytes))),
            Resource::Buffer { .. } => None,
        })
        .collect()
}
