//! Views: other layouts of the same storage, without copies.

use crate::{Error, IntoShape, Layout, Result, Shape, Tensor};

impl Tensor {
    fn view(&self, view: impl FnOnce(&Layout) -> Result<Layout>) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| Ok(self.with_layout(view(self.layout())?)))
    }

    /// Reshapes to another shape with the same number of elements, in row-major order. A view if strides can express
    /// it, otherwise a copy.
    pub fn reshape(&self, shape: impl IntoShape) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let shape = shape.into_shape("reshape")?;
            if shape.count() != self.count() {
                return Err(Error::ShapeMismatch {
                    op: "reshape",
                    left: *self.shape(),
                    right: shape,
                    reason: "both must have the same number of elements",
                });
            }
            Ok(match self.layout().reshaped(shape) {
                Some(layout) => self.with_layout(layout),
                None => self.contiguous().reshape(shape),
            })
        })
    }

    /// Reshapes to one axis.
    pub fn flatten(&self) -> Self {
        self.reshape([self.count()])
    }

    /// Swaps two axes.
    pub fn transpose(&self, a: isize, b: isize) -> Self {
        self.view(|l| {
            let (a, b) = (
                l.shape().axis("transpose", a)?,
                l.shape().axis("transpose", b)?,
            );
            let mut order: Vec<_> = (0..l.shape().rank()).collect();
            order.swap(a, b);
            Ok(l.permuted(&order))
        })
    }

    /// Swaps the last two axes: the transpose of a matrix, or of each matrix of a batch.
    pub fn t(&self) -> Self {
        self.transpose(-2, -1)
    }

    /// Permutes the axes: axis `i` of the result is axis `order[i]` of this tensor.
    pub fn permute(&self, order: &[isize]) -> Self {
        self.view(|l| {
            let rank = l.shape().rank();
            if l.shape().axes("permute", order)?.len() != rank {
                return Err(Error::Invalid {
                    op: "permute",
                    reason: format!("{order:?} does not name every axis of shape {}", l.shape()),
                });
            }
            let order = order.iter().map(|&a| l.shape().axis("permute", a));
            Ok(l.permuted(&order.collect::<Result<Vec<_>>>()?))
        })
    }

    /// Selects every `step`th element of an axis from `start` up to but not including `stop`, as Python's
    /// `start:stop:step`: negative bounds count from the end, bounds out of range are clamped, `None` is the first or
    /// last bound in the direction of `step`.
    ///
    /// ```
    /// # use bessemer::{DType, Tensor};
    /// let x = Tensor::arange(0, 6, 1, DType::I32);
    /// assert_eq!(x.slice(0, None, None, -2).to_vec::<i32>()?, [5, 3, 1]);
    /// assert_eq!(x.slice(0, -2, None, 1).to_vec::<i32>()?, [4, 5]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn slice(
        &self,
        axis: isize,
        start: impl Into<Option<isize>>,
        stop: impl Into<Option<isize>>,
        step: isize,
    ) -> Self {
        let (start, stop) = (start.into(), stop.into());
        self.view(|l| {
            let axis = l.shape().axis("slice", axis)?;
            if step == 0 {
                return Err(Error::Invalid {
                    op: "slice",
                    reason: "step must not be 0".to_owned(),
                });
            }
            let len = l.shape()[axis] as isize;
            // The valid bounds: from -1 on for a negative step, because `stop` is excluded.
            let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
            let bound = |b: isize| {
                let from_start = if b < 0 { b.saturating_add(len) } else { b };
                from_start.clamp(low, high)
            };
            let (first, last) = if step > 0 { (low, high) } else { (high, low) };
            let (start, stop) = (start.map_or(first, bound), stop.map_or(last, bound));
            let distance = if step > 0 { stop - start } else { start - stop };
            let count = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
            Ok(l.sliced(axis, start.max(0).unsigned_abs(), count, step))
        })
    }

    /// Selects `len` elements of an axis from `start` on, all of which must exist.
    pub fn narrow(&self, axis: isize, start: usize, len: usize) -> Self {
        self.view(|l| {
            let axis = l.shape().axis("narrow", axis)?;
            let whole = l.shape()[axis];
            match start.checked_add(len) {
                Some(end) if end <= whole => Ok(l.sliced(axis, start, len, 1)),
                _ => Err(Error::Invalid {
                    op: "narrow",
                    reason: format!(
                        "{len} elements from {start} on are out of range for an axis of length {whole}"
                    ),
                }),
            }
        })
    }

    /// Selects one element of an axis and removes the axis; negative indices count from the end.
    pub fn index(&self, axis: isize, index: isize) -> Self {
        self.view(|l| {
            let axis = l.shape().axis("index", axis)?;
            let len = l.shape()[axis];
            let from_start = if index < 0 {
                index.checked_add_unsigned(len)
            } else {
                Some(index)
            };
            let at = from_start
                .and_then(|i| usize::try_from(i).ok())
                .filter(|&i| i < len);
            let at = at.ok_or(Error::BadIndex {
                op: "index",
                index: index as i64,
                len,
            })?;
            Ok(l.sliced(axis, at, 1, 1).without(axis))
        })
    }

    /// Reverses these axes.
    pub fn flip(&self, axes: &[isize]) -> Self {
        self.view(|l| {
            let axes = l.shape().axes("flip", axes)?;
            Ok(axes.iter().fold(*l, |l, axis| {
                let len = l.shape()[axis];
                l.sliced(axis, len.saturating_sub(1), len, -1)
            }))
        })
    }

    /// Broadcasts to a larger shape, without a copy.
    pub fn broadcast_to(&self, shape: impl IntoShape) -> Self {
        self.view(|l| l.broadcast_to("broadcast_to", shape.into_shape("broadcast_to")?))
    }

    /// Removes an axis, which must have length 1.
    pub fn squeeze(&self, axis: isize) -> Self {
        self.view(|l| {
            let axis = l.shape().axis("squeeze", axis)?;
            if l.shape()[axis] != 1 {
                return Err(Error::BadShape {
                    op: "squeeze",
                    shape: *l.shape(),
                    reason: format!("axis {axis} must have length 1"),
                });
            }
            Ok(l.without(axis))
        })
    }

    /// Inserts an axis of length 1 before `axis`; -1 means after the last.
    pub fn expand_dims(&self, axis: isize) -> Self {
        self.view(|l| {
            let rank = l.shape().rank();
            let from_start = if axis < 0 {
                axis.checked_add_unsigned(rank + 1)
            } else {
                Some(axis)
            };
            let at = from_start
                .and_then(|a| usize::try_from(a).ok())
                .filter(|&a| a <= rank);
            let at = at.ok_or(Error::BadAxis {
                op: "expand_dims",
                axis,
                rank: rank + 1,
            })?;
            l.with_axis("expand_dims", at, 1, 0)
        })
    }

    /// The diagonal of axes `a` and `b`, as the last axis: the elements whose index along `b` is their index along `a`
    /// plus `offset`.
    pub fn diagonal(&self, offset: isize, a: isize, b: isize) -> Self {
        self.view(|l| {
            let (a, b) = (
                l.shape().axis("diagonal", a)?,
                l.shape().axis("diagonal", b)?,
            );
            if a == b {
                return Err(Error::Invalid {
                    op: "diagonal",
                    reason: format!("duplicate axis {a}"),
                });
            }
            let (down, right) = if offset < 0 {
                (offset.unsigned_abs(), 0)
            } else {
                (0, offset.unsigned_abs())
            };
            let len = l.shape()[a]
                .saturating_sub(down)
                .min(l.shape()[b].saturating_sub(right));
            let from = if len == 0 {
                *l
            } else {
                l.sliced(a, down, 1, 1).sliced(b, right, 1, 1)
            };
            let stride = l.strides()[a].saturating_add(l.strides()[b]);
            let rest = from.without(a.max(b)).without(a.min(b));
            rest.with_axis("diagonal", rest.shape().rank(), len, stride)
        })
    }

    /// Returns the shape, or an error unless it has this rank.
    pub(crate) fn expect_rank(&self, op: &'static str, rank: usize) -> Result<&Shape> {
        self.check()?;
        if self.rank() == rank {
            return Ok(self.shape());
        }
        Err(Error::BadShape {
            op,
            shape: *self.shape(),
            reason: format!("the rank must be {rank}"),
        })
    }
}
