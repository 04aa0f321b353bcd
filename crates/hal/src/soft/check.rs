//! The checker: detects defects that a GPU does not report.
//!
//! Images compiled for check mode report every memory access; threadgroups run lane by lane, so the checker knows
//! the accessing thread. It reports, with a location in the user's source:
//! - *bounds*: device memory outside the bound range, threadgroup memory outside a variable or argument, writes to
//!   read-only bindings or constants, and wild addresses;
//! - *race*: two accesses to the same byte, at least one a write, not both atomic, by threads without a
//!   happens-before relation. In a threadgroup, `threadgroup_barrier` orders the memory that its flags name, and so
//!   does `simdgroup_barrier` for the lanes of its SIMD-group. By the specification, other SIMD-group functions
//!   order no memory; since all lanes wait there on hardware, and common code relies on it, the checker treats them as
//!   ordering both kinds. Threadgroups are never ordered, and writing equal values is a race too;
//! - *uninitialised*: threadgroup memory read before the threadgroup wrote it, private memory read before the
//!   thread did;
//! - *misaligned*: an address that is not a multiple of the type's alignment;
//! - *shift*, *division-by-zero*: operands out of range; the kernel continues;
//! - *divergent-barrier*, *early-return*, *divergent-simd*: lanes that should have converged and did not;
//! - *inactive-lane*: a value read from a lane that does not participate in a shuffle.
//!
//! An access outside all memory of the launch is not performed: its threadgroup is abandoned there, and the launch
//! continues with the others.
//!
//! If the compiler knows the buffer or variable that a pointer is derived from, an access outside of it is reported
//! whatever memory it hits. Limitations: other overruns that hit another bound range are not detected, and
//! synchronisation between threadgroups that kernels build from atomics and fences is not recognised.
#![expect(
    unsafe_code,
    reason = "services reach the launch and the checker through raw pointers"
)]

mod collect;
pub(crate) mod commands;
mod defect;
mod device;
mod happens_before;
mod loop_counter;
mod observer;
mod origin;
mod simd;
#[cfg(test)]
mod tests;
mod threadgroup;

pub(crate) use defect::Defect;
pub(crate) use observer::CheckObserver;

use std::ops::Range;
use std::ptr;

use self::collect::{Collector, FindingKey, Witness};
use self::commands::OverlapShadow;
use self::device::{DeviceAccess, DeviceShadow};
use self::happens_before::{AccessRecord, Clocks, Conflict};
use self::loop_counter::LoopCounter;
use self::simd::SimdFunction;
use self::threadgroup::{Allocation, ThreadgroupShadow, UninitialisedRead};
use super::group::{Divergence, SmGroup};
use super::plan::{SiteKind, WHOLE_SIMDGROUP};
use super::runtime::ThreadgroupLayout;
use super::runtime::fault::ThreadLocation;
use super::runtime::image::Image;
use super::runtime::launch::{BindingAccess, BufferBinding, Geometry, KernelLaunch};
use super::runtime::memory::{BUFFER_INDICES, Unbound, ZeroPages};
use super::runtime::signal::ThreadSlot;
use crate::report::{Report, ReportKind};

/// `mem_flags::mem_device`.
const MEM_DEVICE: u32 = 1;
/// `mem_flags::mem_threadgroup`.
const MEM_THREADGROUP: u32 = 2;
/// Marker of an empty entry in the table of last buffers.
const NO_BUFFER: u8 = u8::MAX;

/// Decision about a checked access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Perform it.
    Proceed,
    /// Abandon the threadgroup: the access would corrupt memory.
    Abandon,
}

/// A launch under check, shared by its workers.
#[derive(Debug)]
pub(crate) struct LaunchCheck<'a> {
    image: &'a Image,
    bindings: &'a [BufferBinding; BUFFER_INDICES],
    geometry: Geometry,
    step_limit: u64,
    /// Memory that other commands of the segment access too, and the number of this command.
    overlaps: Option<(&'a OverlapShadow<'a>, usize)>,
    shadow: DeviceShadow,
    collector: Collector,
}

impl<'a> LaunchCheck<'a> {
    pub(crate) fn new(launch: &'a KernelLaunch<'a>, geometry: Geometry) -> Self {
        Self {
            image: launch.image,
            bindings: &launch.buffers,
            geometry,
            step_limit: launch.step_limit,
            overlaps: launch.overlaps,
            shadow: DeviceShadow::new(&launch.buffers),
            collector: Collector::default(),
        }
    }

    /// The findings.
    pub(crate) fn into_reports(self) -> Vec<Report> {
        self.collector.into_reports(self.image)
    }
}

/// The checker of one worker, with the state of its threadgroup.
#[derive(Debug)]
pub(crate) struct Checker {
    launch: *const LaunchCheck<'static>,
    slot: *const ThreadSlot,
    /// Addresses of the worker's threadgroup memory.
    memory: Range<usize>,
    /// Addresses of the worker's context block.
    context: Range<usize>,
    group: *const SmGroup,
    number: u64,
    lane: u32,
    /// Location of the lane's last access.
    location: u32,
    threadgroup: ThreadgroupShadow,
    device: Clocks,
    /// For each location, the buffer of its last valid access: names the buffer of a wild access.
    last_buffer: Vec<u8>,
    /// The threadgroup was abandoned; consequential findings are not reported.
    silenced: bool,
    /// Threads of the threadgroup waited at different barriers; that they reach later barriers at different times is a
    /// consequence and is not reported.
    barriers_diverged: bool,
    function: SimdFunction,
    loop_counter: LoopCounter,
}

// SAFETY: the pointers are only used between `begin_launch` and `end_launch`, by the thread that called them.
unsafe impl Send for Checker {}

impl Default for Checker {
    fn default() -> Self {
        Self {
            launch: ptr::null(),
            slot: ptr::null(),
            memory: 0..0,
            context: 0..0,
            group: ptr::null(),
            number: 0,
            lane: 0,
            location: 0,
            threadgroup: ThreadgroupShadow::default(),
            device: Clocks::new(),
            last_buffer: Vec::new(),
            silenced: false,
            barriers_diverged: false,
            function: SimdFunction::default(),
            loop_counter: LoopCounter::default(),
        }
    }
}

/// A memory access to check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessEvent {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    /// Alignment of its type.
    pub(crate) align: usize,
    pub(crate) location: u32,
}

impl AccessEvent {
    fn verb(&self) -> &'static str {
        match (self.atomic, self.write) {
            (false, false) => "read",
            (false, true) => "write",
            (true, false) => "atomic read",
            (true, true) => "atomic write",
        }
    }

    fn describe(&self) -> String {
        format!("{} of {}", self.verb(), bytes(self.size))
    }
}

fn bytes(count: usize) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

fn verb_of(conflict: Conflict) -> &'static str {
    match (conflict.earlier.is_atomic(), conflict.earlier_wrote) {
        (false, false) => "the read",
        (false, true) => "the write",
        (true, false) => "the atomic read",
        (true, true) => "the atomic write",
    }
}

impl Checker {
    pub(crate) fn begin_launch(
        &mut self,
        launch: &LaunchCheck<'_>,
        slot: &ThreadSlot,
        layout: &ThreadgroupLayout,
        memory: usize,
        context: usize,
    ) {
        let plan = launch.image.plan();
        self.launch = ptr::from_ref(launch).cast();
        self.slot = slot;
        self.memory = memory..memory + layout.total;
        self.context = context..context + plan.context_bytes;
        // SAFETY: the worker's context includes the counter after the states, and belongs to this worker alone.
        self.loop_counter = unsafe { LoopCounter::new(context, launch.step_limit) };
        self.threadgroup.begin_launch(layout, &plan.variables);
        self.last_buffer.clear();
        self.last_buffer.resize(plan.locations.len(), NO_BUFFER);
    }

    pub(crate) fn end_launch(&mut self) {
        self.launch = ptr::null();
        self.slot = ptr::null();
        self.group = ptr::null();
        self.loop_counter = LoopCounter::default();
    }

    fn begin_group(&mut self, number: u64, group: &SmGroup) {
        self.group = group;
        self.number = number;
        self.lane = 0;
        self.location = 0;
        self.silenced = false;
        self.barriers_diverged = false;
        self.loop_counter.begin_group();
        self.threadgroup.begin_group();
        self.device = Clocks::new();
    }

    fn end_group(&mut self) {
        if !self.silenced {
            self.report_uninitialised();
        }
    }

    /// Returns the running thread's position in the grid, and the location of its last access; for a thread that was
    /// interrupted in a loop (`in_loop`), the location of the loop.
    fn current_thread(&self, in_loop: bool) -> ThreadLocation {
        let launch = self.launch();
        let mut location = self.location;
        if in_loop && let Some(last) = self.loop_counter.last_loop() {
            location = last;
        }
        let canonical = launch.image.canonical_location(location);
        ThreadLocation {
            position: position(&launch.geometry, self.number, self.lane),
            near: launch.image.location(canonical).cloned(),
        }
    }

    fn launch(&self) -> &'static LaunchCheck<'static> {
        // SAFETY: set by `begin_launch` for the worker's run of the launch; callers do not keep the reference.
        unsafe { &*self.launch }
    }

    fn group(&self) -> &'static SmGroup {
        // SAFETY: set by `begin_group`; the group lives as long as the worker's run.
        unsafe { &*self.group }
    }

    /// Checks an access before it is performed.
    pub(crate) fn access(&mut self, access: AccessEvent) -> Verdict {
        let AccessEvent {
            address,
            size,
            write,
            location,
            ..
        } = access;
        if self.launch.is_null() || self.group.is_null() || size == 0 {
            return Verdict::Proceed;
        }
        self.location = location;
        let Some(end) = address.checked_add(size) else {
            return self.out_of_bounds(&access);
        };
        if let Some(origin) = self.origin(location)
            && let Some(verdict) = self.check_origin(&access, end, origin)
        {
            return verdict;
        }
        if let Some(buffer) = self.find_buffer(&access, end) {
            self.device_access(&access, buffer);
            return Verdict::Proceed;
        }
        let is_inside = |range: &Range<usize>| address >= range.start && end <= range.end;
        if is_inside(&self.memory) {
            return self.threadgroup_access(&access);
        }
        // SAFETY: set by `begin_launch`, and the slot belongs to this thread.
        let stack = unsafe { (*self.slot).kernel_stack() };
        if is_inside(&self.context) || is_inside(&stack) {
            return Verdict::Proceed;
        }
        let group = self.group as usize..self.group as usize + size_of::<SmGroup>();
        let is_constant = is_inside(&group) || self.launch().image.contains(address);
        if is_constant && !write {
            return Verdict::Proceed;
        }
        if is_constant {
            self.report(ReportKind::Bounds, access.location, None, || {
                format!("{} at a constant of the program", access.describe())
            });
            return self.abandon();
        }
        match ZeroPages::get().owner_of(address) {
            Some(unbound) => self.unbound(&access, unbound),
            None => self.out_of_bounds(&access),
        }
    }

    /// Finds the buffer that contains an access: the last one of its location, or any other.
    fn find_buffer(&mut self, access: &AccessEvent, end: usize) -> Option<usize> {
        let bindings = self.launch().bindings;
        let contains = |index: usize| {
            let binding = &bindings[index];
            access.address >= binding.start() && end <= binding.end() && binding.is_bound()
        };
        let last = self.last_buffer.get_mut(access.location as usize);
        if let Some(&mut last) = last
            && last != NO_BUFFER
            && contains(usize::from(last))
        {
            return Some(usize::from(last));
        }
        // If two bindings alias, a write belongs to the writable one.
        let found = (0..BUFFER_INDICES)
            .filter(|&index| contains(index))
            .max_by_key(|&index| {
                (
                    !access.write || bindings[index].access() == BindingAccess::Write,
                    BUFFER_INDICES - index,
                )
            })?;
        if let Some(last) = self.last_buffer.get_mut(access.location as usize) {
            *last = found as u8;
        }
        Some(found)
    }

    fn device_access(&mut self, access: &AccessEvent, index: usize) {
        let launch = self.launch();
        let binding = &launch.bindings[index];
        let offset = access.address - binding.start();
        if access.write && binding.access() == BindingAccess::Read {
            self.report(ReportKind::Bounds, access.location, Some(index), || {
                format!(
                    "{} at offset {offset} of {}, which is bound for reading only",
                    access.describe(),
                    buffer_name(launch.image, index)
                )
            });
        }
        if !access.address.is_multiple_of(access.align) {
            let target = || format!("offset {offset} of {}", buffer_name(launch.image, index));
            self.report_misaligned(access, Some(index), target);
        }
        let canonical = launch.image.canonical_location(access.location);
        if let Some((overlaps, command)) = launch.overlaps {
            let touch = commands::CommandTouch {
                address: access.address,
                size: access.size,
                write: access.write,
                atomic: access.atomic,
                location: canonical,
            };
            if let Some(conflict) = overlaps.touch(command, touch) {
                self.report(ReportKind::Race, access.location, Some(index), || {
                    format!(
                        "{} at offset {offset} of {} conflicts with {conflict}",
                        access.describe(),
                        buffer_name(launch.image, index)
                    )
                });
            }
        }
        let record = AccessRecord::new(
            self.number as u32,
            self.lane,
            canonical,
            access.atomic,
            self.device.now(self.lane),
        );
        let touch = DeviceAccess {
            address: access.address,
            size: access.size,
            write: access.write,
            record,
        };
        if let Some(conflict) = launch.shadow.touch(touch, &self.device) {
            let target = || format!("offset {offset} of {}", buffer_name(launch.image, index));
            self.report_race(access, Some(index), conflict, target);
        }
    }

    fn threadgroup_access(&mut self, access: &AccessEvent) -> Verdict {
        let offset = access.address - self.memory.start;
        let Some((range, inside)) = self.threadgroup.find(offset, access.size) else {
            return self.out_of_bounds(access);
        };
        let image = self.launch().image;
        if !inside {
            // Red zones protect the other allocations, so the thread may continue.
            self.outside_allocation(access, range);
            return Verdict::Proceed;
        }
        let record = AccessRecord::new(
            0,
            self.lane,
            image.canonical_location(access.location),
            access.atomic,
            self.threadgroup.now(self.lane),
        );
        let conflict = self
            .threadgroup
            .touch(offset, access.size, access.write, record);
        if let Some(conflict) = conflict {
            let target = || {
                let allocation = allocation_name(image, range.allocation);
                format!("offset {} of {allocation}", offset - range.start)
            };
            self.report_race(access, None, conflict, target);
        }
        if !access.address.is_multiple_of(access.align) {
            let target = || {
                let allocation = allocation_name(image, range.allocation);
                format!("offset {} of {allocation}", offset - range.start)
            };
            self.report_misaligned(access, None, target);
        }
        Verdict::Proceed
    }

    /// Checks an access through a missing binding. Reads of buffers return zeros: the optimiser may load from a parameter
    /// that a function constant has disabled.
    fn unbound(&mut self, access: &AccessEvent, unbound: Unbound) -> Verdict {
        let image = self.launch().image;
        match unbound {
            Unbound::Buffer(_) if !access.write => return Verdict::Proceed,
            Unbound::Buffer(index) => {
                let index = index as usize;
                self.report(ReportKind::Bounds, access.location, Some(index), || {
                    let name = buffer_name(image, index);
                    format!("{} at {name}, to which nothing is bound", access.describe())
                });
            }
            Unbound::Threadgroup(index) => {
                self.report(ReportKind::ThreadgroupMemory, access.location, None, || {
                    format!(
                        "{} at {}, for which no memory was set",
                        access.describe(),
                        allocation_name(image, Allocation::Argument(index))
                    )
                });
            }
        }
        self.abandon()
    }

    /// Reports an access outside the launch's memory. It was probably meant for the buffer that the same location
    /// accessed before.
    fn out_of_bounds(&mut self, access: &AccessEvent) -> Verdict {
        let last = self.last_buffer.get(access.location as usize).copied();
        match last.filter(|&last| last != NO_BUFFER) {
            Some(index) => self.outside_buffer(access, usize::from(index)),
            None => self.report(ReportKind::Bounds, access.location, None, || {
                format!(
                    "{} at address {:#x}, which is outside of every buffer",
                    access.describe(),
                    access.address
                )
            }),
        }
        self.abandon()
    }

    fn outside_buffer(&self, access: &AccessEvent, index: usize) {
        let launch = self.launch();
        let binding = &launch.bindings[index];
        self.report(ReportKind::Bounds, access.location, Some(index), || {
            format!(
                "{} at offset {} of {}, which has {}",
                access.describe(),
                access.address.wrapping_sub(binding.start()) as isize,
                buffer_name(launch.image, index),
                bytes(binding.length())
            )
        });
    }

    fn abandon(&mut self) -> Verdict {
        self.silenced = true;
        Verdict::Abandon
    }

    fn report_race(
        &self,
        access: &AccessEvent,
        buffer: Option<usize>,
        conflict: Conflict,
        target: impl FnOnce() -> String,
    ) {
        let launch = self.launch();
        let earlier = conflict.earlier;
        let same_group = buffer.is_none() || earlier.group() == self.number as u32;
        self.report(ReportKind::Race, access.location, buffer, || {
            let number = if same_group {
                self.number
            } else {
                u64::from(earlier.group())
            };
            let thread = position(&launch.geometry, number, earlier.lane());
            let line = match launch.image.location(earlier.location()) {
                Some(location) => format!(" at line {}", location.line),
                None => String::new(),
            };
            let why = if same_group {
                "no barrier orders them".to_owned()
            } else {
                let other_group = launch.geometry.position(number);
                format!("it is in threadgroup {other_group:?}, and threadgroups are not ordered")
            };
            format!(
                "{} at {} conflicts with {} by thread {thread:?}{line}: {why}",
                access.describe(),
                target(),
                verb_of(conflict)
            )
        });
    }

    fn report_uninitialised(&mut self) {
        let image = self.launch().image;
        for UninitialisedRead {
            offset,
            size,
            reader,
        } in self.threadgroup.take_uninitialised()
        {
            let Some((range, _)) = self.threadgroup.find(offset, size) else {
                continue;
            };
            let key = FindingKey {
                kind: ReportKind::Uninitialised,
                location: reader.location(),
                buffer: None,
            };
            self.add(key, reader.lane(), || {
                format!(
                    "read of {} at offset {} of {}, where nothing was written",
                    bytes(size),
                    offset - range.start,
                    allocation_name(image, range.allocation)
                )
            });
        }
    }

    fn report(
        &self,
        kind: ReportKind,
        location: u32,
        buffer: Option<usize>,
        message: impl FnOnce() -> String,
    ) {
        let key = FindingKey {
            kind,
            location: self.launch().image.canonical_location(location),
            buffer: buffer.map(|index| index as u32),
        };
        self.add(key, self.lane, message);
    }

    fn add(&self, key: FindingKey, lane: u32, message: impl FnOnce() -> String) {
        let launch = self.launch();
        let witness = Witness {
            group: self.number,
            threadgroup: self.group().tgid,
            thread: position(&launch.geometry, self.number, lane),
        };
        launch.collector.add(key, witness, message);
    }

    fn line_of_site(&self, site: u32) -> String {
        let image = self.launch().image;
        let site = &image.plan().sites[site as usize - 1];
        match image.location(image.canonical_location(site.location)) {
            Some(location) => format!("line {}", location.line),
            None => "another location".into(),
        }
    }

    fn location_of_site(&self, site: u32) -> u32 {
        self.launch().image.plan().sites[site as usize - 1].location
    }

    fn synchronise(&mut self, simd_group: Option<u32>, flags: u32) {
        if flags & MEM_DEVICE != 0 {
            match simd_group {
                Some(simd_group) => self.device.simd_barrier(simd_group),
                None => self.device.barrier(),
            }
        }
        if flags & MEM_THREADGROUP != 0 {
            match simd_group {
                Some(simd_group) => self.threadgroup.clocks().simd_barrier(simd_group),
                None => {
                    self.report_uninitialised();
                    self.threadgroup.clocks().barrier();
                }
            }
        }
    }

    /// Returns whether two sites are copies of one call that the optimiser duplicated.
    fn same_call(&self, site: u32, other: u32) -> bool {
        let location = self.location_of_site(site);
        location != 0 && location == self.location_of_site(other)
    }

    fn diverged(&mut self, divergence: Divergence) {
        match divergence {
            Divergence::Barrier { site, other, .. } | Divergence::Simd { site, other, .. }
                if self.same_call(site, other) => {}
            Divergence::Barrier { site, lane, other } => {
                if std::mem::replace(&mut self.barriers_diverged, true) {
                    return;
                }
                self.lane = lane;
                let location = self.location_of_site(other);
                self.report(ReportKind::DivergentBarrier, location, None, || {
                    format!(
                        "threads of the threadgroup wait at different barriers: this one and the one at {}",
                        self.line_of_site(site)
                    )
                });
            }
            Divergence::Simd {
                simdgroup,
                site,
                mask,
                other,
                others,
            } => {
                let sites = &self.launch().image.plan().sites;
                self.lane = simdgroup * 32 + mask.trailing_zeros();
                self.function.reported = Some((simdgroup, site));
                let location = self.location_of_site(site);
                let other_site = &sites[other as usize - 1];
                let elsewhere = match other_site.kind {
                    _ if other_site.flags & WHOLE_SIMDGROUP != 0 => "a simdgroup matrix function",
                    SiteKind::Threadgroup => "a threadgroup barrier",
                    SiteKind::Simdgroup => "a SIMD-group barrier",
                    SiteKind::Collective => "a SIMD-group function",
                };
                self.report(ReportKind::DivergentSimd, location, None, || {
                    format!(
                        "{} of the SIMD-group's threads take part (mask {mask:#010x}) while {} wait at {elsewhere} at {}",
                        mask.count_ones(),
                        others.count_ones(),
                        self.line_of_site(other)
                    )
                });
            }
        }
    }

    fn early_return(&mut self, site: u32, lane: u32, finished: u32) {
        if self.barriers_diverged {
            return;
        }
        self.lane = lane;
        let total = self.group().nthreads;
        let location = self.location_of_site(site);
        self.report(ReportKind::EarlyReturn, location, None, || {
            format!("{finished} of the threadgroup's {total} threads returned before this barrier")
        });
    }
}

/// Returns the position in the grid of a lane of a threadgroup.
fn position(geometry: &Geometry, number: u64, lane: u32) -> [u32; 3] {
    let group = geometry.position(number);
    let [width, height, _] = geometry.size_at(group);
    let local = [
        lane % width.max(1),
        lane / width.max(1) % height.max(1),
        lane / (width * height).max(1),
    ];
    std::array::from_fn(|axis| {
        group[axis]
            .wrapping_mul(geometry.threadgroup[axis])
            .wrapping_add(local[axis])
    })
}

fn buffer_name(image: &Image, index: usize) -> String {
    match image.buffer_name(index as u32) {
        Some(name) => format!("buffer {index} (`{name}`)"),
        None => format!("buffer {index}"),
    }
}

fn allocation_name(image: &Image, allocation: Allocation) -> String {
    match allocation {
        Allocation::Variable(id) => match image.variable_name(id) {
            Some(name) => format!("threadgroup variable `{name}`"),
            None => "a threadgroup variable".into(),
        },
        Allocation::Argument(index) => match image.threadgroup_argument_name(index) {
            Some(name) => format!("threadgroup argument {index} (`{name}`)"),
            None => format!("threadgroup argument {index}"),
        },
    }
}
