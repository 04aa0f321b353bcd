//! How a reduction walks memory: axes dropped, turned, merged and sorted until what is left is one run of
//! neighbours, the axes around it that are kept, and those that are reduced.

use crate::shape::MAX_RANK;
use crate::{Axes, Layout};

/// Some axes of a layout, outermost first: where the `i`th of their elements lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    dims: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
    rank: usize,
    pub(crate) count: usize,
}

impl Walk {
    pub(crate) const fn new() -> Self {
        Self {
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            rank: 0,
            count: 1,
        }
    }

    /// Adds an axis inside the others; one that continues the last is merged with it.
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

    /// Takes the innermost axis away: its length and stride.
    fn pop(&mut self) -> Option<(usize, isize)> {
        self.rank = self.rank.checked_sub(1)?;
        self.count /= self.dims[self.rank].max(1);
        Some((self.dims[self.rank], self.strides[self.rank]))
    }

    /// The stride of the elements, if one stride says it all.
    pub(crate) fn single_stride(&self) -> Option<isize> {
        match self.rank {
            0 => Some(0),
            1 => Some(self.strides[0]),
            _ => None,
        }
    }

    /// Where the `i`th element lies, from the first.
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

/// What the run of neighbours in memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Elements of one result.
    Reduced,
    /// Elements of neighbouring results.
    Kept,
}

/// How a reduction walks its input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Where the first element lies.
    pub(super) offset: usize,
    pub(super) run: Run,
    /// Length of the run.
    pub(super) len: usize,
    /// The kept axes around the run, in the order of the result.
    pub(super) kept: Walk,
    /// The reduced axes around the run, in any order.
    pub(super) reduced: Walk,
}

impl Plan {
    /// The plan for a layout with at least one element, or nothing where no axis has neighbours in memory
    /// that serve: then a copy must come first.
    pub(super) fn new(layout: &Layout, axes: Axes) -> Option<Self> {
        let mut offset = layout.offset();
        let (mut kept, mut reduced) = (Walk::new(), Vec::with_capacity(MAX_RANK));
        for (a, (&len, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
            if len == 1 {
                continue;
            }
            if !axes.contains(a) {
                kept.push(len, stride);
            } else if stride < 0 {
                // A sum is the same backwards.
                offset = offset.wrapping_add_signed((len - 1) as isize * stride);
                reduced.push((len, -stride));
            } else {
                reduced.push((len, stride));
            }
        }
        reduced.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        let mut walk = Walk::new();
        for (len, stride) in reduced {
            walk.push(len, stride);
        }
        let mut plan = Self {
            offset,
            run: Run::Reduced,
            len: 1,
            kept,
            reduced: walk,
        };
        let inner = |walk: &Walk| walk.rank.checked_sub(1).map(|r| walk.strides[r]);
        if inner(&plan.reduced) == Some(1) {
            plan.len = plan.reduced.pop().map_or(1, |(len, _)| len);
        } else if inner(&plan.kept) == Some(1) {
            plan.run = Run::Kept;
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
    fn axes_that_continue_each_other_become_one() {
        let plan = Plan::new(&layout(&[2, 3, 4, 5]), axes(&[2, 3])).unwrap();
        assert_eq!((plan.run, plan.len), (Run::Reduced, 20));
        assert_eq!((plan.kept.count, plan.reduced.count), (6, 1));
        assert_eq!(plan.kept.single_stride(), Some(20));
        let plan = Plan::new(&layout(&[2, 3, 4, 5]), axes(&[0, 1])).unwrap();
        assert_eq!((plan.run, plan.len, plan.reduced.count), (Run::Kept, 20, 6));
    }

    #[test]
    fn a_transposed_or_reversed_input_needs_no_copy() {
        let t = layout(&[4, 6]).permuted(&[1, 0]);
        let plan = Plan::new(&t, axes(&[0])).unwrap();
        assert_eq!((plan.run, plan.len), (Run::Reduced, 6));
        let back = layout(&[4, 6]).sliced(1, 5, 6, -1);
        let plan = Plan::new(&back, axes(&[0, 1])).unwrap();
        assert_eq!((plan.offset, plan.len), (0, 24));
    }

    #[test]
    fn elements_without_neighbours_need_a_copy() {
        let every_second = layout(&[4, 6]).sliced(1, 0, 3, 2);
        assert!(Plan::new(&every_second, axes(&[1])).is_none());
        assert!(Plan::new(&layout(&[]), Axes::default()).is_some());
    }
}
