//! `pad`: constant padding.

use super::{Meta, Rule};
use crate::shape::MAX_RANK;
use crate::{Error, Result, Scalar, Shape, Tensor};

/// `x` padded with `value`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pad {
    pub(crate) before: [usize; MAX_RANK],
    pub(crate) after: [usize; MAX_RANK],
    pub(crate) value: Scalar,
}

impl Rule for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (shape, dtype) = (inputs[0].shape(), inputs[0].dtype());
        self.value.fit("pad", dtype)?;
        let edges = self.before.iter().zip(&self.after);
        let dims = shape.iter().zip(edges);
        let dims: Vec<_> = dims
            .map(|(&d, (&b, &a))| d.saturating_add(b).saturating_add(a))
            .collect();
        Ok((dtype, Shape::new("pad", &dims)?))
    }
}

impl Tensor {
    /// Pads each axis with `value`: `edges` has the numbers of elements to add before and after each axis. The type is
    /// unchanged, and `value` is converted to it; an integer out of its range is an error.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1, 2], [2]);
    /// assert_eq!(x.pad(&[(1, 2)], 9).to_vec::<i32>()?, [9, 1, 2, 9, 9]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn pad(&self, edges: &[(usize, usize)], value: impl Into<Scalar>) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            if edges.len() != self.rank() {
                return Err(Error::Invalid {
                    op: "pad",
                    reason: format!("{} edges for {} axes", edges.len(), self.rank()),
                });
            }
            let mut op = Pad {
                before: [0; MAX_RANK],
                after: [0; MAX_RANK],
                value: value.into(),
            };
            for (axis, &(before, after)) in edges.iter().enumerate() {
                (op.before[axis], op.after[axis]) = (before, after);
            }
            Ok(Self::apply(op, &[self]))
        })
    }
}
