//! A shape split at an axis.

use crate::Shape;

/// A row-major shape split at one of its axes: `outer` blocks of `len` rows of `inner` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisSplit {
    pub(crate) outer: usize,
    pub(crate) len: usize,
    pub(crate) inner: usize,
}

impl AxisSplit {
    pub(crate) fn new(shape: &Shape, axis: usize) -> Self {
        Self {
            outer: shape[..axis].iter().product(),
            len: shape[axis],
            inner: shape[axis + 1..].iter().product(),
        }
    }
}
