//! `contiguous`: a contiguous copy of a strided tensor.

use super::{Meta, Rule};
use crate::{Result, Tensor};

/// `y = x`, contiguous.
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
    /// This tensor with contiguous elements in row-major order; itself if they already are.
    pub fn contiguous(&self) -> Self {
        if self.layout().is_contiguous() {
            return self.clone();
        }
        Self::apply(Copy, &[self])
    }
}
