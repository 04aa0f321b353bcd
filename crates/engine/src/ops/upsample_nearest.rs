//! `upsample_nearest`: images made larger by repeating their elements.

use super::group_norm::channels;
use crate::{Error, Shape, Tensor};

impl Tensor {
    /// Each element of the axes after the second (batch and channels) repeated `scale` times along each of
    /// these axes: `[n, c, h, w]` becomes `[n, c, scale * h, scale * w]`, and `[n, c, l]` `[n, c, scale * l]`.
    ///
    /// Shape: at most three axes grow. Type: stays. A broadcast and one copy. Empty: stays empty; a scale of
    /// 0 is an error.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1, 2], [1, 1, 1, 2]);
    /// assert_eq!(x.upsample_nearest(2).to_vec::<i32>()?, [1, 1, 2, 2, 1, 1, 2, 2]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn upsample_nearest(&self, scale: usize) -> Self {
        const OP: &str = "upsample_nearest";
        Self::attempt(|| {
            let shape = *channels(OP, self)?;
            if scale == 0 || shape.rank() > 5 {
                return Err(Error::BadShape {
                    op: OP,
                    shape,
                    reason: format!(
                        "at most three axes after batch and channels grow, by a scale that is not 0; it \
                         is {scale}"
                    ),
                });
            }
            let (kept, grown) = shape.split_at(2);
            let each = |f: &dyn Fn(usize) -> Vec<usize>| {
                let dims: Vec<_> = grown.iter().flat_map(|&d| f(d)).collect();
                [kept, &dims].concat()
            };
            // The product must be counted before the views multiply it out.
            let end = Shape::new(OP, &each(&|d| vec![d.saturating_mul(scale)]))?;
            let apart = self.reshape(each(&|d| vec![d, 1]));
            Ok(apart.broadcast_to(each(&|d| vec![d, scale])).reshape(end))
        })
    }
}
