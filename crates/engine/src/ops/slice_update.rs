//! `slice_update`: replaces a slice of a tensor.

use super::{Meta, Rule};
use crate::shape::MAX_RANK;
use crate::{Error, Result, Tensor};

/// `y = x`, then `y[start..start + shape of source] = source`; inputs are `x` and `source`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SliceUpdate {
    pub(crate) start: [usize; MAX_RANK],
}

impl Rule for SliceUpdate {
    fn name(&self) -> &'static str {
        "slice_update"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (x, source) = (inputs[0].shape(), inputs[1].shape());
        let mut axes = x.iter().zip(source.iter()).zip(&self.start);
        let inside = |((&x, &s), &start): ((&usize, &usize), &usize)| {
            start.checked_add(s).is_some_and(|end| end <= x)
        };
        if x.rank() != source.rank() || !axes.all(inside) {
            return Err(Error::ShapeMismatch {
                op: "slice_update",
                left: *x,
                right: *source,
                reason: "the source must have the same rank and lie inside the tensor",
            });
        }
        Ok((inputs[0].dtype(), *x))
    }
}

impl Tensor {
    /// Replaces the slice that begins at `start` with `source`:
    /// `y[start[0] + i, start[1] + j, ..] = source[i, j, ..]`.
    ///
    /// `start` has one index per axis. The source has this tensor's rank, lies inside it and is converted to its type;
    /// shape and type are unchanged. An empty source changes nothing. This tensor is updated in place if it has no
    /// other use, so that a cache grows without copies.
    ///
    /// ```
    /// # use bessemer::{DType, Tensor};
    /// let x = Tensor::zeros([2, 3], DType::I32);
    /// let y = x.slice_update(&Tensor::from_slice(&[7, 8], [1, 2]), &[1, 1]);
    /// assert_eq!(y.to_vec::<i32>()?, [0, 0, 0, 0, 7, 8]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn slice_update(&self, source: &Self, start: &[usize]) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            if start.len() != self.rank() {
                return Err(Error::Invalid {
                    op: "slice_update",
                    reason: format!("{} start indices for {} axes", start.len(), self.rank()),
                });
            }
            let mut op = SliceUpdate {
                start: [0; MAX_RANK],
            };
            op.start[..start.len()].copy_from_slice(start);
            Ok(Self::apply(op, &[self, &source.cast(self.dtype())]))
        })
    }
}
