//! `rope`: rotary position embedding. What the angles are is `ops/rope/table.rs`.

mod table;

pub use table::{RopeOptions, RopeScaling, RopeStyle, RopeTable};

use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::device::Place;
use crate::{Error, Result, Tensor, dispatch};

/// Pairs of the last axis turned by an angle that grows with the position, which is the index along the
/// last axis but one. The inputs are `x`, the frequencies and, unless they count from `offset`, the
/// positions, the last two as the device's kernel reads them ([`dispatch::rope_inputs`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rope {
    pub(crate) style: RopeStyle,
    /// Position of the first row, where positions are no input.
    pub(crate) offset: usize,
    /// The bits of a number, so that equal ones are found equal.
    factor: u64,
}

impl Rope {
    /// What the result is multiplied with.
    pub(crate) fn factor(&self) -> f64 {
        f64::from_bits(self.factor)
    }
}

impl Rule for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (x, frequencies) = (inputs[0], inputs[1]);
        let dtype = expect_float("rope", x)?;
        let shape = *x.shape();
        if shape.rank() < 2 {
            return Err(Error::BadShape {
                op: "rope",
                shape,
                reason: "the last two axes must be positions and the dimensions of a head"
                    .to_owned(),
            });
        }
        let (seq, dim) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
        let pairs = frequencies.shape().last().copied().unwrap_or(0);
        if 2 * pairs > dim {
            return Err(Error::ShapeMismatch {
                op: "rope",
                left: shape,
                right: *frequencies.shape(),
                reason: "each frequency turns two of the last axis's elements",
            });
        }
        if let Some(positions) = inputs.get(2) {
            let fits = match **positions.shape() {
                [n] => n == seq,
                [b, n] => shape.rank() > 2 && b == shape[0] && n == seq,
                _ => false,
            };
            if !fits {
                return Err(Error::ShapeMismatch {
                    op: "rope",
                    left: shape,
                    right: *positions.shape(),
                    reason: "positions are one for each of the last axis but one, or these for each of \
                             the first axis",
                });
            }
        }
        Ok((dtype, shape))
    }
}

/// Where the rows that [`Tensor::rope`] turns stand in their sequence.
#[derive(Clone, Debug)]
pub enum Positions {
    /// One after the other, from this one on.
    From(usize),
    /// At these: a vector with one for each row of the sequence, or a matrix with such a vector for each
    /// element of the first axis (the batch). Of any number type.
    At(Tensor),
}

impl From<usize> for Positions {
    fn from(first: usize) -> Self {
        Self::From(first)
    }
}

impl From<&Tensor> for Positions {
    fn from(positions: &Tensor) -> Self {
        Self::At(positions.clone())
    }
}

impl From<Tensor> for Positions {
    fn from(positions: Tensor) -> Self {
        Self::At(positions)
    }
}

impl Tensor {
    /// Rotary position embedding: pairs of elements of each row, along the last axis, turned by an angle
    /// that is their frequency times the position of the row:
    /// `(a, b) -> (a cos t - b sin t, b cos t + a sin t)` with `t = position * frequency[i]`.
    ///
    /// Shape: `[…, seq, dim]`, as queries and keys are for [`Tensor::attention`]
    /// (`[batch, heads, seq, dim]`); a transposed `[batch, seq, heads, dim]` is read in place. Which
    /// elements make pair `i` is the [`RopeStyle`]; elements past [`RopeOptions::dims`] stay as they are.
    /// Type: floats stay, others become floats ([`DType::to_float`](crate::DType::to_float)). Angles are computed in `f64`, or
    /// in 64 bits of a turn where there is no `f64`; `f16` and `bf16` are turned in `f32` and rounded once. NaN: stays in its pair. Empty: stays empty.
    ///
    /// This computes the frequencies anew; a model keeps a [`RopeTable`] and calls [`Tensor::rope_with`].
    ///
    /// ```
    /// # use bessemer::{RopeOptions, Tensor};
    /// let x = Tensor::from_slice(&[1.0_f32, 0.0, 1.0, 0.0], [2, 2]);
    /// let y = x.rope(&RopeOptions::default(), 0).to_vec::<f32>()?;
    /// assert_eq!(y[..2], [1.0, 0.0]);
    /// assert!((y[2] - 1_f32.cos()).abs() < 1e-6 && (y[3] - 1_f32.sin()).abs() < 1e-6);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn rope(&self, options: &RopeOptions, positions: impl Into<Positions>) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let dim = self.shape().last().copied().unwrap_or(0);
            Ok(self.rope_with(&options.table(dim)?, positions))
        })
    }

    /// [`Tensor::rope`] with frequencies computed before.
    pub fn rope_with(&self, table: &RopeTable, positions: impl Into<Positions>) -> Self {
        let x = self.cast(self.dtype().to_float());
        let (offset, positions) = match positions.into() {
            Positions::From(first) => (first, None),
            Positions::At(positions) => (0, Some(positions)),
        };
        if x.check().is_err() {
            return x;
        }
        Self::attempt(|| {
            let place = match &positions {
                Some(positions) => Place::of("rope", &[&x, positions], x.dtype(), None),
                None => Place::of("rope", &[&x], x.dtype(), None),
            }?;
            let (angles, positions) = dispatch::rope_inputs(&place.device, table, positions);
            let op = Rope {
                style: table.style(),
                offset,
                factor: table.attention_factor().to_bits(),
            };
            Ok(match &positions {
                Some(positions) => Self::apply(op, &[&x, angles, positions]),
                None => Self::apply(op, &[&x, angles]),
            })
        })
    }
}
