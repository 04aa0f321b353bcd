//! `dot`: the inner product of two vectors.

use crate::Tensor;

impl Tensor {
    /// `Σ a[i] * b[i]` of two vectors of equal length, as a tensor of rank 0.
    pub fn dot(&self, other: &Self) -> Self {
        Self::attempt(|| {
            self.expect_rank("dot", 1)?;
            other.expect_rank("dot", 1)?;
            Ok(self.matmul(other))
        })
    }
}
