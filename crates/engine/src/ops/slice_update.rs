//! `slice_update`: a block of a tensor replaced.

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
                reason: "the source, from the start on, must lie inside the tensor",
            });
        }
        Ok((inputs[0].dtype(), *x))
    }
}

impl Tensor {
    /// This tensor with `source` in place of the block that begins at `start`:
    /// `y[start[0] + i, start[1] + j, ..] = source[i, j, ..]`.
    ///
    /// `start` has one number for each axis. The source has this tensor's rank, lies inside it and is
    /// converted to its type; shape and type stay. An empty source changes nothing. Nothing is copied
    /// where nobody else needs this tensor, so that a cache grows in place.
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
                    reason: format!(
                        "{} numbers say where to start in {} axes",
                        start.len(),
                        self.rank()
                    ),
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
