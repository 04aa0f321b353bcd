//! `take`: elements of an axis by index.

use super::{Meta, Rule};
use crate::{DType, Error, Result, Shape, Tensor};

/// `y[a, i, b] = x[a, indices[i], b]`; inputs are `x` and `indices`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Take {
    pub(crate) axis: usize,
}

/// An error where a tensor holds no integers.
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
    /// The elements of `axis` that `indices` name, as NumPy's `take`:
    /// `y[a.., i.., b..] = x[a.., indices[i..], b..]`.
    ///
    /// The shape of `indices`, which may be any, stands where the axis stood; the type stays. Indices are
    /// integers of any type; negative ones count from the end; one out of range is an error when the
    /// value is asked for.
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

    /// The elements where `mask` holds, in row-major order, as one axis.
    ///
    /// The mask must be of type `bool` and is broadcast to this tensor's shape. How many elements there
    /// are depends on it, so it is evaluated here and now; the elements are not. The type stays.
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
            let chosen = mask.to_slice::<bool>()?;
            let count = chosen.iter().filter(|&&c| c).count();
            let mut indices = Vec::new();
            indices
                .try_reserve_exact(count)
                .map_err(|_| Error::SizeOverflow {
                    op: "masked_select",
                    dims: vec![count],
                })?;
            let chosen = chosen.iter().enumerate().filter(|&(_, &c)| c);
            indices.extend(chosen.map(|(i, _)| i as i64));
            Ok(self.flatten().take(0, &Self::from_vec(indices, [count])))
        })
    }
}
