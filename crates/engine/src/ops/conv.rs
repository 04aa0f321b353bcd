//! `conv1d`, `conv2d`: convolution.

use super::pooling::{Window, windows};
use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::{Error, Result, Shape, Tensor};

/// `y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation - padding] * w[o, c, k] + b[o]`. The
/// inputs are `x`, `w` and, if there is one, `b`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv {
    /// The name of the method, for errors.
    pub(crate) name: &'static str,
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) groups: usize,
}

impl Rule for Conv {
    fn name(&self) -> &'static str {
        self.name
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let op = self.name;
        let dtype = expect_float(op, inputs[0])?;
        let (x, w) = (inputs[0].expect_rank(op, 4)?, inputs[1].expect_rank(op, 4)?);
        let matches = self.groups > 0
            && w[0] % self.groups == 0
            && w[1].checked_mul(self.groups) == Some(x[1]);
        if !matches {
            return Err(Error::ShapeMismatch {
                op,
                left: *x,
                right: *w,
                reason: "the weight must be [outputs, channels / groups, …] and groups must divide the outputs",
            });
        }
        if let Some(bias) = inputs.get(2)
            && **bias.shape() != [w[0]]
        {
            return Err(Error::ShapeMismatch {
                op,
                left: *w,
                right: *bias.shape(),
                reason: "the bias must be a vector with an element per output",
            });
        }
        let mut out = [x[0], w[0], 0, 0];
        for i in 0..2 {
            let window = Window {
                taps: w[i + 2],
                stride: self.stride[i],
                padding: self.padding[i],
                dilation: self.dilation[i],
            };
            out[i + 2] = windows(op, x, x[i + 2], window)?;
        }
        Ok((dtype, Shape::new(op, &out)?))
    }
}

/// Options of a convolution along one axis (`N` = 1) or two (`N` = 2: height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions<const N: usize> {
    /// Distance between windows.
    pub stride: [usize; N],
    /// Zeros added at each end.
    pub padding: [usize; N],
    /// Distance between the elements of a window.
    pub dilation: [usize; N],
    /// Number of groups that the channels are divided into.
    pub groups: usize,
}

impl<const N: usize> Default for ConvOptions<N> {
    /// Stride 1, no padding, dilation 1, one group.
    fn default() -> Self {
        Self {
            stride: [1; N],
            padding: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }
}

impl Tensor {
    /// Convolution of images (a cross-correlation, as in other deep-learning libraries):
    /// `y[n, o, i, j] = bias[o] + sum x[n, c, i s + k d - p, j s + l d - p] weight[o, c, k, l]`
    /// with stride `s`, dilation `d` and zeros for the padding `p`.
    ///
    /// Shape: this is `[batch, channels, h, w]`, `weight` `[outputs, channels / groups, kh, kw]`, `bias`
    /// `[outputs]`; the result is `[batch, outputs, (h + 2 p - d (kh - 1) - 1) / s + 1, …]`, rounded down.
    /// Output `o` uses only the channels of its group. Type: all are converted to the float that they
    /// promote to; `f16`, `bf16` and `f32` are summed in `f32` and rounded once. NaN: if the window contains one.
    /// Empty: without images the result is empty; without channels it is the bias.
    ///
    /// ```
    /// # use bessemer::{ConvOptions, DType, Tensor};
    /// let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
    /// let sum = Tensor::ones([1, 1, 2, 2], DType::F32);
    /// assert_eq!(x.conv2d(&sum, None, &ConvOptions::default()).item::<f32>()?, 10.0);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, options: &ConvOptions<2>) -> Self {
        self.conv("conv2d", weight, bias, options)
    }

    /// [`Tensor::conv2d`] along one axis: `[batch, channels, length]` and
    /// `[outputs, channels / groups, kernel]`.
    pub fn conv1d(&self, weight: &Self, bias: Option<&Self>, options: &ConvOptions<1>) -> Self {
        let options = ConvOptions {
            stride: [1, options.stride[0]],
            padding: [0, options.padding[0]],
            dilation: [1, options.dilation[0]],
            groups: options.groups,
        };
        Self::attempt(|| {
            self.expect_rank("conv1d", 3)?;
            weight.expect_rank("conv1d", 3)?;
            let (x, weight) = (self.expand_dims(2), weight.expand_dims(2));
            let y = x.conv("conv1d", &weight, bias, &options);
            y.check()?;
            Ok(y.squeeze(2))
        })
    }

    fn conv(
        &self,
        name: &'static str,
        weight: &Self,
        bias: Option<&Self>,
        options: &ConvOptions<2>,
    ) -> Self {
        let op = Conv {
            name,
            stride: options.stride,
            padding: options.padding,
            dilation: options.dilation,
            groups: options.groups,
        };
        let all = [self, weight].into_iter().chain(bias);
        let promoted = all.clone().map(Self::dtype).reduce(|a, b| a.promote(b));
        let dtype = promoted.unwrap_or(self.dtype()).to_float();
        let all: Vec<_> = all.map(|t| t.cast(dtype)).collect();
        Self::apply(op, &all.iter().collect::<Vec<_>>())
    }
}
