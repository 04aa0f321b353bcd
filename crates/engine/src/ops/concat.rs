//! `concat`, its derived ops `stack` and `roll`, and its inverse `split`.

use super::gather::expect_along;
use super::{Meta, Rule};
use crate::tensor::Node;
use crate::{Error, Result, Shape, Tensor, try_vec};

/// The concatenation of the inputs along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Concat {
    pub(crate) axis: usize,
}

impl Rule for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let first = inputs[0].shape();
        let mut len = 0_usize;
        for input in inputs {
            expect_along("concat", first, input.shape(), self.axis)?;
            len = len.saturating_add(input.shape()[self.axis]);
        }
        let mut dims = first.to_vec();
        dims[self.axis] = len;
        Ok((inputs[0].dtype(), Shape::new("concat", &dims)?))
    }
}

impl Tensor {
    /// Concatenates tensors along `axis`: the lengths of that axis add up, all others must be equal. Types are
    /// promoted. No tensors, or tensors of rank 0, are an error.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let a = Tensor::from_slice(&[1, 2, 3, 4], [2, 2]);
    /// let b = Tensor::from_slice(&[5, 6], [2, 1]);
    /// assert_eq!(Tensor::concat(&[&a, &b], 1).to_vec::<i32>()?, [1, 2, 5, 3, 4, 6]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn concat(tensors: &[&Self], axis: isize) -> Self {
        Self::with_promoted("concat", tensors, |all| {
            let axis = all[0].shape().axis("concat", axis)?;
            Ok(Self::apply(Concat { axis }, all))
        })
    }

    /// Stacks tensors of the same shape along a new axis, which is inserted before `axis`; -1 means after the last.
    /// Types are promoted. No tensors are an error.
    pub fn stack(tensors: &[&Self], axis: isize) -> Self {
        Self::with_promoted("stack", tensors, |all| {
            for tensor in all {
                if tensor.shape() != all[0].shape() {
                    return Err(Error::ShapeMismatch {
                        op: "stack",
                        left: *all[0].shape(),
                        right: *tensor.shape(),
                        reason: "all shapes must be equal",
                    });
                }
            }
            let expanded: Vec<_> = all.iter().map(|t| t.expand_dims(axis)).collect();
            expanded[0].check()?;
            let axis = expanded[0].shape().axis("stack", axis)?;
            Ok(Self::apply(
                Concat { axis },
                &expanded.iter().collect::<Vec<_>>(),
            ))
        })
    }

    /// Calls `body` with at least one tensor, all cast to the type that they promote to.
    fn with_promoted(
        op: &'static str,
        tensors: &[&Self],
        body: impl FnOnce(&[&Self]) -> Result<Self>,
    ) -> Self {
        Self::attempt(|| {
            let Some(first) = tensors.first() else {
                return Err(Error::Invalid {
                    op,
                    reason: "there must be at least one tensor".to_owned(),
                });
            };
            for tensor in tensors {
                tensor.check()?;
            }
            let promote = |dtype: crate::DType, t: &&Self| dtype.promote(t.dtype());
            let dtype = tensors.iter().fold(first.dtype(), promote);
            let all: Vec<_> = tensors.iter().map(|t| t.cast(dtype)).collect();
            body(&all.iter().collect::<Vec<_>>())
        })
    }

    /// Splits into views of `sections` equal sections along `axis`. Returns one tensor with an error if `sections` does
    /// not divide the length of the axis.
    pub fn split(&self, sections: usize, axis: isize) -> Vec<Self> {
        let parts = self.dim_of("split", axis).and_then(|len| {
            if sections == 0 || len % sections != 0 {
                return Err(Error::BadShape {
                    op: "split",
                    shape: *self.shape(),
                    reason: format!(
                        "an axis of length {len} cannot be split into {sections} equal sections"
                    ),
                });
            }
            // The axis of a broadcast tensor may be longer than any list.
            try_vec::check::<(Self, Node)>("split", sections)?;
            let len = len / sections;
            Ok((0..sections)
                .map(|i| self.narrow(axis, i * len, len))
                .collect())
        });
        parts.unwrap_or_else(|error| vec![Self::failed(error)])
    }

    /// Splits into views with these lengths along `axis`. Returns one tensor with an error if they do not add up to the
    /// length of the axis.
    pub fn split_sizes(&self, sizes: &[usize], axis: isize) -> Vec<Self> {
        let parts = self.dim_of("split", axis).and_then(|len| {
            let sum = sizes
                .iter()
                .try_fold(0_usize, |sum, &size| sum.checked_add(size));
            if sum != Some(len) {
                return Err(Error::BadShape {
                    op: "split",
                    shape: *self.shape(),
                    reason: format!("the sizes {sizes:?} do not add up to {len}"),
                });
            }
            let mut start = 0;
            let parts = sizes.iter().map(|&size| {
                start += size;
                self.narrow(axis, start - size, size)
            });
            Ok(parts.collect())
        });
        parts.unwrap_or_else(|error| vec![Self::failed(error)])
    }

    fn dim_of(&self, op: &'static str, axis: isize) -> Result<usize> {
        self.check()?;
        Ok(self.shape()[self.shape().axis(op, axis)?])
    }

    /// Rotates the elements by `shift` positions along `axis`: `y[(i + shift) mod n] = x[i]`. Shape and type are
    /// unchanged.
    pub fn roll(&self, shift: isize, axis: isize) -> Self {
        Self::attempt(|| {
            let len = self.dim_of("roll", axis)?;
            let shift = match len {
                0 => 0,
                len => shift.rem_euclid(isize::try_from(len).unwrap_or(isize::MAX)) as usize,
            };
            if shift == 0 {
                return Ok(self.clone());
            }
            let tail = self.narrow(axis, len - shift, shift);
            Ok(Self::concat(
                &[&tail, &self.narrow(axis, 0, len - shift)],
                axis,
            ))
        })
    }
}
