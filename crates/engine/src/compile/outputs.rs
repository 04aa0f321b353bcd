//! The results of functions that can be compiled.

use crate::{Result, Tensor};

/// The result of a function that [`compile`](crate::compile()) takes: one tensor, or several, or an error.
pub trait IntoOutputs {
    /// The tensors, or the error.
    ///
    /// # Errors
    /// The error that the function has returned.
    fn into_outputs(self) -> Result<Vec<Tensor>>;
}

impl IntoOutputs for Tensor {
    fn into_outputs(self) -> Result<Vec<Tensor>> {
        Ok(vec![self])
    }
}

impl IntoOutputs for Vec<Tensor> {
    fn into_outputs(self) -> Result<Vec<Tensor>> {
        Ok(self)
    }
}

impl<const N: usize> IntoOutputs for [Tensor; N] {
    fn into_outputs(self) -> Result<Vec<Tensor>> {
        Ok(self.into())
    }
}

impl<O: IntoOutputs> IntoOutputs for Result<O> {
    fn into_outputs(self) -> Result<Vec<Tensor>> {
        self?.into_outputs()
    }
}
