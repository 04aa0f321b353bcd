//! Geometry of elementwise kernels: the axes they walk, and the grid.

use super::input::Input;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::view::{self, ViewStrides, Walk};
use crate::{DType, Layout, Shape};

/// Elements of a thread, as in `msl/elementwise.h`.
const EACH: usize = 4;

/// Threads of a threadgroup.
const GROUP: usize = 256;

/// Columns of a threadgroup if an input is transposed. With as many rows, the other rows reuse a cache line that is
/// read for one of them.
const TILE: usize = 32;

/// An innermost axis longer than this is split in two: positions in a grid have 32 bits.
const LONGEST: usize = 1 << 30;

msl_struct! {
    /// The axes of an elementwise kernel, and the number of elements.
    pub(super) struct Extent {
        walk: Walk,
        count: u64,
    }
}

/// Geometry of an elementwise kernel over a result and its inputs.
pub(super) struct Each {
    pub(super) extent: Extent,
    /// Strides of each input along the axes.
    pub(super) steps: Vec<ViewStrides>,
}

impl Each {
    /// Collapses a shape to as few axes as describe the layouts of all inputs, which are broadcast to it. Each input
    /// comes with its offset in the bound range.
    pub(super) fn new(shape: &Shape, inputs: &[(&Input<'_>, usize)]) -> Self {
        let count = shape.count();
        let (mut walk, mut steps) = view::walk(shape, inputs);
        if walk.rank == 1 && count > LONGEST {
            walk.rank = 2;
            walk.dims[0] = count.div_ceil(LONGEST) as u32;
            walk.dims[1] = LONGEST as u32;
            for step in &mut steps {
                step.strides[1] = step.strides[0];
                step.strides[0] *= LONGEST as i64;
            }
        }
        Self::of(walk, count, steps)
    }

    /// Keeps all axes of the shape of an input, which has this offset in the bound range.
    pub(super) fn along_all(layout: &Layout, offset: usize) -> Self {
        let (walk, steps) = view::axes(layout, offset);
        Self::of(walk, layout.count(), vec![steps])
    }

    fn of(walk: Walk, count: usize, steps: Vec<ViewStrides>) -> Self {
        let count = count as u64;
        Self {
            extent: Extent { walk, count },
            steps,
        }
    }

    fn inner(&self) -> usize {
        view::grid(&self.extent.walk).0
    }

    /// Whether four neighbours of an input are one aligned load.
    pub(super) fn is_vector(&self, steps: &ViewStrides) -> bool {
        let rank = self.extent.walk.rank as usize;
        let aligned = |&step: &i64| step % EACH as i64 == 0;
        steps.strides[rank - 1] == 1
            && aligned(&steps.offset)
            && steps.strides[..rank - 1].iter().all(aligned)
    }

    /// Whether four neighbours of a row-major result are one aligned store.
    pub(super) fn is_vector_store(&self) -> bool {
        self.extent.walk.rank == 1 || self.inner().is_multiple_of(EACH)
    }

    /// Whether an input is transposed: neighbours along the second innermost axis are contiguous.
    fn is_turned(&self) -> bool {
        let rank = self.extent.walk.rank as usize;
        let across =
            |s: &ViewStrides| s.strides[rank - 1].abs() > 1 && s.strides[rank - 2].abs() == 1;
        rank > 1 && self.steps.iter().any(across)
    }

    /// Launches the threads of the grid.
    pub(super) fn launch(&self, launch: LaunchBuilder, recorder: &mut Recorder<'_>) {
        let (inner, outer) = view::grid(&self.extent.walk);
        let grid = (inner.div_ceil(EACH), outer);
        let widest = if self.is_turned() { TILE / EACH } else { GROUP };
        let group = group(grid, widest, launch.max_threads());
        launch.threads_of(recorder, grid, group);
    }
}

/// The threadgroup size of a grid: as wide as the grid is and `max_width` allows, as high as the remaining threads
/// allow.
fn group(grid: (usize, usize), widest: usize, most: usize) -> (usize, usize) {
    let threads = GROUP.min((most + 1).next_power_of_two() / 2);
    let width = grid.0.next_power_of_two().min(threads).min(widest);
    let height = grid.1.next_power_of_two().min(threads / width);
    (width, height)
}

/// An unsigned type of the same size, for kernels that only move elements.
pub(super) const fn moved(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}
