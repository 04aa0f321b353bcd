//! `rope`: rotary position embedding. `ops/rope/table.rs` defines the frequencies.

mod table;

pub use table::{RopeOptions, RopeScaling, RopeStyle, RopeTable};

use super::softmax::expect_float;
use super::{Meta, Rule};
use crate::device::Placement;
use crate::{Error, Result, Tensor, dispatch};

/// Rotates pairs of elements of the last axis by an angle proportional to the position, which is the index along the
/// second to last axis. The inputs are `x`, the frequencies and, unless they count from `offset`, the positions; the
/// last two in the form that the device's kernel reads ([`dispatch::rope_inputs`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rope {
    pub(crate) style: RopeStyle,
    /// Position of the first row, if positions are not an input.
    pub(crate) offset: usize,
    /// The bits of an `f64`: equal ops must compare equal.
    factor: u64,
}

impl Rope {
    /// Factor of the result.
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
                reason: "the last two axes must be the positions and the head dimension".to_owned(),
            });
        }
        let (seq, dim) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
        let pairs = frequencies.shape().last().copied().unwrap_or(0);
        if 2 * pairs > dim {
            return Err(Error::ShapeMismatch {
                op: "rope",
                left: shape,
                right: *frequencies.shape(),
                reason: "each frequency rotates two elements of the last axis",
            });
        }
        if let Some(positions) = inputs.get(2) {
            let matches = match **positions.shape() {
                [n] => n == seq,
                [b, n] => shape.rank() > 2 && b == shape[0] && n == seq,
                _ => false,
            };
            if !matches {
                return Err(Error::ShapeMismatch {
                    op: "rope",
                    left: shape,
                    right: *positions.shape(),
                    reason: "positions must be [seq] or [batch, seq], where seq is the second to last axis and batch the \
                             first",
                });
            }
        }
        Ok((dtype, shape))
    }
}

/// The positions of the rows that [`Tensor::rope`] rotates.
#[derive(Clone, Debug)]
pub enum Positions {
    /// Consecutive positions from this one on.
    From(usize),
    /// These positions: a vector with an element per row of the sequence, or a matrix with such a vector per element of
    /// the first axis (the batch). Of any number type.
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
    /// Rotary position embedding: rotates pairs of elements of each row, along the last axis, by their frequency times
    /// the position of the row: `(a, b) -> (a cos t - b sin t, b cos t + a sin t)` with `t = position * frequency[i]`.
    ///
    /// Shape: `[…, seq, dim]`, as queries and keys are for [`Tensor::attention`] (`[batch, heads, seq, dim]`); a
    /// transposed `[batch, seq, heads, dim]` is read in place. The [`RopeStyle`] determines the pairs; elements past
    /// [`RopeOptions::dims`] are unchanged. Type: floats are kept, others become floats
    /// ([`DType::to_float`](crate::DType::to_float)). Angles are computed in `f64`, or in 64-bit fixed point as
    /// fractions of a revolution where there is no `f64`; `f16` and `bf16` are rotated in `f32` and rounded once. NaN:
    /// affects only its pair. Empty: stays empty.
    ///
    /// This recomputes the frequencies; a model keeps a [`RopeTable`] and calls [`Tensor::rope_with`].
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

    /// [`Tensor::rope`] with precomputed frequencies.
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
            let placement = match &positions {
                Some(positions) => Placement::of("rope", &[&x, positions], x.dtype(), None),
                None => Placement::of("rope", &[&x], x.dtype(), None),
            }?;
            let (angles, positions) = dispatch::rope_inputs(&placement.device, table, positions);
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
