//! `tril`, `triu`: lower and upper triangles.

use super::{Meta, Rule};
use crate::{Error, Result, Tensor};

/// The elements on one side of a diagonal of each matrix, 0 on the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Triangle {
    /// Whether the upper triangle is kept.
    pub(crate) upper: bool,
    pub(crate) diagonal: isize,
}

impl Rule for Triangle {
    fn name(&self) -> &'static str {
        if self.upper { "triu" } else { "tril" }
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let shape = inputs[0].shape();
        if shape.rank() < 2 {
            return Err(Error::BadShape {
                op: self.name(),
                shape: *shape,
                reason: "a matrix has two axes".to_owned(),
            });
        }
        Ok((inputs[0].dtype(), *shape))
    }
}

impl Tensor {
    /// The lower triangle of each matrix, the last two axes: the elements with `column - row <= k`, 0 elsewhere. Shape
    /// and type are unchanged.
    pub fn tril(&self, k: isize) -> Self {
        let (upper, diagonal) = (false, k);
        Self::apply(Triangle { upper, diagonal }, &[self])
    }

    /// The upper triangle of each matrix, the last two axes: the elements with `column - row >= k`, 0 elsewhere. Shape
    /// and type are unchanged.
    pub fn triu(&self, k: isize) -> Self {
        let (upper, diagonal) = (true, k);
        Self::apply(Triangle { upper, diagonal }, &[self])
    }
}
