//! `group_norm`: group normalization.

use super::rms_norm::{expect_parameter, parameter};
use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::{DType, Error, Result, Shape, Tensor};

/// `(x - mean) / sqrt(var + eps) * weight + bias` of each row, which is a group of channels of an image; a channel has
/// `spatial` elements. The inputs are `x` as `[images * groups, elements]`, then the optional weights and biases of all
/// channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupNorm {
    pub(crate) groups: usize,
    pub(crate) spatial: usize,
    pub(crate) weight: bool,
    pub(crate) bias: bool,
    /// The bits of an `f64`: equal ops must compare equal.
    eps: u64,
}

impl GroupNorm {
    pub(crate) fn eps(&self) -> f64 {
        f64::from_bits(self.eps)
    }
}

impl Rule for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        Ok((
            expect_float("group_norm", inputs[0])?,
            *inputs[0].expect_rank("group_norm", 2)?,
        ))
    }
}

/// The type in which ops on a float type compute.
pub(crate) fn computed_in(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

impl Tensor {
    /// Group normalization: groups of neighbouring channels, axis 1, are normalised to mean 0 and variance 1 over all
    /// their elements, then each channel is scaled and shifted by its parameters:
    /// `(x - mean) / sqrt(var + eps) * weight + bias`, with the population variance.
    ///
    /// Shape: `[batch, channels, …]`, as the result; `groups` divides the channels; `weight` and `bias` are vectors
    /// with an element per channel. Type: floats are kept, others become floats ([`DType::to_float`]); the parameters
    /// may be of any float type. `f16`, `bf16` and `f32` are computed in `f32`, with block sums that are added up in
    /// `f64`, and rounded once. NaN: a NaN or an infinity makes its group NaN. Empty: stays empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, 3.0, 10.0, 30.0], [1, 2, 2]);
    /// let y = x.group_norm(2, None, None, 0.0);
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> Self {
        Self::attempt(|| {
            let shape = *channels("group_norm", self)?;
            if groups == 0 || shape[1] % groups != 0 {
                return Err(Error::BadShape {
                    op: "group_norm",
                    shape,
                    reason: format!("{groups} groups do not divide the channels, axis 1"),
                });
            }
            let x = self.cast(self.dtype().to_float());
            let mut inputs = vec![];
            for p in weight.into_iter().chain(bias) {
                p.check()?;
                expect_parameter("group_norm", &x, &p.cast(p.dtype().to_float()), 1)?;
                inputs.push(parameter(&x, p));
            }
            if shape.count() == 0 {
                return Ok(x);
            }
            let rows = shape[0] * groups;
            let x = x.reshape([rows, shape.count() / rows]);
            let op = GroupNorm {
                groups,
                spatial: shape[2..].iter().product(),
                weight: weight.is_some(),
                bias: bias.is_some(),
                eps: eps.to_bits(),
            };
            let inputs: Vec<_> = std::iter::once(&x).chain(&inputs).collect();
            Ok(Self::apply(op, &inputs).reshape(shape))
        })
    }

    /// [`Tensor::group_norm`] as a formula of simpler ops, for tests.
    #[doc(hidden)]
    pub fn decompose_group_norm(
        &self,
        groups: usize,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> Self {
        Self::attempt(|| {
            let shape = *channels("group_norm", self)?;
            let dtype = self.dtype().to_float();
            let wide = computed_in(dtype);
            let rows = shape[0].saturating_mul(groups);
            let x = self.cast(wide);
            let x = x.reshape([rows, shape.count() / rows.max(1)]);
            let y = x.decompose_layer_norm(None, None, eps).reshape(shape);
            let mut dims = vec![1; shape.rank() - 1];
            dims[0] = shape[1];
            let along = |p: Option<&Self>| p.map(|p| p.cast(wide).reshape(&dims));
            let y = along(weight).map_or(y.clone(), |weight| &y * weight);
            let y = along(bias).map_or(y.clone(), |bias| &y + bias);
            Ok(y.cast(dtype))
        })
    }
}

/// The shape of a tensor with batch and channel axes, or an error.
pub(crate) fn channels<'a>(op: &'static str, x: &'a Tensor) -> Result<&'a Shape> {
    x.check()?;
    if x.rank() >= 2 {
        return Ok(x.shape());
    }
    Err(Error::BadShape {
        op,
        shape: *x.shape(),
        reason: "the axes must be batch, channels and any number of others".to_owned(),
    })
}
