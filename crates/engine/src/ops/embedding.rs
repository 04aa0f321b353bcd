//! `embedding`: rows of a table by index.

use crate::Tensor;

impl Tensor {
    /// The rows of this table, `[rows, dim]`, with the indices `ids`: `y[i.., d] = table[ids[i..], d]`, which is
    /// [`Tensor::take`] along the first axis.
    ///
    /// Shape: `ids` may have any; the result has an additional last axis of length `dim`. Type: as the table; ids are
    /// integers of any type, negative ones count from the end, and one out of range is an error on evaluation. Empty:
    /// without ids the result is empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let table = Tensor::from_slice(&[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5], [3, 2]);
    /// let y = table.embedding(&Tensor::from_slice(&[2, 0], [1, 2]));
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 2.5, 0.0, 0.5]);
    /// assert_eq!(*y.shape(), [1, 2, 2]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn embedding(&self, ids: &Self) -> Self {
        Self::attempt(|| {
            self.expect_rank("embedding", 2)?;
            Ok(self.take(0, ids))
        })
    }
}
