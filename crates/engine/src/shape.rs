//! Shapes: the length of each axis.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::{Error, Result};

/// Maximum rank of a tensor. A bound makes a shape a `Copy` value without allocation.
pub const MAX_RANK: usize = 8;

/// The lengths of a tensor's axes, outermost first. It dereferences to a slice.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    // Dimensions past the rank are 0, so that equality of the arrays is equality of the shapes.
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl Shape {
    /// The shape of rank 0.
    pub const SCALAR: Self = Self {
        dims: [0; MAX_RANK],
        rank: 0,
    };

    /// The shape of rank 1 without elements.
    pub(crate) const EMPTY: Self = Self {
        dims: [0; MAX_RANK],
        rank: 1,
    };

    /// A shape with these dimensions. An error if they are more than [`MAX_RANK`], or if the size in bytes overflows
    /// for some element type.
    pub fn new(op: &'static str, dims: &[usize]) -> Result<Self> {
        let mut shape = Self::SCALAR;
        let Some(target) = shape.dims.get_mut(..dims.len()) else {
            return Err(Error::RankTooLarge {
                op,
                rank: dims.len(),
            });
        };
        target.copy_from_slice(dims);
        shape.rank = dims.len() as u8;
        // Empty axes count as 1: strides are products of the other dimensions.
        dims.iter()
            .try_fold(8_isize, |n, &d| {
                n.checked_mul(isize::try_from(d.max(1)).ok()?)
            })
            .map(|_| shape)
            .ok_or_else(|| Error::SizeOverflow {
                op,
                dims: dims.to_vec(),
            })
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.iter().product()
    }

    /// Number of axes.
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Resolves an axis: negative ones count from the end.
    pub fn axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        let rank = self.rank();
        let from_start = if axis < 0 {
            axis.checked_add_unsigned(rank)
        } else {
            Some(axis)
        };
        from_start
            .and_then(|a| usize::try_from(a).ok())
            .filter(|&a| a < rank)
            .ok_or(Error::BadAxis { op, axis, rank })
    }

    /// Resolves a set of axes; a duplicate is an error.
    pub fn axes(&self, op: &'static str, axes: &[isize]) -> Result<Axes> {
        let mut set = Axes::default();
        for &axis in axes {
            let a = self.axis(op, axis)?;
            if set.contains(a) {
                return Err(Error::Invalid {
                    op,
                    reason: format!("duplicate axis {axis}"),
                });
            }
            set.insert(a);
        }
        Ok(set)
    }

    /// The shape that both broadcast to: aligned at the last axis, with lengths that are equal or one of them 1.
    pub fn broadcast(&self, op: &'static str, other: &Self) -> Result<Self> {
        if self == other {
            return Ok(*self);
        }
        let (long, short) = if self.rank >= other.rank {
            (self, other)
        } else {
            (other, self)
        };
        let mut out = *long;
        let skip = long.rank() - short.rank();
        for (d, &s) in out.dims[skip..long.rank()].iter_mut().zip(short.iter()) {
            match (*d, s) {
                (1, _) => *d = s,
                (l, s) if l == s || s == 1 => {}
                _ => {
                    return Err(Error::ShapeMismatch {
                        op,
                        left: *self,
                        right: *other,
                        reason: "lengths, aligned at the last axis, must be equal or 1",
                    });
                }
            }
        }
        Self::new(op, &out)
    }

    /// This shape with length `len` for axis `axis`, which must exist.
    pub(crate) fn with(mut self, axis: usize, len: usize) -> Self {
        debug_assert!(axis < self.rank());
        self.dims[axis] = len;
        self
    }

    /// This shape with `axes` removed, or with length 1 for them if `keep`.
    pub(crate) fn reduced(&self, axes: Axes, keep: bool) -> Self {
        let mut out = Self::SCALAR;
        for (a, &d) in self.iter().enumerate() {
            let is_reduced = axes.contains(a);
            if !is_reduced || keep {
                out.dims[out.rank()] = if is_reduced { 1 } else { d };
                out.rank += 1;
            }
        }
        out
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        **self == other[..]
    }
}

/// A set of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Axes(u8);

impl Axes {
    /// All axes of a tensor of this rank.
    pub const fn all(rank: usize) -> Self {
        if rank >= MAX_RANK {
            return Self(u8::MAX);
        }
        Self((1 << rank) - 1)
    }

    /// Returns `true` if the set contains `axis`.
    pub const fn contains(self, axis: usize) -> bool {
        axis < MAX_RANK && self.0 >> axis & 1 == 1
    }

    /// Adds an axis below [`MAX_RANK`].
    pub(crate) fn insert(&mut self, axis: usize) {
        self.0 |= 1 << axis;
    }

    /// Number of axes in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns `true` if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..MAX_RANK).filter(move |&a| self.contains(a))
    }
}

/// Conversion to a shape, from arrays, slices and vectors of lengths, or from one length.
pub trait IntoShape {
    /// Converts to a shape; an error if the rank or the size is too large.
    fn into_shape(self, op: &'static str) -> Result<Shape>;
}

impl IntoShape for Shape {
    fn into_shape(self, _: &'static str) -> Result<Shape> {
        Ok(self)
    }
}

impl IntoShape for &Shape {
    fn into_shape(self, _: &'static str) -> Result<Shape> {
        Ok(*self)
    }
}

impl IntoShape for usize {
    fn into_shape(self, op: &'static str) -> Result<Shape> {
        Shape::new(op, &[self])
    }
}

impl<const N: usize> IntoShape for [usize; N] {
    fn into_shape(self, op: &'static str) -> Result<Shape> {
        Shape::new(op, &self)
    }
}

impl<const N: usize> IntoShape for &[usize; N] {
    fn into_shape(self, op: &'static str) -> Result<Shape> {
        Shape::new(op, self)
    }
}

impl IntoShape for &[usize] {
    fn into_shape(self, op: &'static str) -> Result<Shape> {
        Shape::new(op, self)
    }
}

impl IntoShape for Vec<usize> {
    fn into_shape(self, op: &'static str) -> Result<Shape> {
        Shape::new(op, &self)
    }
}

impl IntoShape for &Vec<usize> {
    fn into_shape(self, op: &'static str) -> Result<Shape> {
        Shape::new(op, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_axes_are_at_most_as_many_as_a_shape_has() {
        for rank in 0..=MAX_RANK {
            assert_eq!(Axes::all(rank).len(), rank);
        }
        for rank in [MAX_RANK + 1, 16, usize::MAX] {
            assert_eq!(Axes::all(rank).len(), MAX_RANK);
        }
    }
}
