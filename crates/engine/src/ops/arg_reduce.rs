//! `argmin`, `argmax`: the index of the minimum or maximum.

use super::{Meta, Rule};
use crate::{Axes, DType, Error, Result, Tensor};

/// The index of the minimum or maximum along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgReduce {
    /// Whether it is the maximum.
    pub(crate) max: bool,
    pub(crate) axis: usize,
    pub(crate) keepdims: bool,
}

impl Rule for ArgReduce {
    fn name(&self) -> &'static str {
        if self.max { "argmax" } else { "argmin" }
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let shape = inputs[0].shape();
        if shape[self.axis] == 0 {
            return Err(Error::BadShape {
                op: self.name(),
                shape: *shape,
                reason: "an empty axis has no minimum or maximum".to_owned(),
            });
        }
        let mut axes = Axes::default();
        axes.insert(self.axis);
        Ok((DType::I64, shape.reduced(axes, self.keepdims)))
    }
}

impl Tensor {
    fn arg_reduce(&self, max: bool, axis: isize, keepdims: bool) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let mut op = ArgReduce {
                max,
                axis: 0,
                keepdims,
            };
            op.axis = self.shape().axis(op.name(), axis)?;
            Ok(Self::apply(op, &[self]))
        })
    }

    /// The index, as `i64`, of the minimum along `axis`: the first one among equals, the first NaN if there is one. The
    /// axis is removed, or has length 1 with `keepdims`. An empty axis is an error.
    pub fn argmin(&self, axis: isize, keepdims: bool) -> Self {
        self.arg_reduce(false, axis, keepdims)
    }

    /// The index, as `i64`, of the maximum along `axis`: the first one among equals, the first NaN if there is one. The
    /// axis is removed, or has length 1 with `keepdims`. An empty axis is an error.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, 5.0, 2.0, 9.0, 0.0, 9.0], [2, 3]);
    /// assert_eq!(x.argmax(1, false).to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn argmax(&self, axis: isize, keepdims: bool) -> Self {
        self.arg_reduce(true, axis, keepdims)
    }
}
