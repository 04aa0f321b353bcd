//! `upsample_nearest`: nearest-neighbour upsampling.

use super::group_norm::channels;
use crate::{Error, Shape, Tensor};

impl Tensor {
    /// Nearest-neighbour upsampling of the axes after batch and channels: `[n, c, h, w]` becomes
    /// `[n, c, scale * h, scale * w]`, and `[n, c, l]` `[n, c, scale * l]`.
    ///
    /// Shape: at most three axes are upsampled. Type: unchanged. A broadcast and one copy. Empty: stays empty; a scale
    /// of 0 is an error.
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
                        "at most three axes after batch and channels can be upsampled, by a positive scale; \
                        the scale is {scale}"
                    ),
                });
            }
            let (batch_channels, spatial) = shape.split_at(2);
            let map_spatial = |f: &dyn Fn(usize) -> Vec<usize>| {
                let dims: Vec<_> = spatial.iter().flat_map(|&d| f(d)).collect();
                [batch_channels, &dims].concat()
            };
            // Checks the size of the result before the views multiply it out.
            let end = Shape::new(OP, &map_spatial(&|d| vec![d.saturating_mul(scale)]))?;
            let expanded = self.reshape(map_spatial(&|d| vec![d, 1]));
            let repeated = expanded.broadcast_to(map_spatial(&|d| vec![d, scale]));
            Ok(repeated.reshape(end))
        })
    }
}
