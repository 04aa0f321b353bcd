//! `quant_matmul`: matmul with quantised weights.

use super::{Meta, Rule};
use crate::quant::{Precision, QuantMatrix};
use crate::{DType, Error, Result, Shape, Tensor};

/// `x · Wᵀ`.
#[derive(Clone, Debug)]
pub(crate) struct QuantMatmul {
    pub(crate) matrix: QuantMatrix,
    pub(crate) precision: Precision,
}

impl QuantMatmul {
    fn key(&self) -> (usize, Precision) {
        (self.matrix.address(), self.precision)
    }
}

impl PartialEq for QuantMatmul {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QuantMatmul {}

impl std::hash::Hash for QuantMatmul {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Rule for QuantMatmul {
    fn name(&self) -> &'static str {
        "quant_matmul"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (x, matrix) = (inputs[0], &self.matrix);
        if x.dtype() != DType::F32 {
            return Err(Error::BadDType {
                op: "quant_matmul",
                dtype: x.dtype(),
                expected: "activations are f32",
            });
        }
        match &x.shape()[..] {
            [rest @ .., k] if *k == matrix.cols() && *k > 0 => {
                let shape = Shape::new("quant_matmul", &[rest, &[matrix.rows()]].concat())?;
                Ok((DType::F32, shape))
            }
            _ => Err(Error::ShapeMismatch {
                op: "quant_matmul",
                left: *x.shape(),
                right: Shape::new("quant_matmul", &[matrix.rows(), matrix.cols()])?,
                reason: "both must have the same number of columns, which must not be 0",
            }),
        }
    }
}

impl Tensor {
    /// `x · Wᵀ`: the product of this tensor `[…, cols]` of `f32` and the transpose of quantised weights
    /// `[rows, cols]`, giving `[…, rows]`. Weights are dequantised on the fly, sums accumulate in `f32`.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// use bessemer::quant::{self, BlockFormat, QuantMatrix};
    /// let blocks = quant::quantize(BlockFormat::Q4_0, &[-8.0; 64])?;
    /// let weights = QuantMatrix::from_bytes(BlockFormat::Q4_0, [2, 32], blocks)?;
    /// let x = Tensor::from_slice(&[1.0_f32; 32], [32]);
    /// assert_eq!(x.quant_matmul(&weights).to_vec::<f32>()?, [-256.0, -256.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn quant_matmul(&self, weights: &QuantMatrix) -> Self {
        self.quant_matmul_with(weights, Precision::Exact)
    }

    /// [`Tensor::quant_matmul`] with a choice of [`Precision`].
    pub fn quant_matmul_with(&self, weights: &QuantMatrix, precision: Precision) -> Self {
        let matrix = weights.clone();
        Self::apply(QuantMatmul { matrix, precision }, &[self])
    }
}
