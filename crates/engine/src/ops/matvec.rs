//! `matvec`: a matrix times a vector.

use crate::{Error, Tensor};

impl Tensor {
    /// The product of this matrix `[…, m, k]` and a vector `[k]`: `y[…, i] = Σ a[…, i, k] * x[k]`, as
    /// [`Tensor::matmul`] computes it. Other ranks are an error.
    pub fn matvec(&self, x: &Self) -> Self {
        Self::attempt(|| {
            x.expect_rank("matvec", 1)?;
            if self.check()?.rank() < 2 {
                return Err(Error::BadShape {
                    op: "matvec",
                    shape: *self.shape(),
                    reason: "a matrix has two axes".to_owned(),
                });
            }
            Ok(self.matmul(x))
        })
    }
}
