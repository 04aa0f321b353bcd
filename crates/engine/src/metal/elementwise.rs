//! Kernels that make each element of a result on its own: the axes they go along, and the grid.

use super::input::Input;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::view::{self, ViewStrides, Walk};
use crate::{DType, Layout, Shape};

/// Elements of a thread; as `msl/elementwise.h` has it.
const EACH: usize = 4;

/// Threads of a group.
const GROUP: usize = 256;

/// Columns of a group where an input lies across. With as many rows, a cache line that is read for one row
/// serves the others.
const TILE: usize = 32;

/// An innermost axis longer than this is cut in two: positions in a grid have 32 bits.
const LONGEST: usize = 1 << 30;

msl_struct! {
    /// The axes of an elementwise kernel, and the number of elements.
    pub(super) struct Extent {
        walk: Walk,
        count: u64,
    }
}

/// How a kernel goes through the elements of a result and of inputs.
pub(super) struct Each {
    pub(super) extent: Extent,
    /// How each input goes along the axes.
    pub(super) steps: Vec<ViewStrides>,
}

impl Each {
    /// Along as few axes as say where the elements of inputs lie that are broadcast to a shape. Inputs come
    /// with the element of their range where they begin.
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

    /// Along all axes of a shape, of an input that has it and begins at an element of its range.
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

    /// Whether an input lies across: neighbours of the axis before the innermost are neighbours in memory.
    fn is_turned(&self) -> bool {
        let rank = self.extent.walk.rank as usize;
        let across =
            |s: &ViewStrides| s.strides[rank - 1].abs() > 1 && s.strides[rank - 2].abs() == 1;
        rank > 1 && self.steps.iter().any(across)
    }

    /// Launches the threads it takes.
    pub(super) fn launch(&self, launch: LaunchBuilder, recorder: &mut Recorder<'_>) {
        let (inner, outer) = view::grid(&self.extent.walk);
        let grid = (inner.div_ceil(EACH), outer);
        let widest = if self.is_turned() { TILE / EACH } else { GROUP };
        let group = group(grid, widest, launch.max_threads());
        launch.threads_of(recorder, grid, group);
    }
}

/// The group of threads that a grid is cut into: as wide as the grid is and may be, as high as there is room for.
fn group(grid: (usize, usize), widest: usize, most: usize) -> (usize, usize) {
    let threads = GROUP.min((most + 1).next_power_of_two() / 2);
    let width = grid.0.next_power_of_two().min(threads).min(widest);
    let height = grid.1.next_power_of_two().min(threads / width);
    (width, height)
}

/// The type whose elements are moved for those of any type of the size.
pub(super) const fn moved(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}
