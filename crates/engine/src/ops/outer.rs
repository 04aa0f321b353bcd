//! `outer`: the outer product of two vectors.

use crate::Tensor;

impl Tensor {
    /// The outer product of two vectors: `y[i, j] = a[i] * b[j]`.
    pub fn outer(&self, other: &Self) -> Self {
        Self::attempt(|| {
            self.expect_rank("outer", 1)?;
            other.expect_rank("outer", 1)?;
            Ok(self.expand_dims(1).mul(other))
        })
    }
}
