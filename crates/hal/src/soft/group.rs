//! Runs one threadgroup, region by region.
#![expect(unsafe_code, reason = "calls compiled kernel code")]

use super::plan::{FINISHED, KernelPlan, SIMD_WIDTH, SiteKind};
use std::ffi::c_void;

/// What a kernel sees of its threadgroup; the layout is shared with the shim header.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct SmGroup {
    /// Buffer bindings with their offset applied.
    pub buf: [*mut c_void; 31],
    /// Host-sized threadgroup memory.
    pub tgmem: [*mut c_void; 31],
    /// Threadgroup variables declared in the kernel.
    pub arena: *mut c_void,
    /// Threads in the grid.
    pub grid: [u32; 3],
    /// Threads in a full threadgroup.
    pub tgs: [u32; 3],
    /// Threadgroups in the grid.
    pub ngroups: [u32; 3],
    /// Position of this threadgroup.
    pub tgid: [u32; 3],
    /// Threads in this threadgroup.
    pub dims: [u32; 3],
    /// Product of `dims`.
    pub nthreads: u32,
}

/// A region of a kernel.
pub type RegionFn = unsafe extern "C" fn(*const SmGroup, *mut u8, u32, u32, u32, u32, u32);
/// A SIMD-group operation.
pub type OpFn = unsafe extern "C" fn(*const *const c_void, *mut c_void, u32);

/// A kernel, ready to run.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    /// Region functions.
    pub regions: &'a [RegionFn],
    /// Collective operations.
    pub ops: &'a [OpFn],
    /// The plan they belong to.
    pub plan: &'a KernelPlan,
}

/// In which order lanes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Whole rows.
    Fast,
    /// One lane at a time, ascending.
    Single,
    /// One lane at a time, in random order.
    Shuffled(u64),
}

/// Told what happens in the group.
pub trait Observer {
    /// `lane` runs next.
    fn lane(&mut self, lane: u32);
    /// A SIMD-group passed `site`.
    fn collective(&mut self, simd_group: u32, site: u32, mask: u32);
    /// The threadgroup passed a barrier at `site`.
    fn barrier(&mut self, site: u32);
    /// Lanes wait at different sites.
    fn diverged(&mut self, lane: u32, site: u32, other: u32);
    /// A barrier at `site` with `finished` having returned.
    fn early_return(&mut self, site: u32, finished: u32);
}

/// Runs a group.
///
/// # Safety
/// The kernel's functions must match its plan, `ctx` must have `plan.context_bytes`.
pub unsafe fn run<O: Observer>(
    kernel: &Kernel<'_>,
    group: &SmGroup,
    ctx: *mut u8,
    _strategy: Strategy,
    observer: &mut O,
) {
    let n = group.nthreads;
    let states = ctx.cast::<u32>();
    for lane in 0..n {
        // SAFETY: the state column has room for every lane.
        unsafe { states.add(lane as usize).write(0) };
    }
    loop {
        let mut progress = false;
        for lane in 0..n {
            // SAFETY: as above.
            let state = unsafe { states.add(lane as usize).read() };
            if state == FINISHED {
                continue;
            }
            observer.lane(lane);
            let x = lane % group.dims[0];
            let y = lane / group.dims[0] % group.dims[1];
            let z = lane / group.dims[0] / group.dims[1];
            // SAFETY: the caller's promise.
            unsafe {
                kernel.regions[state as usize](group, ctx, lane - x, x, x + 1, y, z);
            }
            progress = true;
        }
        if !progress {
            return;
        }
        let mut site = 0;
        let mut finished = None;
        for lane in 0..n {
            // SAFETY: as above.
            let state = unsafe { states.add(lane as usize).read() };
            if state == FINISHED {
                finished = Some(lane);
            } else if site == 0 {
                site = state;
            } else if site != state {
                observer.diverged(lane, state, site);
            }
        }
        if site == 0 {
            return;
        }
        if let Some(finished) = finished {
            observer.early_return(site, finished);
        }
        if kernel.plan.sites[site as usize - 1].kind == SiteKind::Threadgroup {
            observer.barrier(site);
        } else {
            for sg in 0..n.div_ceil(SIMD_WIDTH as u32) {
                observer.collective(sg, site, u32::MAX);
            }
        }
    }
}
