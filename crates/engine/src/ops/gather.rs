//! `gather`: one element along an axis for each index.

use super::take::expect_indices;
use super::{Meta, Rule};
use crate::{Error, Result, Shape, Tensor};

/// `y[a, i, b] = x[a, indices[a, i, b], b]`; inputs are `x` and `indices`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gather {
    pub(crate) axis: usize,
}

/// Returns an error if two shapes differ in more than the length of an axis.
pub(super) fn expect_along(
    op: &'static str,
    left: &Shape,
    right: &Shape,
    axis: usize,
) -> Result<()> {
    if left.rank() == right.rank() && left.with(axis, 0) == right.with(axis, 0) {
        return Ok(());
    }
    Err(Error::ShapeMismatch {
        op,
        left: *left,
        right: *right,
        reason: "all lengths except that of the axis must be equal",
    })
}

impl Rule for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        expect_indices("gather", inputs[1])?;
        expect_along("gather", inputs[0].shape(), inputs[1].shape(), self.axis)?;
        Ok((inputs[0].dtype(), *inputs[1].shape()))
    }
}

impl Tensor {
    /// Gathers one element along `axis` for each index, as NumPy's `take_along_axis`:
    /// `y[a.., i, b..] = x[a.., indices[a.., i, b..], b..]`.
    ///
    /// `indices` has this tensor's shape except for the length of the axis, and the result has the shape of
    /// `indices`; the type is unchanged. Indices are integers of any type; negative ones count from the end; one
    /// out of range is an error on evaluation.
    pub fn gather(&self, axis: isize, indices: &Self) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let axis = self.shape().axis("gather", axis)?;
            Ok(Self::apply(Gather { axis }, &[self, indices]))
        })
    }
}
