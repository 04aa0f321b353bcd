//! Geometry of elementwise kernels: the axes they walk, and the grid.

use super::input::Input;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::view::{self, ViewStrides, Walk};
use crate::{DType, Layout, Shape};

/// Elements of a thread, as in `msl/elementwise.h`.
const ELEMENTS_PER_THREAD: usize = 4;

/// Threads of a threadgroup.
const THREADGROUP_THREADS: usize = 256;

/// Columns of a threadgroup if an input is transposed. With as many rows, the other rows reuse a cache line that is
/// read for one of them.
const TRANSPOSED_COLUMNS: usize = 32;

/// An innermost axis longer than this is split in two: positions in a grid have 32 bits.
const MAX_INNER_LEN: usize = 1 << 30;

msl_struct! {
    /// The axes of an elementwise kernel, and the number of elements.
    pub(super) struct Extent {
        walk: Walk,
        count: u64,
    }
}

/// Geometry of an elementwise kernel over a result and its inputs.
pub(super) struct Elementwise {
    pub(super) extent: Extent,
    /// Strides of each input along the axes.
    pub(super) views: Vec<ViewStrides>,
}

impl Elementwise {
    /// Collapses a shape to as few axes as describe the layouts of all inputs, which are broadcast to it. Each input
    /// comes with its offset in the bound range.
    pub(super) fn new(shape: &Shape, inputs: &[(&Input<'_>, usize)]) -> Self {
        let count = shape.count();
        let (mut walk, mut views) = view::walk(shape, inputs);
        if walk.rank == 1 && count > MAX_INNER_LEN {
            walk.rank = 2;
            walk.dims[0] = count.div_ceil(MAX_INNER_LEN) as u32;
            walk.dims[1] = MAX_INNER_LEN as u32;
            for view in &mut views {
                view.strides[1] = view.strides[0];
                view.strides[0] *= MAX_INNER_LEN as i64;
            }
        }
        Self::of(walk, count, views)
    }

    /// Keeps all axes of the shape of an input, which has this offset in the bound range.
    pub(super) fn along_all(layout: &Layout, offset: usize) -> Self {
        let (walk, view) = view::axes(layout, offset);
        Self::of(walk, layout.count(), vec![view])
    }

    fn of(walk: Walk, count: usize, views: Vec<ViewStrides>) -> Self {
        let count = count as u64;
        Self {
            extent: Extent { walk, count },
            views,
        }
    }

    fn inner(&self) -> usize {
        view::grid(&self.extent.walk).0
    }

    /// Whether four neighbours of an input are one aligned load.
    pub(super) fn is_vector(&self, view: &ViewStrides) -> bool {
        let rank = self.extent.walk.rank as usize;
        let aligned = |&step: &i64| step % ELEMENTS_PER_THREAD as i64 == 0;
        view.strides[rank - 1] == 1
            && aligned(&view.offset)
            && view.strides[..rank - 1].iter().all(aligned)
    }

    /// Whether four neighbours of a row-major result are one aligned store.
    pub(super) fn is_vector_store(&self) -> bool {
        self.extent.walk.rank == 1 || self.inner().is_multiple_of(ELEMENTS_PER_THREAD)
    }

    /// Whether an input is transposed: neighbours along the second innermost axis are contiguous.
    fn is_transposed(&self) -> bool {
        let rank = self.extent.walk.rank as usize;
        let across =
            |s: &ViewStrides| s.strides[rank - 1].abs() > 1 && s.strides[rank - 2].abs() == 1;
        rank > 1 && self.views.iter().any(across)
    }

    /// Launches the threads of the grid.
    pub(super) fn launch(&self, launch: LaunchBuilder, recorder: &mut Recorder<'_>) {
        let (inner, outer) = view::grid(&self.extent.walk);
        let grid = (inner.div_ceil(ELEMENTS_PER_THREAD), outer);
        let max_width = if self.is_transposed() {
            TRANSPOSED_COLUMNS / ELEMENTS_PER_THREAD
        } else {
            THREADGROUP_THREADS
        };
        let group = group(grid, max_width, launch.max_threads());
        launch.threads_grouped(recorder, grid, group);
    }
}

/// The threadgroup size of a grid: as wide as the grid is and `max_width` allows, as high as the remaining threads
/// allow.
fn group(grid: (usize, usize), max_width: usize, max_threads: usize) -> (usize, usize) {
    let threads = THREADGROUP_THREADS.min((max_threads + 1).next_power_of_two() / 2);
    let width = grid.0.next_power_of_two().min(threads).min(max_width);
    let height = grid.1.next_power_of_two().min(threads / width);
    (width, height)
}

/// An unsigned type of the same size, for kernels that only move elements.
pub(super) const fn same_size_uint(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}
