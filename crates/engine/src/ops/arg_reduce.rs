//! `argmin`, `argmax`: where the least or greatest element is.

use super::{Meta, Rule};
use crate::{Axes, DType, Error, Result, Tensor};

/// The index of the least or greatest element along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgReduce {
    /// The greatest, not the least.
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
                reason: "an empty axis has no least or greatest element".to_owned(),
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

    /// The index, in `i64`, of the least element along `axis`: of the first where several are equal, of
    /// the first NaN where there is one. The axis is gone from the shape, or has length 1 where
    /// `keepdims`. An error where the axis is empty.
    pub fn argmin(&self, axis: isize, keepdims: bool) -> Self {
        self.arg_reduce(false, axis, keepdims)
    }

    /// The index, in `i64`, of the greatest element along `axis`: of the first where several are equal,
    /// of the first NaN where there is one. The axis is gone from the shape, or has length 1 where
    /// `keepdims`. An error where the axis is empty.
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
