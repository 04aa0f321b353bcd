//! Layouts: shape, strides and offset of a tensor. Views change only these.

use std::fmt;

use crate::shape::MAX_RANK;
use crate::{Error, Result, Shape};

/// The layout of a tensor in its storage: element `(i, j, …)` has the index
/// `offset + i * strides[0] + j * strides[1] + …`. Strides may be negative (reversed axes) or zero (broadcast axes).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// The contiguous row-major layout at offset 0.
    pub fn contiguous(shape: Shape) -> Self {
        let mut strides = [0; MAX_RANK];
        let mut step = 1;
        for (s, &d) in strides[..shape.rank()].iter_mut().zip(shape.iter()).rev() {
            *s = step;
            step *= d.max(1) as isize;
        }
        Self {
            shape,
            strides,
            offset: 0,
        }
    }

    /// The lengths of the axes.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The stride of each axis, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank()]
    }

    /// The index of the first element in the storage.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.count()
    }

    /// Returns `true` if the elements are contiguous, in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1;
        for (&d, &s) in self.shape.iter().zip(self.strides()).rev() {
            if d > 1 {
                if s != step {
                    return self.count() == 0;
                }
                step *= d as isize;
            }
        }
        true
    }

    /// Returns `true` for the layout of a newly computed tensor: contiguous at offset 0.
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.is_contiguous()
    }

    /// Returns `true` for the layout of a newly computed tensor of this shape.
    pub(crate) fn is_whole_of(&self, shape: &Shape) -> bool {
        self.shape == *shape && self.is_whole()
    }

    /// The range of element indices in use.
    pub fn span(&self) -> std::ops::Range<usize> {
        if self.count() == 0 {
            return self.offset..self.offset;
        }
        let (mut low, mut high) = (self.offset, self.offset);
        for (&d, &s) in self.shape.iter().zip(self.strides()) {
            let reach = (d - 1) * s.unsigned_abs();
            if s < 0 { low -= reach } else { high += reach }
        }
        low..high + 1
    }

    /// The same elements of a storage that begins at another element.
    pub(crate) fn with_offset(&self, offset: usize) -> Self {
        Self { offset, ..*self }
    }

    /// Permutes the axes: axis `i` of the result is axis `order[i]` of this. `order` must be a permutation.
    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        let mut out = *self;
        for (to, &from) in order.iter().enumerate() {
            out.shape = out.shape.with(to, self.shape[from]);
            out.strides[to] = self.strides[from];
        }
        out
    }

    /// Selects every `step`th element of an axis, `len` of them, from `start` on; all must exist.
    pub(crate) fn sliced(&self, axis: usize, start: usize, len: usize, step: isize) -> Self {
        let mut out = *self;
        out.shape = self.shape.with(axis, len);
        if out.count() > 0 {
            out.offset = self
                .offset
                .wrapping_add_signed(start as isize * self.strides[axis]);
        }
        out.strides[axis] = self.strides[axis].saturating_mul(step);
        out
    }

    /// Reshapes without a copy, if strides can express the result.
    pub(crate) fn reshaped(&self, shape: Shape) -> Option<Self> {
        debug_assert_eq!(self.count(), shape.count());
        let mut out = Self::contiguous(shape);
        out.offset = self.offset;
        if self.is_contiguous() {
            return Some(out);
        }
        // Runs of axes that are contiguous among themselves can be regrouped: walk both shapes from the end and match
        // runs with equal element counts.
        let (mut old, mut new) = (self.shape.rank(), shape.rank());
        while new > 0 {
            // The next run of old axes: its innermost stride and its number of elements.
            while old > 0 && self.shape[old - 1] == 1 {
                old -= 1;
            }
            if old == 0 {
                // Only axes of length 1 are left.
                out.strides[..new].fill(0);
                return Some(out);
            }
            let inner = self.strides[old - 1];
            let mut run = self.shape[old - 1];
            old -= 1;
            let mut filled = 1;
            while filled < run || run == 1 {
                if new == 0 {
                    return None;
                }
                let len = shape[new - 1];
                filled *= len;
                while filled > run {
                    // The new axis is longer than the run, which must continue in the next old axis.
                    if old == 0 {
                        return None;
                    }
                    if self.shape[old - 1] != 1 {
                        if self.strides[old - 1] != inner * run as isize {
                            return None;
                        }
                        run *= self.shape[old - 1];
                    }
                    old -= 1;
                }
                out.strides[new - 1] = inner * (filled / len) as isize;
                new -= 1;
            }
        }
        Some(out)
    }

    /// Broadcasts to a larger shape, with strides of 0.
    pub(crate) fn broadcast_to(&self, op: &'static str, shape: Shape) -> Result<Self> {
        if self.shape == shape {
            return Ok(*self);
        }
        let mismatch = || Error::ShapeMismatch {
            op,
            left: self.shape,
            right: shape,
            reason: "lengths, aligned at the last axis, must be equal, or 1 in the tensor",
        };
        let skip = shape
            .rank()
            .checked_sub(self.shape.rank())
            .ok_or_else(mismatch)?;
        let mut out = Self {
            shape,
            strides: [0; MAX_RANK],
            offset: self.offset,
        };
        for (i, (&d, &s)) in self.shape.iter().zip(self.strides()).enumerate() {
            match (d, shape[skip + i]) {
                (1, _) => {}
                (d, target) if d == target => out.strides[skip + i] = s,
                _ => return Err(mismatch()),
            }
        }
        Ok(out)
    }

    /// Removes an axis, which should have length 1.
    pub(crate) fn without(&self, axis: usize) -> Self {
        let mut axes = crate::Axes::default();
        axes.insert(axis);
        let mut out = *self;
        out.shape = self.shape.reduced(axes, false);
        out.strides.copy_within(axis + 1.., axis);
        out.strides[MAX_RANK - 1] = 0;
        out
    }

    /// Inserts an axis of any length and stride before `axis`.
    pub(crate) fn with_axis(
        &self,
        op: &'static str,
        axis: usize,
        len: usize,
        stride: isize,
    ) -> Result<Self> {
        let mut dims = self.shape.to_vec();
        dims.insert(axis, len);
        let mut out = *self;
        out.shape = Shape::new(op, &dims)?;
        out.strides.copy_within(axis..MAX_RANK - 1, axis + 1);
        out.strides[axis] = stride;
        Ok(out)
    }

    /// The indices of all elements in the storage, in row-major order. Slow; for code that is not performance critical.
    pub fn offsets(&self) -> impl Iterator<Item = usize> + use<> {
        let layout = *self;
        let mut index = [0_usize; MAX_RANK];
        let mut at = layout.offset;
        (0..layout.count()).map(move |_| {
            let here = at;
            for axis in (0..layout.shape.rank()).rev() {
                index[axis] += 1;
                at = at.wrapping_add_signed(layout.strides[axis]);
                if index[axis] < layout.shape[axis] {
                    break;
                }
                index[axis] = 0;
                at = at.wrapping_add_signed(-layout.strides[axis] * layout.shape[axis] as isize);
            }
            here
        })
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} by {:?} from {}",
            self.shape,
            self.strides(),
            self.offset
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dims: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", dims).unwrap())
    }

    fn indices(l: &Layout) -> Vec<usize> {
        l.offsets().collect()
    }

    #[test]
    fn row_major_strides_come_from_the_last_axis() {
        assert_eq!(layout(&[2, 3, 4]).strides(), [12, 4, 1]);
        assert_eq!(layout(&[]).strides(), [0_isize; 0]);
        assert!(layout(&[2, 0, 3]).is_contiguous());
        assert_eq!(indices(&layout(&[2, 2])), [0, 1, 2, 3]);
        assert_eq!(indices(&layout(&[])), [0]);
    }

    #[test]
    fn views_select_the_expected_elements() {
        let l = layout(&[2, 3]);
        assert_eq!(indices(&l.permuted(&[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(indices(&l.sliced(1, 2, 3, -1)), [2, 1, 0, 5, 4, 3]);
        assert_eq!(indices(&l.sliced(1, 0, 2, 2)), [0, 2, 3, 5]);
        assert_eq!(indices(&l.sliced(0, 1, 1, 1).without(0)), [3, 4, 5]);
        assert_eq!(l.sliced(1, 2, 3, -1).span(), 0..6);
    }

    #[test]
    fn reshape_is_a_view_if_strides_can_express_it() {
        let shape = |d: &[usize]| Shape::new("test", d).unwrap();
        let t = layout(&[4, 6]).permuted(&[1, 0]);
        let split = t.reshaped(shape(&[2, 3, 4])).unwrap();
        assert_eq!(indices(&split), indices(&t));
        let split = t.reshaped(shape(&[6, 1, 2, 2])).unwrap();
        assert_eq!(indices(&split), indices(&t));
        assert_eq!(t.reshaped(shape(&[24])), None);
        let gap = layout(&[4, 6]).sliced(1, 0, 4, 1);
        assert_eq!(gap.reshaped(shape(&[16])), None);
        assert_eq!(
            indices(&gap.reshaped(shape(&[2, 2, 2, 2])).unwrap()),
            indices(&gap)
        );
        let back = layout(&[6]).sliced(0, 5, 6, -1);
        assert_eq!(
            indices(&back.reshaped(shape(&[2, 3])).unwrap()),
            indices(&back)
        );
        let wide = layout(&[1]).broadcast_to("test", shape(&[4, 4])).unwrap();
        assert_eq!(indices(&wide.reshaped(shape(&[16])).unwrap()), [0; 16]);
    }
}
