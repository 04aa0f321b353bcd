//! `max_pool1d`, `max_pool2d`, `avg_pool1d`, `avg_pool2d`: max and average pooling.

use super::{Meta, Rule};
use crate::{Error, Result, Shape, Tensor};

/// The reduction of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolFunction {
    /// The maximum.
    Max,
    /// The mean, including the zeros of the padding.
    Mean,
    /// The mean, excluding the padding.
    MeanInside,
}

/// Pooling over the last two axes of `[planes, height, width]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pooling {
    pub(crate) pool: PoolFunction,
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
}

impl Rule for Pooling {
    fn name(&self) -> &'static str {
        match self.pool {
            PoolFunction::Max => "max_pool",
            PoolFunction::Mean | PoolFunction::MeanInside => "avg_pool",
        }
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let shape = *inputs[0].expect_rank(self.name(), 3)?;
        let mut out = [shape[0], 0, 0];
        for i in 0..2 {
            let (kernel, padding) = (self.kernel[i], self.padding[i]);
            out[i + 1] = windows(
                self.name(),
                &shape,
                shape[i + 1],
                Window {
                    taps: kernel,
                    stride: self.stride[i],
                    padding,
                    dilation: 1,
                },
            )?;
            if padding >= kernel {
                return Err(Error::Invalid {
                    op: self.name(),
                    reason: format!(
                        "a padding of {padding} is not less than the window of {kernel}: some windows \
                        would contain only padding"
                    ),
                });
            }
        }
        let dtype = super::softmax::expect_float(self.name(), inputs[0])?;
        Ok((dtype, Shape::new(self.name(), &out)?))
    }
}

/// The window of a pooling or convolution along one axis.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) dilation: usize,
}

/// Number of positions of a window on an axis of `len` elements.
pub(crate) fn windows(op: &'static str, shape: &Shape, len: usize, w: Window) -> Result<usize> {
    let bad = |reason: String| Error::BadShape {
        op,
        shape: *shape,
        reason,
    };
    if w.taps == 0 || w.stride == 0 || w.dilation == 0 {
        return Err(bad("window, stride and dilation must not be 0".to_owned()));
    }
    let span = (w.taps - 1)
        .checked_mul(w.dilation)
        .and_then(|s| s.checked_add(1));
    let whole = w.padding.checked_mul(2).and_then(|p| p.checked_add(len));
    match (span, whole) {
        (Some(span), Some(whole)) if span <= whole => Ok((whole - span) / w.stride + 1),
        _ => Err(bad(format!(
            "a window of {} elements with dilation {} is larger than an axis of {len} with padding {} at \
            both ends",
            w.taps, w.dilation, w.padding
        ))),
    }
}

/// Options of pooling along one axis (`N` = 1) or two (`N` = 2: height, width).
///
/// ```
/// # use bessemer::PoolOptions;
/// let disjoint = PoolOptions::new([2, 2]);
/// let overlapping = PoolOptions { stride: [2, 2], padding: [1, 1], ..PoolOptions::new([3, 3]) };
/// assert_eq!(disjoint.stride, overlapping.stride);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions<const N: usize> {
    /// Size of the window.
    pub kernel: [usize; N],
    /// Distance between windows.
    pub stride: [usize; N],
    /// Padding at each end; less than the window.
    pub padding: [usize; N],
    /// Whether averages include the zeros of the padding, as in PyTorch by default. Maxima never do.
    pub count_padding: bool,
}

impl<const N: usize> PoolOptions<N> {
    /// Adjacent windows of this size.
    pub const fn new(kernel: [usize; N]) -> Self {
        Self {
            kernel,
            stride: kernel,
            padding: [0; N],
            count_padding: true,
        }
    }
}

impl Tensor {
    /// Max pooling over the last two axes, height and width.
    ///
    /// Shape: `[…, h, w]` becomes `[…, (h + 2 padding - kernel) / stride + 1, …]`, rounded down. Type: floats
    /// are kept, others become floats ([`DType::to_float`](crate::DType::to_float)). NaN: if the window contains one.
    /// The padding is `-inf`. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::{PoolOptions, Tensor};
    /// let x = Tensor::from_slice(&[1.0_f32, 5.0, 2.0, 3.0], [1, 1, 2, 2]);
    /// assert_eq!(x.max_pool2d(&PoolOptions::new([2, 2])).item::<f32>()?, 5.0);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn max_pool2d(&self, options: &PoolOptions<2>) -> Self {
        self.pool2d(PoolFunction::Max, options)
    }

    /// Average pooling over the last two axes, height and width.
    ///
    /// Shape, type and empty: as [`Tensor::max_pool2d`]; `f16` and `bf16` are averaged in `f32` and rounded
    /// once. [`PoolOptions::count_padding`] selects whether the padding counts.
    pub fn avg_pool2d(&self, options: &PoolOptions<2>) -> Self {
        self.pool2d(mean(options), options)
    }

    /// [`Tensor::max_pool2d`] along the last axis only.
    pub fn max_pool1d(&self, options: &PoolOptions<1>) -> Self {
        self.pool1d(PoolFunction::Max, options)
    }

    /// [`Tensor::avg_pool2d`] along the last axis only.
    pub fn avg_pool1d(&self, options: &PoolOptions<1>) -> Self {
        self.pool1d(mean(options), options)
    }

    fn pool1d(&self, pool: PoolFunction, options: &PoolOptions<1>) -> Self {
        let options = PoolOptions {
            kernel: [1, options.kernel[0]],
            stride: [1, options.stride[0]],
            padding: [0, options.padding[0]],
            count_padding: options.count_padding,
        };
        self.expand_dims(-2).pool2d(pool, &options).squeeze(-2)
    }

    fn pool2d(&self, pool: PoolFunction, options: &PoolOptions<2>) -> Self {
        let op = Pooling {
            pool,
            kernel: options.kernel,
            stride: options.stride,
            padding: options.padding,
        };
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let shape = *self.shape();
            let Some(at) = shape.rank().checked_sub(2) else {
                return Err(Error::BadShape {
                    op: op.name(),
                    shape,
                    reason: "the last two axes must be height and width".to_owned(),
                });
            };
            let planes = shape[..at].iter().product();
            let x = self.cast(self.dtype().to_float());
            let x = x.reshape([planes, shape[at], shape[at + 1]]);
            let y = Self::apply(op, &[&x]);
            y.check()?;
            let out = shape.with(at, y.shape()[1]).with(at + 1, y.shape()[2]);
            Ok(y.reshape(out))
        })
    }
}

fn mean<const N: usize>(options: &PoolOptions<N>) -> PoolFunction {
    if options.count_padding {
        PoolFunction::Mean
    } else {
        PoolFunction::MeanInside
    }
}
