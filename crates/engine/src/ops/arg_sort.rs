//! `argsort`: the indices that sort an axis.

use super::{Meta, Rule};
use crate::{DType, Result, Tensor};

/// The indices of the elements along an axis, in ascending order of the elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgSort {
    pub(crate) axis: usize,
}

impl Rule for ArgSort {
    fn name(&self) -> &'static str {
        "argsort"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        Ok((DType::I64, *inputs[0].shape()))
    }
}

impl Tensor {
    /// The indices, as `i64`, that sort the elements along `axis` in ascending order; the shape is unchanged. The sort
    /// is stable, zeros of either sign are equal, and NaN sorts last.
    pub fn argsort(&self, axis: isize) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let axis = self.shape().axis("argsort", axis)?;
            Ok(Self::apply(ArgSort { axis }, &[self]))
        })
    }
}
