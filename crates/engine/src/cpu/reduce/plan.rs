//! The memory traversal of a reduction: axes are dropped, reversed, merged and sorted into one contiguous run, the kept
//! axes around it, and the reduced axes around it.

use crate::shape::MAX_RANK;
use crate::{Axes, Layout};

/// A subset of a layout's axes, outermost first, that maps the index of an element to its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StridedAxes {
    dims: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
    rank: usize,
    pub(crate) count: usize,
}

impl StridedAxes {
    pub(crate) const fn new() -> Self {
        Self {
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            rank: 0,
            count: 1,
        }
    }

    /// Adds an innermost axis, merged with the previous one if the strides allow it.
    pub(crate) fn push(&mut self, len: usize, stride: isize) {
        self.count *= len;
        if len == 1 {
            return;
        }
        if self.rank > 0 && self.strides[self.rank - 1] == stride * len as isize {
            self.dims[self.rank - 1] *= len;
            self.strides[self.rank - 1] = stride;
        } else {
            self.dims[self.rank] = len;
            self.strides[self.rank] = stride;
            self.rank += 1;
        }
    }

    /// Removes the innermost axis and returns its length and stride.
    fn pop(&mut self) -> Option<(usize, isize)> {
        self.rank = self.rank.checked_sub(1)?;
        self.count /= self.dims[self.rank].max(1);
        Some((self.dims[self.rank], self.strides[self.rank]))
    }

    /// The stride of the elements, if a single one describes all axes.
    pub(crate) fn single_stride(&self) -> Option<isize> {
        match self.rank {
            0 => Some(0),
            1 => Some(self.strides[0]),
            _ => None,
        }
    }

    /// Offset of the `i`th element from the first.
    #[inline(always)]
    pub(crate) fn at(&self, mut i: usize) -> isize {
        if self.rank <= 1 {
            return i as isize * self.strides[0];
        }
        let mut at = 0;
        for axis in (0..self.rank).rev() {
            at += (i % self.dims[axis]) as isize * self.strides[axis];
            i /= self.dims[axis];
        }
        at
    }
}

/// The kind of axis that the contiguous run belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunAxis {
    /// A reduced axis: the run's elements belong to one result.
    Reduced,
    /// A kept axis: the run's elements belong to neighbouring results.
    Kept,
}

/// The traversal of a reduction's input.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReducePlan {
    /// Offset of the first element.
    pub(super) offset: usize,
    pub(super) run: RunAxis,
    /// Length of the run.
    pub(super) len: usize,
    /// The kept axes around the run, in the order of the result.
    pub(super) kept: StridedAxes,
    /// The reduced axes around the run, in any order.
    pub(super) reduced: StridedAxes,
}

impl ReducePlan {
    /// Plans the reduction of a layout with at least one element. Returns `None` if no suitable axis is contiguous:
    /// the input must be copied first.
    pub(super) fn new(layout: &Layout, axes: Axes) -> Option<Self> {
        let mut offset = layout.offset();
        let (mut kept, mut reduced) = (StridedAxes::new(), Vec::with_capacity(MAX_RANK));
        for (a, (&len, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
            if len == 1 {
                continue;
            }
            if !axes.contains(a) {
                kept.push(len, stride);
            } else if stride < 0 {
                // The order of a reduced axis is irrelevant, so it is traversed forwards.
                offset = offset.wrapping_add_signed((len - 1) as isize * stride);
                reduced.push((len, -stride));
            } else {
                reduced.push((len, stride));
            }
        }
        reduced.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        let mut reduced_axes = StridedAxes::new();
        for (len, stride) in reduced {
            reduced_axes.push(len, stride);
        }
        let mut plan = Self {
            offset,
            run: RunAxis::Reduced,
            len: 1,
            kept,
            reduced: reduced_axes,
        };
        let inner_stride = |axes: &StridedAxes| axes.rank.checked_sub(1).map(|r| axes.strides[r]);
        if inner_stride(&plan.reduced) == Some(1) {
            plan.len = plan.reduced.pop().map_or(1, |(len, _)| len);
        } else if inner_stride(&plan.kept) == Some(1) {
            plan.run = RunAxis::Kept;
            plan.len = plan.kept.pop().map_or(1, |(len, _)| len);
        } else if plan.kept.rank + plan.reduced.rank > 0 {
            return None;
        }
        Some(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    fn layout(dims: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", dims).unwrap())
    }

    fn axes(of: &[usize]) -> Axes {
        let mut axes = Axes::default();
        of.iter().for_each(|&a| axes.insert(a));
        axes
    }

    #[test]
    fn merges_axes_that_are_contiguous_to_each_other() {
        let plan = ReducePlan::new(&layout(&[2, 3, 4, 5]), axes(&[2, 3])).unwrap();
        assert_eq!((plan.run, plan.len), (RunAxis::Reduced, 20));
        assert_eq!((plan.kept.count, plan.reduced.count), (6, 1));
        assert_eq!(plan.kept.single_stride(), Some(20));
        let plan = ReducePlan::new(&layout(&[2, 3, 4, 5]), axes(&[0, 1])).unwrap();
        assert_eq!(
            (plan.run, plan.len, plan.reduced.count),
            (RunAxis::Kept, 20, 6)
        );
    }

    #[test]
    fn a_transposed_or_reversed_input_needs_no_copy() {
        let t = layout(&[4, 6]).permuted(&[1, 0]);
        let plan = ReducePlan::new(&t, axes(&[0])).unwrap();
        assert_eq!((plan.run, plan.len), (RunAxis::Reduced, 6));
        let back = layout(&[4, 6]).sliced(1, 5, 6, -1);
        let plan = ReducePlan::new(&back, axes(&[0, 1])).unwrap();
        assert_eq!((plan.offset, plan.len), (0, 24));
    }

    #[test]
    fn elements_that_are_not_contiguous_need_a_copy() {
        let every_second = layout(&[4, 6]).sliced(1, 0, 3, 2);
        assert!(ReducePlan::new(&every_second, axes(&[1])).is_none());
        assert!(ReducePlan::new(&layout(&[]), Axes::default()).is_some());
    }
}
