//! The checker: finds what a GPU would let pass.
//!
//! Images compiled for check mode announce every memory access; threadgroups run lane by lane, so the checker knows whose
//! access it is. It reports, with the place in the user's source:
//! - *bounds*: device memory outside the bound range, threadgroup memory outside a variable or argument, writes to
//!   read-only bindings or constants, and addresses that belong to nothing;
//! - *race*: two accesses to the same byte, at least one a write, not both atomic, by threads that nothing orders. In a
//!   threadgroup, `threadgroup_barrier` orders the memory that its flags name, and so does `simdgroup_barrier` for the
//!   lanes of its SIMD-group. By the letter, other SIMD-group functions order no memory; as every lane waits there on
//!   hardware, and common code relies on it, they are taken to order both. Between threadgroups nothing is ordered, and
//!   equal values are no excuse: writing the same value twice is a race;
//! - *uninitialised*: threadgroup memory read before the threadgroup wrote it, private memory read before the thread did;
//! - *misaligned*: an address that is no multiple of the alignment of the type;
//! - *shift*, *division-by-zero*: operations whose operands are out of range; the kernel goes on;
//! - *divergent-barrier*, *early-return*, *divergent-simd*: lanes that should have met and did not;
//! - *inactive-lane*: a value from a lane that takes no part in a shuffle.
//!
//! An access that would touch memory outside all that belongs to the launch is not performed: its threadgroup is
//! abandoned there, and the launch goes on with the others.
//!
//! Where the compiler knows which buffer or variable a pointer was made from, an access outside of it is reported wherever
//! it lands. Not seen: other overruns that land inside another bound range, and order that kernels build themselves from
//! atomics and fences between threadgroups.
#![expect(
    unsafe_code,
    reason = "workers reach launch and checker through raw pointers"
)]

mod collect;
pub(crate) mod commands;
mod defect;
mod device;
mod order;
mod origin;
mod simd;
mod steps;
#[cfg(test)]
mod tests;
mod threadgroup;
mod watch;

use super::group::{Divergence, SmGroup};
use super::plan::SiteKind;
use super::runtime::ThreadgroupLayout;
use super::runtime::fault::Whereabouts;
use super::runtime::image::Image;
use super::runtime::launch::{Access, Binding, Geometry, Launch};
use super::runtime::memory::{BUFFERS, Unbound, ZeroPages};
use super::runtime::signal::Slot;
use crate::report::{Report, ReportKind};
use collect::{Collector, Key, Witness};
use commands::Contested;
pub(crate) use defect::Defect;
use device::{DeviceShadow, Touch};
use order::{Clocks, Conflict, Trace};
use simd::SimdFunction;
use std::ptr;
use steps::Steps;
use threadgroup::{Piece, ThreadgroupShadow, Unwritten};
pub(crate) use watch::Watch;

/// `mem_flags::mem_device`.
const MEM_DEVICE: u32 = 1;
/// `mem_flags::mem_threadgroup`.
const MEM_THREADGROUP: u32 = 2;
/// No buffer, in the table of last buffers.
const NO_BUFFER: u8 = u8::MAX;

/// What is to happen after an access was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Perform it.
    Go,
    /// It would do harm: abandon the threadgroup.
    Stop,
}

/// A launch under check, shared by its workers.
#[derive(Debug)]
pub(crate) struct LaunchCheck<'a> {
    image: &'a Image,
    bindings: &'a [Binding; BUFFERS],
    geometry: Geometry,
    step_limit: u64,
    /// Memory that other commands touch too, and the number of this one among them.
    contested: Option<(&'a Contested<'a>, usize)>,
    shadow: DeviceShadow,
    collector: Collector,
}

impl<'a> LaunchCheck<'a> {
    pub(crate) fn new(launch: &'a Launch<'a>, geometry: Geometry) -> Self {
        Self {
            image: launch.image,
            bindings: &launch.buffers,
            geometry,
            step_limit: launch.step_limit,
            contested: launch.contested,
            shadow: DeviceShadow::new(&launch.buffers),
            collector: Collector::default(),
        }
    }

    /// What was found.
    pub(crate) fn into_reports(self) -> Vec<Report> {
        self.collector.into_reports(self.image)
    }
}

/// What one worker's checker knows about its threadgroup.
#[derive(Debug)]
pub(crate) struct Checker {
    launch: *const LaunchCheck<'static>,
    slot: *const Slot,
    /// The worker's threadgroup memory: address and length.
    memory: (usize, usize),
    /// The worker's context block.
    context: (usize, usize),
    group: *const SmGroup,
    number: u64,
    lane: u32,
    /// The lane's last access.
    location: u32,
    threadgroup: ThreadgroupShadow,
    device: Clocks,
    /// For each place, the buffer that it last touched rightly: names the buffer of an access that hits nothing.
    last_buffer: Vec<u8>,
    /// The threadgroup was abandoned; what follows from that is not reported.
    silenced: bool,
    /// Threads of the threadgroup waited at different barriers; that they then reach later barriers at different times
    /// follows from it.
    parted: bool,
    function: SimdFunction,
    steps: Steps,
}

// SAFETY: the pointers are only used between `begin_launch` and `end_launch`, by the thread that called them.
unsafe impl Send for Checker {}

impl Default for Checker {
    fn default() -> Self {
        Self {
            launch: ptr::null(),
            slot: ptr::null(),
            memory: (0, 0),
            context: (0, 0),
            group: ptr::null(),
            number: 0,
            lane: 0,
            location: 0,
            threadgroup: ThreadgroupShadow::default(),
            device: Clocks::new(),
            last_buffer: Vec::new(),
            silenced: false,
            parted: false,
            function: SimdFunction::default(),
            steps: Steps::default(),
        }
    }
}

/// An announced access.
#[derive(Debug, Clone, Copy)]
struct Announced {
    address: usize,
    size: usize,
    write: bool,
    atomic: bool,
    /// What the address of its type is a multiple of.
    align: usize,
    location: u32,
}

impl Announced {
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
        slot: &Slot,
        layout: &ThreadgroupLayout,
        (memory, context): (usize, usize),
    ) {
        let plan = launch.image.plan();
        self.launch = ptr::from_ref(launch).cast();
        self.slot = slot;
        self.memory = (memory, layout.total);
        self.context = (context, plan.context_bytes);
        // SAFETY: the worker's context has room for the steps behind the states, and is this worker's alone.
        self.steps = unsafe { Steps::new(context, launch.step_limit) };
        self.threadgroup.begin_launch(layout, &plan.variables);
        self.last_buffer.clear();
        self.last_buffer.resize(plan.locations.len(), NO_BUFFER);
    }

    pub(crate) fn end_launch(&mut self) {
        self.launch = ptr::null();
        self.slot = ptr::null();
        self.group = ptr::null();
    }

    fn begin_group(&mut self, number: u64, group: &SmGroup) {
        self.group = group;
        self.number = number;
        self.lane = 0;
        self.location = 0;
        self.silenced = false;
        self.parted = false;
        self.steps.begin_group();
        self.threadgroup.begin_group();
        self.device = Clocks::new();
    }

    fn end_group(&mut self) {
        if !self.silenced {
            self.report_unwritten();
        }
    }

    /// The running thread's position in the grid, and the place of its last access; of a thread that `runs` on and on,
    /// the place of its last loop.
    fn whereabouts(&self, runs: bool) -> Whereabouts {
        let launch = self.launch();
        let mut location = self.location;
        if runs && let Some(last) = self.steps.last_loop() {
            location = last;
        }
        let place = launch.image.place(location);
        Whereabouts {
            position: position(&launch.geometry, self.number, self.lane),
            near: launch.image.location(place).cloned(),
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

    /// Looks at an access before it is performed.
    pub(crate) fn access(
        &mut self,
        address: usize,
        size: usize,
        (write, atomic): (bool, bool),
        align: usize,
        location: u32,
    ) -> Verdict {
        if self.launch.is_null() || self.group.is_null() || size == 0 {
            return Verdict::Go;
        }
        self.location = location;
        let access = Announced {
            address,
            size,
            write,
            atomic,
            align,
            location,
        };
        let Some(end) = address.checked_add(size) else {
            return self.wild(&access);
        };
        if let Some(origin) = self.origin(location)
            && let Some(verdict) = self.access_of(&access, end, origin)
        {
            return verdict;
        }
        if let Some(buffer) = self.find_buffer(&access, end) {
            self.device_access(&access, buffer);
            return Verdict::Go;
        }
        let inside = |(start, length): (usize, usize)| address >= start && end <= start + length;
        if inside(self.memory) {
            return self.threadgroup_access(&access);
        }
        // SAFETY: set by `begin_launch`, and the slot belongs to this thread.
        let (low, high) = unsafe { (*self.slot).kernel_stack() };
        if inside(self.context) || (address >= low && end <= high) {
            return Verdict::Go;
        }
        let group = (self.group as usize, size_of::<SmGroup>());
        let constant = inside(group) || self.launch().image.contains(address);
        if constant && !write {
            return Verdict::Go;
        }
        if constant {
            self.report(ReportKind::Bounds, access.location, None, || {
                format!("{} at a constant of the program", access.describe())
            });
            return self.stop();
        }
        match ZeroPages::get().owner_of(address) {
            Some(unbound) => self.unbound(&access, unbound),
            None => self.wild(&access),
        }
    }

    /// The buffer that an access lies in: what its place touched last, or any.
    fn find_buffer(&mut self, access: &Announced, end: usize) -> Option<usize> {
        let bindings = self.launch().bindings;
        let holds = |index: usize| {
            let binding = &bindings[index];
            access.address >= binding.start() && end <= binding.end() && binding.is_bound()
        };
        let last = self.last_buffer.get_mut(access.location as usize);
        if let Some(&mut last) = last
            && last != NO_BUFFER
            && holds(usize::from(last))
        {
            return Some(usize::from(last));
        }
        // Of two bindings of the same memory, the writable one is meant by a write.
        let found = (0..BUFFERS)
            .filter(|&index| holds(index))
            .max_by_key(|&index| {
                (
                    !access.write || bindings[index].access() == Access::Write,
                    BUFFERS - index,
                )
            })?;
        if let Some(last) = self.last_buffer.get_mut(access.location as usize) {
            *last = found as u8;
        }
        Some(found)
    }

    fn device_access(&mut self, access: &Announced, index: usize) {
        let launch = self.launch();
        let binding = &launch.bindings[index];
        let offset = access.address - binding.start();
        if access.write && binding.access() == Access::Read {
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
        let place = launch.image.place(access.location);
        if let Some((contested, command)) = launch.contested {
            let touch = commands::Touch {
                address: access.address,
                size: access.size,
                write: access.write,
                atomic: access.atomic,
                place,
            };
            if let Some(conflict) = contested.touch(command, touch) {
                self.report(ReportKind::Race, access.location, Some(index), || {
                    format!(
                        "{} at offset {offset} of {} conflicts with {conflict}",
                        access.describe(),
                        buffer_name(launch.image, index)
                    )
                });
            }
        }
        let trace = Trace::new(
            self.number as u32,
            self.lane,
            place,
            access.atomic,
            self.device.now(self.lane),
        );
        let touch = Touch {
            address: access.address,
            size: access.size,
            write: access.write,
            trace,
        };
        if let Some(conflict) = launch.shadow.touch(touch, &self.device) {
            let target = || format!("offset {offset} of {}", buffer_name(launch.image, index));
            self.report_race(access, Some(index), conflict, target);
        }
    }

    fn threadgroup_access(&mut self, access: &Announced) -> Verdict {
        let offset = access.address - self.memory.0;
        let Some((place, inside)) = self.threadgroup.find(offset, access.size) else {
            return self.wild(access);
        };
        let image = self.launch().image;
        if !inside {
            // Between pieces there is nothing to harm, so the thread may go on.
            self.outside_piece(access, place);
            return Verdict::Go;
        }
        let trace = Trace::new(
            0,
            self.lane,
            image.place(access.location),
            access.atomic,
            self.threadgroup.now(self.lane),
        );
        let conflict = self
            .threadgroup
            .touch(offset, access.size, access.write, trace);
        if let Some(conflict) = conflict {
            let target = || {
                let piece = piece_name(image, place.piece);
                format!("offset {} of {piece}", offset - place.start)
            };
            self.report_race(access, None, conflict, target);
        }
        if !access.address.is_multiple_of(access.align) {
            let target = || {
                let piece = piece_name(image, place.piece);
                format!("offset {} of {piece}", offset - place.start)
            };
            self.report_misaligned(access, None, target);
        }
        Verdict::Go
    }

    /// An access through a binding that is not there. Reads of buffers give zeroes: the optimiser may load from a
    /// parameter that a function constant has switched off.
    fn unbound(&mut self, access: &Announced, unbound: Unbound) -> Verdict {
        let image = self.launch().image;
        match unbound {
            Unbound::Buffer(_) if !access.write => return Verdict::Go,
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
                        piece_name(image, Piece::Argument(index))
                    )
                });
            }
        }
        self.stop()
    }

    /// An access to memory that is not the launch's. It was probably meant for the buffer that the same place touched
    /// before.
    fn wild(&mut self, access: &Announced) -> Verdict {
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
        self.stop()
    }

    fn outside_buffer(&self, access: &Announced, index: usize) {
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

    fn stop(&mut self) -> Verdict {
        self.silenced = true;
        Verdict::Stop
    }

    fn report_race(
        &self,
        access: &Announced,
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
            let place = match launch.image.location(earlier.place()) {
                Some(location) => format!(" at line {}", location.line),
                None => String::new(),
            };
            let why = if same_group {
                "no barrier orders them".to_owned()
            } else {
                let there = launch.geometry.position(number);
                format!("it is in threadgroup {there:?}, and threadgroups are not ordered")
            };
            format!(
                "{} at {} conflicts with {} by thread {thread:?}{place}: {why}",
                access.describe(),
                target(),
                verb_of(conflict)
            )
        });
    }

    fn report_unwritten(&mut self) {
        let image = self.launch().image;
        for Unwritten {
            offset,
            size,
            reader,
        } in self.threadgroup.take_unwritten()
        {
            let Some((place, _)) = self.threadgroup.find(offset, size) else {
                continue;
            };
            let key = Key {
                kind: ReportKind::Uninitialised,
                place: reader.place(),
                buffer: None,
            };
            self.add(key, reader.lane(), || {
                format!(
                    "read of {} at offset {} of {}, where nothing was written",
                    bytes(size),
                    offset - place.start,
                    piece_name(image, place.piece)
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
        let key = Key {
            kind,
            place: self.launch().image.place(location),
            buffer: buffer.map(|index| index as u32),
        };
        self.add(key, self.lane, message);
    }

    fn add(&self, key: Key, lane: u32, message: impl FnOnce() -> String) {
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
        match image.location(image.place(site.location)) {
            Some(location) => format!("line {}", location.line),
            None => "another place".into(),
        }
    }

    fn location_of_site(&self, site: u32) -> u32 {
        self.launch().image.plan().sites[site as usize - 1].location
    }

    fn synchronised(&mut self, simd_group: Option<u32>, flags: u32) {
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
                    self.report_unwritten();
                    self.threadgroup.clocks().barrier();
                }
            }
        }
    }

    /// Whether two sites are copies of one call that the optimiser made.
    fn same_call(&self, site: u32, other: u32) -> bool {
        let location = self.location_of_site(site);
        location != 0 && location == self.location_of_site(other)
    }

    fn diverged(&mut self, divergence: Divergence) {
        match divergence {
            Divergence::Barrier { site, other, .. } | Divergence::Simd { site, other, .. }
                if self.same_call(site, other) => {}
            Divergence::Barrier { site, lane, other } => {
                if std::mem::replace(&mut self.parted, true) {
                    return;
                }
                self.lane = lane;
                let location = self.location_of_site(other);
                self.report(ReportKind::DivergentBarrier, location, None, || {
                    format!(
                        "threads of the threadgroup wait at different barriers: this one and that of {}",
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
                let elsewhere = match sites[other as usize - 1].kind {
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
        if self.parted {
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

/// Position in the grid of a lane of a threadgroup.
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

fn piece_name(image: &Image, piece: Piece) -> String {
    match piece {
        Piece::Variable(id) => match image.variable_name(id) {
            Some(name) => format!("threadgroup variable `{name}`"),
            None => "a threadgroup variable".into(),
        },
        Piece::Argument(index) => match image.threadgroup_argument_name(index) {
            Some(name) => format!("threadgroup argument {index} (`{name}`)"),
            None => format!("threadgroup argument {index}"),
        },
    }
}
