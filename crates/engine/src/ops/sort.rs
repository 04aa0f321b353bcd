//! `sort`: sorted elements.

use super::{Meta, Rule};
use crate::{Result, Tensor};

/// The elements along an axis in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sort {
    pub(crate) axis: usize,
}

impl Rule for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        Ok((inputs[0].dtype(), *inputs[0].shape()))
    }
}

impl Tensor {
    /// Sorts the elements along `axis` in ascending order; shape and type are unchanged.
    ///
    /// The sort is stable, zeros of either sign are equal, and NaN sorts last.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[3, 1, 2], [3]);
    /// assert_eq!(x.sort(0).to_vec::<i32>()?, [1, 2, 3]);
    /// assert_eq!(x.argsort(0).to_vec::<i64>()?, [1, 2, 0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn sort(&self, axis: isize) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let axis = self.shape().axis("sort", axis)?;
            Ok(Self::apply(Sort { axis }, &[self]))
        })
    }
}
