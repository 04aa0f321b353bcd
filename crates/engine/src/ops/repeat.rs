//! `repeat`, `tile`: elements over and over.

use crate::{Error, Result, Shape, Tensor};

impl Tensor {
    /// Each element `count` times in a row along `axis`, whose length is multiplied by it; 0 leaves
    /// nothing. The type stays. An error, and no attempt, where the result cannot be counted in bytes.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1, 2], [2]);
    /// assert_eq!(x.repeat(2, 0).to_vec::<i32>()?, [1, 1, 2, 2]);
    /// assert_eq!(x.tile(&[2]).to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn repeat(&self, count: usize, axis: isize) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let shape = *self.shape();
            let axis = shape.axis("repeat", axis)?;
            let inner = shape[axis + 1..].iter().product();
            let outer = shape[..=axis].iter().product();
            self.again("repeat", axis, [outer, inner], count)
        })
    }

    /// This tensor `counts[i]` times along axis `i`. Axes of length 1 are put in front of the shape, or
    /// counts of 1 in front of `counts`, until there are as many, as in NumPy. The type stays. An error,
    /// and no attempt, where the result cannot be counted in bytes.
    pub fn tile(&self, counts: &[usize]) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let mut dims = vec![1; counts.len().saturating_sub(self.rank())];
            dims.extend_from_slice(self.shape());
            let mut out = self.reshape(Shape::new("tile", &dims)?);
            let skip = dims.len() - counts.len();
            // Short axes first: what is made on the way stays small.
            for (axis, &count) in counts.iter().enumerate().rev() {
                if count != 1 {
                    let axis = axis + skip;
                    let shape = *out.shape();
                    let inner = shape[axis..].iter().product();
                    let outer = shape[..axis].iter().product();
                    out = out.again("tile", axis, [outer, inner], count)?;
                }
            }
            Ok(out)
        })
    }

    /// Each of the `outer` blocks of `inner` elements `count` times in a row, as part of `axis`.
    fn again(
        &self,
        op: &'static str,
        axis: usize,
        [outer, inner]: [usize; 2],
        count: usize,
    ) -> Result<Self> {
        let mut dims = self.shape().to_vec();
        dims[axis] = dims[axis].checked_mul(count).ok_or(Error::SizeOverflow {
            op,
            dims: vec![dims[axis], count],
        })?;
        let shape = Shape::new(op, &dims)?;
        let blocks = self.reshape([outer, 1, inner]);
        Ok(blocks.broadcast_to([outer, count, inner]).reshape(shape))
    }
}
