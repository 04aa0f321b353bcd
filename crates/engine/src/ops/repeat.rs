//! `repeat`, `tile`: repeated elements.

use crate::{Error, Result, Shape, Tensor};

/// The blocks to repeat along an axis: `outer` blocks of `inner` elements.
struct Blocks {
    axis: usize,
    outer: usize,
    inner: usize,
}

impl Tensor {
    /// Repeats each element `count` times along `axis`, whose length is multiplied by `count`; 0 gives an empty tensor.
    /// The type is unchanged. An error if the size in bytes overflows.
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
            let blocks = Blocks { axis, outer, inner };
            self.repeat_blocks("repeat", blocks, count)
        })
    }

    /// Repeats this tensor `counts[i]` times along axis `i`. Axes of length 1 are prepended to the shape, or counts of
    /// 1 to `counts`, until both have the same length, as in NumPy. The type is unchanged. An error if the size in
    /// bytes overflows.
    pub fn tile(&self, counts: &[usize]) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let mut dims = vec![1; counts.len().saturating_sub(self.rank())];
            dims.extend_from_slice(self.shape());
            let mut out = self.reshape(Shape::new("tile", &dims)?);
            let skip = dims.len() - counts.len();
            // Innermost axes first: intermediate results stay small.
            for (axis, &count) in counts.iter().enumerate().rev() {
                if count != 1 {
                    let axis = axis + skip;
                    let shape = *out.shape();
                    let inner = shape[axis..].iter().product();
                    let outer = shape[..axis].iter().product();
                    out = out.repeat_blocks("tile", Blocks { axis, outer, inner }, count)?;
                }
            }
            Ok(out)
        })
    }

    /// Repeats each block `count` times.
    fn repeat_blocks(&self, op: &'static str, blocks: Blocks, count: usize) -> Result<Self> {
        let Blocks { axis, outer, inner } = blocks;
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
