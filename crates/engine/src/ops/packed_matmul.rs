//! `prepack` and `matmul_packed`: matmuls with a packed right factor.

use std::fmt;
use std::sync::Arc;

use super::{Meta, Rule};
use crate::device::Placement;
use crate::dispatch::{self, Packed};
use crate::{DType, Error, Result, Shape, Tensor};

/// A matrix that was packed once into the panels that matmul reads, for example the weights of a layer. It takes as
/// much memory as the matrix, which can be dropped. On a Metal device it is not repacked.
#[derive(Clone)]
pub struct PackedMatrix(Arc<PackedData>);

struct PackedData {
    dtype: DType,
    shape: Shape,
    /// The placement of matmuls with it.
    placement: Placement,
    packed: Packed,
}

impl PackedMatrix {
    /// The numbers of rows and columns.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The matrix as the device stores it.
    pub(crate) fn packed(&self) -> &Packed {
        &self.0.packed
    }
}

impl fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedMatrix({} {})", self.dtype(), self.shape())
    }
}

/// `a·b` with a packed `b`.
#[derive(Clone, Debug)]
pub(crate) struct PackedMatmul {
    pub(crate) right: PackedMatrix,
}

impl PartialEq for PackedMatmul {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.right.0, &other.right.0)
    }
}

impl Eq for PackedMatmul {}

impl std::hash::Hash for PackedMatmul {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.right.0).hash(state);
    }
}

impl Rule for PackedMatmul {
    fn name(&self) -> &'static str {
        "matmul_packed"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (left, right) = (inputs[0], &self.right);
        if left.dtype() != right.dtype() {
            return Err(Error::WrongType {
                op: "matmul_packed",
                actual: left.dtype(),
                requested: right.dtype(),
            });
        }
        let [rest @ .., k] = &left.shape()[..] else {
            return Err(Error::BadShape {
                op: "matmul_packed",
                shape: *left.shape(),
                reason: "the left factor must have at least one axis".to_owned(),
            });
        };
        if *k != right.shape()[0] {
            return Err(Error::ShapeMismatch {
                op: "matmul_packed",
                left: *left.shape(),
                right: *right.shape(),
                reason: "the first must have as many columns as the second has rows",
            });
        }
        let shape = Shape::new("matmul_packed", &[rest, &[right.shape()[1]]].concat())?;
        Ok((right.dtype(), shape))
    }
}

impl Tensor {
    /// Evaluates this matrix `[k, n]` of floats and packs it for [`Tensor::matmul_packed`].
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]).t().prepack()?;
    /// let x = Tensor::from_slice(&[1.0_f32, 1.0], [2]);
    /// assert_eq!(x.matmul_packed(&weights).to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn prepack(&self) -> Result<PackedMatrix> {
        let shape = *self.expect_rank("prepack", 2)?;
        if !self.dtype().is_float() {
            return Err(Error::BadDType {
                op: "prepack",
                dtype: self.dtype(),
                expected: "a float type",
            });
        }
        let placement = Placement::of("prepack", &[self], self.dtype(), None)?;
        Ok(PackedMatrix(Arc::new(PackedData {
            dtype: self.dtype(),
            shape,
            packed: dispatch::pack(self.eval()?, &placement.device)?,
            placement,
        })))
    }

    /// The product of this tensor `[…, k]` and a packed matrix `[k, n]` of the same type, as
    /// [`Tensor::matmul`].
    pub fn matmul_packed(&self, right: &PackedMatrix) -> Self {
        let right = right.clone();
        let placement = &right.0.placement;
        let left = if placement.pinned && !self.node.placement.pinned {
            self.to(&placement.device)
        } else {
            self.clone()
        };
        Self::apply(PackedMatmul { right }, &[&left])
    }
}
