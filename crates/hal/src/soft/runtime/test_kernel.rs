//! Kernels written in Rust, to test the runtime without a compiler.
#![expect(unsafe_code, reason = "kernels are raw code on raw memory")]

use super::{BindingAccess, BufferBinding, Image};
use crate::soft::group::{RegionFn, SmGroup};
use crate::soft::plan::{KernelPlan, Site, SiteKind};

/// A lane of a region call, for kernels written as a function of one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) group: *const SmGroup,
    /// Position in the grid.
    pub(crate) at: [u32; 3],
    /// Position in the threadgroup.
    pub(crate) local: [u32; 3],
    pub(crate) index: u32,
}

/// The lanes of one region call: `base + x` for `x` in `x0..x1`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneRow {
    pub(crate) base: u32,
    pub(crate) x0: u32,
    pub(crate) x1: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

impl Lane {
    pub(crate) fn buffer<T>(&self, index: usize) -> *mut T {
        // SAFETY: the group outlives its regions.
        unsafe { (*self.group).buf[index].cast() }
    }
}

/// Runs `body`, which returns the lane's next state, for each lane of a region call.
///
/// # Safety
/// Only for region functions, with their own arguments.
pub(crate) unsafe fn for_each_lane(
    group: *const SmGroup,
    ctx: *mut u8,
    row: LaneRow,
    body: impl Fn(Lane) -> u32,
) {
    let LaneRow { base, x0, x1, y, z } = row;
    for x in x0..x1 {
        // SAFETY: the executor passes a live group and a context with a state column.
        unsafe {
            let g = &*group;
            let lane = Lane {
                group,
                at: [
                    g.tgid[0] * g.tgs[0] + x,
                    g.tgid[1] * g.tgs[1] + y,
                    g.tgid[2] * g.tgs[2] + z,
                ],
                local: [x, y, z],
                index: base + x,
            };
            let state = body(lane);
            ctx.add((base + x) as usize * 4)
                .cast::<[u8; 4]>()
                .write(state.to_ne_bytes());
        }
    }
}

/// Defines a region function from a closure over one lane.
macro_rules! region {
    ($name:ident, $body:expr) => {
        unsafe extern "C" fn $name(
            group: *const $crate::soft::group::SmGroup,
            ctx: *mut u8,
            base: u32,
            x0: u32,
            x1: u32,
            y: u32,
            z: u32,
        ) {
            let body = $body;
            // SAFETY: called by the executor.
            unsafe {
                let row = $crate::soft::runtime::test_kernel::LaneRow { base, x0, x1, y, z };
                $crate::soft::runtime::test_kernel::for_each_lane(group, ctx, row, body)
            }
        }
    };
}

pub(crate) use region;

/// Builds an image of region functions; the sites between them are threadgroup barriers over threadgroup memory.
pub(crate) fn image(name: &str, regions: &[RegionFn]) -> Image {
    let plan = KernelPlan {
        regions: regions.len() as u32,
        sites: (1..regions.len())
            .map(|_| Site {
                kind: SiteKind::Threadgroup,
                flags: 2,
                op: 0,
                args: vec![],
                result: None,
                location: 0,
            })
            .collect(),
        context_bytes: 4096,
        ..KernelPlan::default()
    };
    // SAFETY: the regions follow the protocol and are part of this program.
    unsafe { Image::new(name, regions.to_vec(), vec![], plan) }
}

/// Binds a slice for writing.
pub(crate) fn bind<T>(data: &mut [T]) -> BufferBinding {
    // SAFETY: the tests keep `data` alive and do not touch it during the launch.
    unsafe {
        BufferBinding::new(
            data.as_mut_ptr().cast(),
            size_of_val(data),
            BindingAccess::Write,
        )
    }
}
