//! `topk`: the k largest or smallest elements.

use super::{Meta, Rule};
use crate::{DType, Error, Result, Tensor};

/// The indices of the `k` largest or smallest elements along an axis, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TopK {
    pub(crate) k: usize,
    pub(crate) axis: usize,
    pub(crate) largest: bool,
}

impl Rule for TopK {
    fn name(&self) -> &'static str {
        "topk"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let shape = inputs[0].shape();
        if self.k > shape[self.axis] {
            return Err(Error::BadShape {
                op: "topk",
                shape: *shape,
                reason: format!("axis {} has fewer than {} elements", self.axis, self.k),
            });
        }
        Ok((DType::I64, shape.with(self.axis, self.k)))
    }
}

impl Tensor {
    /// The `k` largest elements along `axis` in descending order, or without `largest` the `k` smallest in ascending
    /// order, and their indices as `i64`: `(values, indices)`.
    ///
    /// The axis has length `k` in both; `k` may be 0 but not more than the length of the axis. Equal elements are
    /// ordered by index. NaN is larger than all numbers, as in [`Tensor::sort`].
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[3.0_f32, 9.0, 4.0, 9.0], [4]);
    /// let (values, indices) = x.topk(3, 0, true);
    /// assert_eq!(values.to_vec::<f32>()?, [9.0, 9.0, 4.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 3, 2]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> (Self, Self) {
        if self.check().is_err() {
            return (self.clone(), self.clone());
        }
        let indices = Self::attempt(|| {
            let axis = self.shape().axis("topk", axis)?;
            Ok(Self::apply(TopK { k, axis, largest }, &[self]))
        });
        (self.gather(axis, &indices), indices)
    }
}
