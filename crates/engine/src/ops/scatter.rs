//! `scatter`, `scatter_add`: elements put where indices say.

use super::gather::expect_along;
use super::take::expect_indices;
use super::{Meta, Rule};
use crate::{Error, Result, Tensor};

/// `y = x`, then `y[a, indices[a, i, b], b] = source[a, i, b]`, or `+=`; inputs are `x`, `indices` and
/// `source`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scatter {
    pub(crate) axis: usize,
    /// Adds to what is there.
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

    /// This tensor with elements of `source` in place of some of its own, as NumPy's `put_along_axis`:
    /// `y[a.., indices[a.., i, b..], b..] = source[a.., i, b..]`.
    ///
    /// `indices` and `source` have the same shape, which is this tensor's but for the length of the axis.
    /// Shape and type stay; `source` is converted to the type. Where an element is named more than once
    /// the last one, in row-major order, stays. Indices are integers of any type; negative ones count
    /// from the end; one out of range is an error when the value is asked for. Nothing is copied where
    /// nobody else needs this tensor.
    pub fn scatter(&self, axis: isize, indices: &Self, source: &Self) -> Self {
        self.scatter_by(false, axis, indices, source)
    }

    /// As [`Tensor::scatter`], but adding to what is there:
    /// `y[a.., indices[a.., i, b..], b..] += source[a.., i, b..]`.
    ///
    /// Elements named more than once are added one after the other in row-major order, each sum rounded
    /// to the type; integers wrap, truth values are or-ed.
    pub fn scatter_add(&self, axis: isize, indices: &Self, source: &Self) -> Self {
        self.scatter_by(true, axis, indices, source)
    }
}
