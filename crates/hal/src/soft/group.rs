//! Executes one threadgroup, region by region.
//!
//! Lanes run until they wait at a synchronisation site or finish. Within a SIMD-group, lanes that wait at the same
//! SIMD-level site proceed together, the first site in program order first, so that lanes that diverged at a branch
//! reconverge after it. A threadgroup barrier opens when every live lane of the group waits at one.
//!
//! A kernel may be abandoned at any instruction (see the runtime), so nothing here allocates, locks or owns.

#![expect(
    unsafe_code,
    reason = "calls compiled kernels and reads the context block that they write"
)]

use std::ffi::c_void;

use super::plan::{Column, FINISHED, KernelPlan, MAX_LANES, RECONVERGE, SIMD_WIDTH, SiteKind};

/// Threadgroup descriptor; compiled code reads it at these offsets.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct SmGroup {
    /// Buffer bindings with their offsets applied.
    pub buf: [*mut c_void; 31],
    /// Threadgroup memory whose size the host sets.
    pub tgmem: [*mut c_void; 31],
    /// Memory of the threadgroup variables declared inside the kernel.
    pub arena: *mut c_void,
    /// Threads in the grid.
    pub grid: [u32; 3],
    /// Threads per threadgroup as dispatched.
    pub tgs: [u32; 3],
    /// Threadgroups in the grid.
    pub ngroups: [u32; 3],
    /// Position of this threadgroup.
    pub tgid: [u32; 3],
    /// Threads in this threadgroup, fewer at the edges of the grid.
    pub dims: [u32; 3],
    /// Product of `dims`.
    pub nthreads: u32,
}

impl Default for SmGroup {
    fn default() -> Self {
        Self {
            buf: [std::ptr::null_mut(); 31],
            tgmem: [std::ptr::null_mut(); 31],
            arena: std::ptr::null_mut(),
            grid: [1; 3],
            tgs: [1; 3],
            ngroups: [1; 3],
            tgid: [0; 3],
            dims: [1; 3],
            nthreads: 1,
        }
    }
}

/// Runs lanes `base + x` for `x` in `x0..x1`: `(group, context, base, x0, x1, y, z)`.
pub type RegionFn = unsafe extern "C" fn(*const SmGroup, *mut u8, u32, u32, u32, u32, u32);
/// Performs a collective of one SIMD-group: `(operand columns, result column, active lanes)`.
pub type OpFn = unsafe extern "C" fn(*const *const c_void, *mut c_void, u32);

/// The code of a loaded kernel.
#[derive(Debug, Clone, Copy)]
pub struct KernelCode<'a> {
    /// The image's `sm_regions`.
    pub regions: &'a [RegionFn],
    /// The image's `sm_ops`.
    pub ops: &'a [OpFn],
    /// The compiler's description of them.
    pub plan: &'a KernelPlan,
}

/// Lane scheduling strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// As many lanes per call as possible.
    Fast,
    /// One lane at a time, in order.
    Ordered,
    /// One lane at a time, in a random order drawn from the seed.
    Shuffled(u64),
}

/// Lanes that should have stayed convergent and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// Live lanes of a SIMD-group wait elsewhere while `mask` performs `site`.
    Simd {
        /// Index of the SIMD-group.
        simdgroup: u32,
        /// The site that is performed.
        site: u32,
        /// Lanes that participate.
        mask: u32,
        /// The site of the lowest other live lane.
        other: u32,
        /// Live lanes that wait elsewhere.
        others: u32,
    },
    /// Lanes of the group wait at two different barriers.
    Barrier {
        /// The site of the lowest live lane.
        site: u32,
        /// A lane that waits elsewhere.
        lane: u32,
        /// Its site.
        other: u32,
    },
}

/// Observes the execution of a threadgroup. [`Strategy::Fast`] does not report lanes, since many run in one call.
pub trait Observer {
    /// `lane` is about to run by itself.
    fn lane(&mut self, lane: u32) {
        let _ = lane;
    }
    /// The lanes in `mask` of a SIMD-group are about to perform `site` (a collective or a SIMD-group barrier).
    fn collective(&mut self, simdgroup: u32, site: u32, mask: u32) {
        let _ = (simdgroup, site, mask);
    }
    /// All live lanes wait at threadgroup barriers, the lowest at `site`; they are about to be released.
    fn barrier(&mut self, site: u32) {
        let _ = site;
    }
    /// Lanes wait at different sites.
    fn diverged(&mut self, divergence: Divergence) {
        let _ = divergence;
    }
    /// The barrier `site` is passed although `finished` lanes have returned, `lane` the lowest of them.
    fn early_return(&mut self, site: u32, lane: u32, finished: u32) {
        let _ = (site, lane, finished);
    }
    /// Polled between regions; true aborts the threadgroup.
    fn stop(&mut self) -> bool {
        false
    }
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// Runs one threadgroup to its end.
///
/// # Safety
///
/// - `kernel` has the tables of an image that was compiled together with its plan and stays loaded.
/// - `group` describes a threadgroup of 1 to 1,024 threads (`nthreads` is the product of `dims`), its pointers are
///   valid for the kernel, and nothing writes to `group` meanwhile.
/// - `context` points to at least `plan.context_bytes` initialised bytes, aligned to 64, that nothing else uses
///   meanwhile.
pub unsafe fn run<O: Observer>(
    kernel: KernelCode<'_>,
    group: &SmGroup,
    context: *mut u8,
    strategy: Strategy,
    observer: &mut O,
) {
    assert!(
        group.nthreads >= 1
            && group.nthreads as usize <= MAX_LANES
            && group.dims.iter().product::<u32>() == group.nthreads,
        "a threadgroup has 1 to 1024 threads"
    );
    let mut run = Scheduler {
        kernel,
        group,
        context,
        observer,
        random: Random(0),
    };
    match strategy {
        Strategy::Fast => run.run_batched(),
        Strategy::Ordered => run.run_lane_by_lane(LaneOrder::Ordered),
        Strategy::Shuffled(seed) => {
            run.random = Random(seed);
            run.run_lane_by_lane(LaneOrder::Shuffled);
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for index in (1..list.len()).rev() {
            list.swap(index, self.below(index + 1));
        }
    }
}

/// Order in which the lanes of a region are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneOrder {
    /// Many lanes per call.
    Batched,
    /// One lane per call, in order.
    Ordered,
    /// One lane per call, in a random order.
    Shuffled,
}

struct Scheduler<'a, O> {
    kernel: KernelCode<'a>,
    group: &'a SmGroup,
    context: *mut u8,
    observer: &'a mut O,
    random: Random,
}

impl<O: Observer> Scheduler<'_, O> {
    fn lanes(&self) -> usize {
        self.group.nthreads as usize
    }

    fn simdgroups(&self) -> usize {
        self.lanes().div_ceil(SIMD_WIDTH)
    }

    /// Returns the mask of the lanes that exist in SIMD-group `simdgroup`.
    fn lane_mask(&self, simdgroup: usize) -> u32 {
        let lanes = (self.lanes() - simdgroup * SIMD_WIDTH).min(SIMD_WIDTH);
        if lanes == SIMD_WIDTH {
            u32::MAX
        } else {
            (1 << lanes) - 1
        }
    }

    fn states(&self) -> &[u32] {
        let column = self.context.cast_const().cast::<c_void>().cast::<u32>();
        // SAFETY: the caller of `run` promises an initialised context with at least the state column, aligned to
        // 64. Region 0 writes the state of a lane before it is read (`run_batched` and `run_lane_by_lane` start with
        // it), and no region runs while the slice is alive, since they are called through `&mut self`.
        unsafe { std::slice::from_raw_parts(column, self.lanes()) }
    }

    /// Runs one region for `x0..x1` of the row that starts at lane `base`.
    fn call(&mut self, region: u32, base: usize, x0: usize, x1: usize) {
        let row = (base / self.group.dims[0] as usize) as u32;
        let (y, z) = (row % self.group.dims[1], row / self.group.dims[1]);
        let function = self.kernel.regions[region as usize];
        // SAFETY: the caller of `run` promises that the table belongs to the plan and that the group and the
        // context are valid for the region; the lanes are in the group.
        unsafe {
            function(
                self.group,
                self.context,
                base as u32,
                x0 as u32,
                x1 as u32,
                y,
                z,
            )
        }
    }

    /// Runs one region for the lanes `from..to`, row by row.
    fn call_range(&mut self, region: u32, from: usize, to: usize) {
        let width = self.group.dims[0] as usize;
        let mut at = from;
        while at < to {
            let base = at - at % width;
            let end = (base + width).min(to);
            self.call(region, base, at - base, end - base);
            at = end;
        }
    }

    fn call_lane(&mut self, region: u32, lane: usize) {
        self.observer.lane(lane as u32);
        self.call_range(region, lane, lane + 1);
    }

    /// Runs one region for the lanes of a SIMD-group in `mask`.
    fn call_mask(&mut self, region: u32, simdgroup: usize, mask: u32, order: LaneOrder) {
        let first = simdgroup * SIMD_WIDTH;
        if order == LaneOrder::Batched {
            let mut rest = u64::from(mask);
            let mut at = 0;
            while rest != 0 {
                let skip = rest.trailing_zeros() as usize;
                rest >>= skip;
                let length = rest.trailing_ones() as usize;
                rest >>= length;
                self.call_range(region, first + at + skip, first + at + skip + length);
                at += skip + length;
            }
            return;
        }
        let mut bits = [0usize; SIMD_WIDTH];
        let mut count = 0;
        for bit in (0..SIMD_WIDTH).filter(|bit| mask >> bit & 1 == 1) {
            bits[count] = bit;
            count += 1;
        }
        if order == LaneOrder::Shuffled {
            self.random.shuffle(&mut bits[..count]);
        }
        for bit in &bits[..count] {
            self.call_lane(region, first + bit);
        }
    }

    /// Performs the SIMD-level site `site` for the lanes in `mask`.
    fn perform(&mut self, simdgroup: usize, site: u32, mask: u32) {
        let plan = self.kernel.plan;
        let info = &plan.sites[site as usize - 1];
        if info.flags == RECONVERGE {
            return;
        }
        self.observer.collective(simdgroup as u32, site, mask);
        if info.kind != SiteKind::Collective {
            return;
        }
        let at = |column: &Column| {
            // SAFETY: the plan's columns lie in the context with 1,024 elements each.
            unsafe {
                self.context
                    .add(column.offset + simdgroup * SIMD_WIDTH * column.size)
            }
            .cast::<c_void>()
        };
        let result = info.result.as_ref().map_or(std::ptr::null_mut(), at);
        let op = self.kernel.ops[info.op as usize];
        const INLINE_OPERANDS: usize = 8;
        if info.args.len() <= INLINE_OPERANDS {
            let mut args = [std::ptr::null::<c_void>(); INLINE_OPERANDS];
            for (slot, column) in args.iter_mut().zip(&info.args) {
                *slot = at(column).cast_const();
            }
            // SAFETY: the columns contain the operands of all lanes in `mask`, which regions stored when they exited
            // to this site; the operation writes the results of those lanes only.
            unsafe { op(args.as_ptr(), result, mask) }
        } else {
            const MAX_OPERANDS: usize = 256;
            let mut args = [std::ptr::null::<c_void>(); MAX_OPERANDS];
            for (slot, column) in args[..info.args.len()].iter_mut().zip(&info.args) {
                *slot = at(column).cast_const();
            }
            // SAFETY: as above.
            unsafe { op(args.as_ptr(), result, mask) }
        }
    }

    fn is_barrier(&self, state: u32) -> bool {
        state != FINISHED
            && self.kernel.plan.sites[state as usize - 1].kind == SiteKind::Threadgroup
    }

    /// Returns whether a site is in the source, rather than inserted for reconvergence.
    fn is_in_source(&self, site: u32) -> bool {
        self.kernel.plan.sites[site as usize - 1].flags != RECONVERGE
    }

    /// Returns the state of all lanes after `region` ran for all of them, if they agree.
    fn common_state(&self, region: u32) -> Option<u32> {
        if let Some([only]) = self
            .kernel
            .plan
            .exits
            .get(region as usize)
            .map(Vec::as_slice)
        {
            return Some(*only);
        }
        let states = self.states();
        let first = states[0];
        states.iter().all(|state| *state == first).then_some(first)
    }

    fn run_batched(&mut self) {
        let lanes = self.lanes();
        let mut region = 0;
        self.call_range(region, 0, lanes);
        loop {
            if self.observer.stop() {
                return;
            }
            match self.common_state(region) {
                Some(FINISHED) => return,
                Some(state) => {
                    // Regions with a single exit do not write the state column.
                    if self.is_barrier(state) {
                        self.observer.barrier(state);
                    } else {
                        for simdgroup in 0..self.simdgroups() {
                            self.perform(simdgroup, state, self.lane_mask(simdgroup));
                        }
                    }
                    region = state;
                    self.call_range(region, 0, lanes);
                }
                None => {
                    if !self.run_to_barriers(LaneOrder::Batched)
                        || !self.open_barrier(LaneOrder::Batched)
                    {
                        return;
                    }
                    // The lanes have run different regions: read the states themselves.
                    region = u32::MAX;
                }
            }
        }
    }

    fn run_lane_by_lane(&mut self, order: LaneOrder) {
        if order == LaneOrder::Shuffled {
            let lanes = self.shuffled_lanes();
            for &lane in &lanes[..self.lanes()] {
                self.call_lane(0, usize::from(lane));
            }
        } else {
            for simdgroup in 0..self.simdgroups() {
                self.call_mask(0, simdgroup, self.lane_mask(simdgroup), order);
                self.run_simdgroup_to_barrier(simdgroup);
            }
        }
        while self.run_to_barriers(order) && self.open_barrier(order) {}
    }

    /// Runs a SIMD-group until all its live lanes wait at barriers. SIMD-groups run one after the other: a lock that a
    /// lane of one owns must not block another forever.
    fn run_simdgroup_to_barrier(&mut self, simdgroup: usize) {
        while !self.observer.stop() && self.perform_next_site(simdgroup, LaneOrder::Ordered) {}
    }

    /// Returns the lanes in a random order; only the first `lanes()` entries are valid.
    fn shuffled_lanes(&mut self) -> [u16; MAX_LANES] {
        let mut order: [u16; MAX_LANES] = std::array::from_fn(|lane| lane as u16);
        let lanes = self.lanes();
        self.random.shuffle(&mut order[..lanes]);
        order
    }

    /// Performs SIMD-level sites until every live lane waits at a barrier; false to abort.
    fn run_to_barriers(&mut self, order: LaneOrder) -> bool {
        let mut open: [u8; MAX_LANES / SIMD_WIDTH] = std::array::from_fn(|index| index as u8);
        let mut open_count = self.simdgroups();
        while open_count > 0 {
            if self.observer.stop() {
                return false;
            }
            let pick = if order == LaneOrder::Shuffled {
                self.random.below(open_count)
            } else {
                0
            };
            if !self.perform_next_site(usize::from(open[pick]), order) {
                open.copy_within(pick + 1..open_count, pick);
                open_count -= 1;
            }
        }
        true
    }

    /// Performs one SIMD-level site of a SIMD-group; false if no lane waits at one.
    fn perform_next_site(&mut self, simdgroup: usize, order: LaneOrder) -> bool {
        let first = simdgroup * SIMD_WIDTH;
        let states = &self.states()[first..(first + SIMD_WIDTH).min(self.lanes())];
        let waiting = states
            .iter()
            .filter(|state| **state != FINISHED && !self.is_barrier(**state));
        let Some(&site) = waiting.min() else {
            return false;
        };
        let (mut mask, mut others, mut other) = (0u32, 0u32, None);
        for (bit, &state) in states.iter().enumerate() {
            if state == site {
                mask |= 1 << bit;
            } else if state != FINISHED && self.is_in_source(state) {
                others |= 1 << bit;
                other = other.or(Some(state));
            }
        }
        if let Some(other) = other.filter(|_| self.is_in_source(site)) {
            let simdgroup = simdgroup as u32;
            self.observer.diverged(Divergence::Simd {
                simdgroup,
                site,
                mask,
                other,
                others,
            });
        }
        self.perform(simdgroup, site, mask);
        self.call_mask(site, simdgroup, mask, order);
        true
    }

    /// Opens the barrier at which all live lanes wait; false if no lane is live.
    fn open_barrier(&mut self, order: LaneOrder) -> bool {
        let mut states = [FINISHED; MAX_LANES];
        states[..self.lanes()].copy_from_slice(self.states());
        let states = &states[..self.lanes()];
        let Some(&site) = states.iter().find(|state| **state != FINISHED) else {
            return false;
        };
        if let Some(lane) = states
            .iter()
            .position(|state| *state != FINISHED && *state != site)
        {
            self.observer.diverged(Divergence::Barrier {
                site,
                lane: lane as u32,
                other: states[lane],
            });
        }
        if let Some(lane) = states.iter().position(|state| *state == FINISHED) {
            let finished = states.iter().filter(|state| **state == FINISHED).count();
            self.observer
                .early_return(site, lane as u32, finished as u32);
        }
        self.observer.barrier(site);
        if order == LaneOrder::Ordered {
            for (simdgroup, states) in states.chunks(SIMD_WIDTH).enumerate() {
                for (lane, state) in states.iter().enumerate() {
                    if *state != FINISHED {
                        self.call_lane(*state, simdgroup * SIMD_WIDTH + lane);
                    }
                }
                self.run_simdgroup_to_barrier(simdgroup);
            }
            return true;
        }
        if order == LaneOrder::Shuffled {
            let lanes = self.shuffled_lanes();
            for lane in lanes[..states.len()].iter().copied().map(usize::from) {
                if states[lane] != FINISHED {
                    self.call_lane(states[lane], lane);
                }
            }
            return true;
        }
        let mut at = 0;
        while at < states.len() {
            let state = states[at];
            let length = states[at..]
                .iter()
                .take_while(|other| **other == state)
                .count();
            if state != FINISHED {
                self.call_range(state, at, at + length);
            }
            at += length;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn group_layout_is_the_one_kernels_are_compiled_against() {
        assert_eq!(offset_of!(SmGroup, tgmem), 248);
        assert_eq!(offset_of!(SmGroup, arena), 496);
        assert_eq!(offset_of!(SmGroup, grid), 504);
        assert_eq!(offset_of!(SmGroup, dims), 552);
        assert_eq!(offset_of!(SmGroup, nthreads), 564);
        assert_eq!(size_of::<SmGroup>(), 568);
    }
}
