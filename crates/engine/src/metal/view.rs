//! Strided views of inputs, as kernels walk them.

use super::input::Input;
use super::msl_struct::msl_struct;
use crate::cpu::fused::MergedAxes;
use crate::{Layout, MAX_RANK, Shape};

msl_struct! {
    /// The axes that an elementwise kernel walks, as few as describe the layouts of all inputs.
    pub(crate) struct Walk {
        /// Lengths of the axes, outermost first; unused ones are 1.
        pub(crate) dims: [u32; MAX_RANK],
        /// Axes in use, at least one.
        pub(crate) rank: u32,
        padding: u32,
    }
}

msl_struct! {
    /// Strides of one input along the axes of a [`Walk`], and the offset of its first element; in elements.
    pub(crate) struct ViewStrides {
        pub(crate) strides: [i64; MAX_RANK],
        pub(crate) offset: i64,
    }
}

/// Collapses the axes of a shape to as few as all inputs share, which have it or are broadcast to it. Each input comes
/// with its offset in the bound range.
pub(crate) fn walk(shape: &Shape, inputs: &[(&Input<'_>, usize)]) -> (Walk, Vec<ViewStrides>) {
    let mut strides: Vec<_> = inputs
        .iter()
        .map(|(input, _)| {
            let layout = input.layout.broadcast_to("walk", *shape);
            let mut all = [0; MAX_RANK];
            if let Ok(layout) = layout {
                all[..layout.strides().len()].copy_from_slice(layout.strides());
            }
            all
        })
        .collect();
    let axes = MergedAxes::collapse(shape, &mut strides);
    let mut walk = Walk {
        dims: [1; MAX_RANK],
        rank: axes.rank() as u32,
        padding: 0,
    };
    for (to, &from) in walk.dims.iter_mut().zip(axes.dims()) {
        *to = from as u32;
    }
    let views = strides.iter().zip(inputs).map(|(strides, &(_, offset))| {
        let mut all = [0; MAX_RANK];
        for (to, &from) in all.iter_mut().zip(&strides[..axes.rank()]) {
            *to = from as i64;
        }
        ViewStrides {
            strides: all,
            offset: offset as i64,
        }
    });
    (walk, views.collect())
}

/// All axes of a shape, at least one, and the strides of an input with this offset along them.
pub(crate) fn axes(layout: &Layout, offset: usize) -> (Walk, ViewStrides) {
    let mut walk = Walk {
        dims: [1; MAX_RANK],
        rank: layout.shape().rank().max(1) as u32,
        padding: 0,
    };
    let mut view = ViewStrides {
        strides: [0; MAX_RANK],
        offset: offset as i64,
    };
    for (axis, (&dim, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
        (walk.dims[axis], view.strides[axis]) = (dim as u32, stride as i64);
    }
    (walk, view)
}

/// The grid of a kernel that walks: the innermost axis, and all others flattened.
pub(crate) fn grid(walk: &Walk) -> (usize, usize) {
    let inner = walk.dims[walk.rank as usize - 1] as usize;
    let outer = walk.dims[..walk.rank as usize - 1].iter();
    (inner, outer.map(|&d| d as usize).product())
}
