//! `contiguous`: the elements of any layout, one after the other.

use super::{Meta, Rule};
use crate::{Result, Tensor};

/// `y = x`, row-major and without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copy;

impl Rule for Copy {
    fn name(&self) -> &'static str {
        "contiguous"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        Ok((inputs[0].dtype(), *inputs[0].shape()))
    }
}

impl Tensor {
    /// This tensor with its elements one after the other in row-major order; itself where they are.
    pub fn contiguous(&self) -> Self {
        if self.layout().is_contiguous() {
            return self.clone();
        }
        Self::apply(Copy, &[self])
    }
}
