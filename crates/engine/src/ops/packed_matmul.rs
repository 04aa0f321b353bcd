//! `prepack` and `matmul_packed`: products with one right factor that is used often.

use std::fmt;
use std::sync::Arc;

use super::{Meta, Rule};
use crate::device::Place;
use crate::dispatch::{self, Packed};
use crate::{DType, Error, Result, Shape, Tensor};

/// A matrix laid out once in the order in which products read it: the weights of a layer. It costs as much
/// memory as the matrix, which is not needed any more. On a Metal device it stays as it is.
#[derive(Clone)]
pub struct PackedMatrix(Arc<Inner>);

struct Inner {
    dtype: DType,
    shape: Shape,
    /// Where products with it are computed.
    place: Place,
    packed: Packed,
}

impl PackedMatrix {
    /// Rows and columns.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The factor as the device keeps it.
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
                reason: "a vector or matrix has an axis".to_owned(),
            });
        };
        if *k != right.shape()[0] {
            return Err(Error::ShapeMismatch {
                op: "matmul_packed",
                left: *left.shape(),
                right: *right.shape(),
                reason: "the columns of the first must be as many as the rows of the second",
            });
        }
        let shape = Shape::new("matmul_packed", &[rest, &[right.shape()[1]]].concat())?;
        Ok((right.dtype(), shape))
    }
}

impl Tensor {
    /// This matrix `[k, n]` of floats, computed and laid out for [`Tensor::matmul_packed`].
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
        let place = Place::of("prepack", &[self], self.dtype(), None)?;
        Ok(PackedMatrix(Arc::new(Inner {
            dtype: self.dtype(),
            shape,
            packed: dispatch::pack(self.eval()?, &place.device)?,
            place,
        })))
    }

    /// The product of this tensor `[…, k]` and a packed matrix `[k, n]` of the same type, as
    /// [`Tensor::matmul`].
    pub fn matmul_packed(&self, right: &PackedMatrix) -> Self {
        let right = right.clone();
        let place = &right.0.place;
        let left = if place.pinned && !self.node.place.pinned {
            self.to(&place.device)
        } else {
            self.clone()
        };
        Self::apply(PackedMatmul { right }, &[&left])
    }
}
