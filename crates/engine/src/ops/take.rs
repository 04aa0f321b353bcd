//! `take`: slices of an axis by index.

use super::{Meta, Rule};
use crate::{DType, Error, Result, Shape, Tensor};

/// `y[a, i, b] = x[a, indices[i], b]`; inputs are `x` and `indices`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Take {
    pub(crate) axis: usize,
}

/// Returns an error unless a tensor has an integer type.
pub(super) fn expect_indices(op: &'static str, indices: &Tensor) -> Result<()> {
    if indices.dtype().is_int() {
        return Ok(());
    }
    Err(Error::BadDType {
        op,
        dtype: indices.dtype(),
        expected: "indices are integers",
    })
}

impl Rule for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        expect_indices("take", inputs[1])?;
        let mut dims = inputs[0].shape()[..self.axis].to_vec();
        dims.extend_from_slice(inputs[1].shape());
        dims.extend_from_slice(&inputs[0].shape()[self.axis + 1..]);
        Ok((inputs[0].dtype(), Shape::new("take", &dims)?))
    }
}

impl Tensor {
    /// Selects slices of `axis` by index, as NumPy's `take`:
    /// `y[a.., i.., b..] = x[a.., indices[i..], b..]`.
    ///
    /// The shape of `indices`, which may have any rank, replaces the axis; the type is unchanged. Indices are integers
    /// of any type; negative ones count from the end; one out of range is an error on evaluation.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let table = Tensor::from_slice(&[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5], [3, 2]);
    /// let ids = Tensor::from_slice(&[2, 0, -1], [3]);
    /// assert_eq!(table.take(0, &ids).to_vec::<f32>()?, [2.0, 2.5, 0.0, 0.5, 2.0, 2.5]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn take(&self, axis: isize, indices: &Self) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let axis = self.shape().axis("take", axis)?;
            Ok(Self::apply(Take { axis }, &[self, indices]))
        })
    }

    /// The elements where `mask` is true, in row-major order, as one axis.
    ///
    /// The mask must be of type `bool` and is broadcast to this tensor's shape. It is evaluated immediately, since the
    /// shape of the result depends on it; the elements are not. The type is unchanged.
    pub fn masked_select(&self, mask: &Self) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            mask.check()?;
            if mask.dtype() != DType::Bool {
                return Err(Error::BadDType {
                    op: "masked_select",
                    dtype: mask.dtype(),
                    expected: "the mask must be bool",
                });
            }
            let mask = mask.broadcast_to(*self.shape());
            let mask = mask.to_slice::<bool>()?;
            let count = mask.iter().filter(|&&selected| selected).count();
            let mut indices = Vec::new();
            indices
                .try_reserve_exact(count)
                .map_err(|_| Error::SizeOverflow {
                    op: "masked_select",
                    dims: vec![count],
                })?;
            let selected = mask.iter().enumerate().filter(|&(_, &selected)| selected);
            indices.extend(selected.map(|(i, _)| i as i64));
            Ok(self.flatten().take(0, &Self::from_vec(indices, [count])))
        })
    }
}
