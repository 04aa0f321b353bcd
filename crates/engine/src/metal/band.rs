//! Launches in bands.
//!
//! A GPU that also drives a display may work on one command buffer for about two seconds, then the system's watchdog
//! ends it with an error. Drivers split lists of launches into command buffers, but not a launch. So a launch that
//! would take longer than [`MAX_SECONDS`] becomes several of the same kernel, each with a band of the grid. Bands
//! consist of whole threadgroups, which compute what they would compute in one launch.
//!
//! Kernels opt in by `msl/band.h` and [`Recorder::launch_in_bands`](super::Recorder::launch_in_bands). They are the
//! compute-bound ones, whose arithmetic grows faster than their data: matmul, convolution, attention. Memory-bound
//! kernels end in time, as the memory of a GPU is read in less than a second.

use bessemer_hal::Size;

use super::msl_struct::{Uint3, msl_struct};

/// Seconds that a launch may take by the estimate of its cost, which may be wrong by a factor of four.
pub(super) const MAX_SECONDS: f64 = 0.5;

/// Buffer index of `BAND_ARGUMENT`.
pub(super) const BUFFER_INDEX: u32 = 30;

msl_struct! {
    /// A band of a grid.
    #[derive(PartialEq, Eq)]
    pub(super) struct Band {
        /// Origin of the band in the grid.
        origin: Uint3,
        /// The whole grid.
        grid: Uint3,
    }
}

/// Splits a grid along the axis with the most threadgroups into at most `count` bands of about the same size. A
/// threadgroup covers `group` units of the grid. Returns each band with the size of its own grid; `None` for a grid
/// that exceeds 32 bits.
pub(super) fn bands(grid: Size, group: Size, count: u64) -> Option<Vec<(Band, Size)>> {
    let (dims, group) = (grid.dims(), group.dims());
    let mut whole = [0; 4];
    for (to, from) in whole.iter_mut().zip(dims) {
        *to = u32::try_from(from).ok()?;
    }
    let groups = |axis: usize| dims[axis].div_ceil(group[axis]);
    let axis = (0..3).rev().max_by_key(|&axis| groups(axis))?;
    let count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
    let step = groups(axis).div_ceil(count).max(1) * group[axis];
    let band = |begin: usize| {
        let (mut origin, mut extent) = ([0; 4], dims);
        // At most the whole grid, which fits.
        origin[axis] = begin as u32;
        extent[axis] = step.min(dims[axis] - begin);
        let band = Band {
            origin: Uint3(origin),
            grid: Uint3(whole),
        };
        (band, Size::from(extent))
    };
    Some((0..dims[axis]).step_by(step).map(band).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_the_grid_once_and_begin_with_whole_threadgroups() {
        let cases = [
            (Size::new(1000, 1, 1), Size::x(1), 7),
            (Size::new(3, 50, 2), Size::x(1), 8),
            (Size::new(3, 2, 50), Size::x(1), 1000),
            (Size::new(100, 101, 3), Size::xy(32, 8), 4),
            (Size::new(1, 1, 1), Size::x(1), 5),
            (Size::new(10, 1, 1), Size::x(1), 1),
        ];
        for (grid, group, count) in cases {
            let case = format!("{grid} by {group} in {count}");
            let bands = bands(grid, group, count).expect("few threads");
            assert!(!bands.is_empty() && bands.len() as u64 <= count, "{case}");
            let mut at = [0; 3];
            for (band, extent) in &bands {
                for (axis, at) in at.iter_mut().enumerate() {
                    assert_eq!(band.origin.0[axis] as usize, *at, "{case}");
                    assert_eq!(band.grid.0[axis] as usize, grid.dims()[axis], "{case}");
                    assert_eq!(*at % group.dims()[axis], 0, "{case}");
                    if extent.dims()[axis] != grid.dims()[axis] {
                        *at += extent.dims()[axis];
                    }
                }
            }
            let covered: usize = bands.iter().filter_map(|(_, extent)| extent.total()).sum();
            assert_eq!(Some(covered), grid.total(), "{case}");
        }
        let equal = bands(Size::x(1000), Size::x(1), 7).expect("few threads");
        let sizes: Vec<usize> = equal.iter().map(|(_, extent)| extent.width).collect();
        assert_eq!(sizes, [143, 143, 143, 143, 143, 143, 142]);
        assert_eq!(bands(Size::x(1 << 32), Size::x(1), 2), None);
    }
}
