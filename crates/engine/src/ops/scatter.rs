//! `scatter`, `scatter_add`: elements written or added at indices.

use super::gather::expect_along;
use super::take::expect_indices;
use super::{Meta, Rule};
use crate::{Error, Result, Tensor};

/// `y = x`, then `y[a, indices[a, i, b], b] = source[a, i, b]`, or `+=`; inputs are `x`, `indices` and
/// `source`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scatter {
    pub(crate) axis: usize,
    /// Whether elements are added instead of replaced.
    pub(crate) add: bool,
}

impl Rule for Scatter {
    fn name(&self) -> &'static str {
        if self.add { "scatter_add" } else { "scatter" }
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let [x, indices, source] = [0, 1, 2].map(|i| inputs[i].shape());
        expect_indices(self.name(), inputs[1])?;
        expect_along(self.name(), x, indices, self.axis)?;
        if indices != source {
            return Err(Error::ShapeMismatch {
                op: self.name(),
                left: *indices,
                right: *source,
                reason: "there must be an index for each element of the source",
            });
        }
        Ok((inputs[0].dtype(), *x))
    }
}

impl Tensor {
    fn scatter_by(&self, add: bool, axis: isize, indices: &Self, source: &Self) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let mut op = Scatter { axis: 0, add };
            op.axis = self.shape().axis(op.name(), axis)?;
            Ok(Self::apply(
                op,
                &[self, indices, &source.cast(self.dtype())],
            ))
        })
    }

    /// Replaces elements with those of `source`, as NumPy's `put_along_axis`:
    /// `y[a.., indices[a.., i, b..], b..] = source[a.., i, b..]`.
    ///
    /// `indices` and `source` have the same shape, which is this tensor's except for the length of the axis.
    /// Shape and type are unchanged; `source` is converted to the type. Of duplicate indices, the last one in row-major
    /// order wins. Indices are integers of any type; negative ones count from the end; one out of range is an error on
    /// evaluation. This tensor is updated in place if it has no other use.
    pub fn scatter(&self, axis: isize, indices: &Self, source: &Self) -> Self {
        self.scatter_by(false, axis, indices, source)
    }

    /// As [`Tensor::scatter`], but adds to the elements:
    /// `y[a.., indices[a.., i, b..], b..] += source[a.., i, b..]`.
    ///
    /// Duplicate indices accumulate in row-major order, with each sum rounded to the type; integers wrap, booleans are
    /// or-ed.
    pub fn scatter_add(&self, axis: isize, indices: &Self, source: &Self) -> Self {
        self.scatter_by(true, axis, indices, source)
    }
}
