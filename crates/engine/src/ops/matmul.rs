//! `matmul` and `gemm`: batched matrix multiplication.

use super::binary::Binary;
use super::fused::{Action, Step};
use super::unary::Unary;
use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::{DType, Error, Result, Scalar, Shape, Tensor};

/// `alpha * a·b`, or `alpha * a·b + beta * c` where there is a third input. All have the rank of the
/// result or less, at least 2; the axes before the last two are batches and broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Matmul {
    pub(crate) alpha: Scalar,
    pub(crate) beta: Scalar,
    /// With an epilogue, `alpha` is 1 and `beta` 0.
    pub(crate) epilogue: EpilogueSteps,
}

/// Elementwise steps that the graph has fused into a matmul, in this order. Each is rounded to the dtype of the result,
/// as without fusion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EpilogueSteps {
    /// Whether the third input is added.
    pub(crate) bias: bool,
    pub(crate) activation: Option<Unary>,
    /// Whether the last input is added.
    pub(crate) residual: bool,
}

impl EpilogueSteps {
    /// No epilogue.
    pub(crate) const NONE: Self = Self {
        bias: false,
        activation: None,
        residual: false,
    };

    /// The steps as a program whose inputs are the product and the inputs after the factors.
    pub(crate) fn steps(&self, dtype: DType) -> Vec<Step> {
        let inputs = 1 + u16::from(self.bias) + u16::from(self.residual);
        let mut steps = Vec::new();
        let mut add = |action, other| {
            // The previous value: the product or the last step.
            let value = match steps.len() as u16 {
                0 => 0,
                done => inputs + done - 1,
            };
            steps.push(Step {
                action,
                args: [value, other, 0],
                dtype,
            });
        };
        if self.bias {
            add(Action::Binary(Binary::Add), 1);
        }
        if let Some(f) = self.activation {
            add(Action::Unary(f), 0);
        }
        if self.residual {
            add(Action::Binary(Binary::Add), inputs - 1);
        }
        steps
    }
}

impl Rule for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn measured_as(&self) -> Option<OpClass> {
        Some(OpClass::Matmul)
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (a, b) = (inputs[0], inputs[1]);
        let dtype = a.dtype();
        if dtype == DType::Bool {
            return Err(Error::BadDType {
                op: "matmul",
                dtype,
                expected: "a number type",
            });
        }
        let (left, right) = (a.shape(), b.shape());
        let [.., m, k] = left[..] else {
            return Err(too_flat(left));
        };
        let [.., rows, n] = right[..] else {
            return Err(too_flat(right));
        };
        if k != rows {
            return Err(Error::ShapeMismatch {
                op: "matmul",
                left: *left,
                right: *right,
                reason: "the first must have as many columns as the second has rows",
            });
        }
        let batch = |s: &Shape| Shape::new("matmul", &s[..s.rank() - 2]);
        let batches = batch(left)?.broadcast("matmul", &batch(right)?);
        let batches = batches.map_err(|_| Error::ShapeMismatch {
            op: "matmul",
            left: *left,
            right: *right,
            reason: "the axes before the last two must be equal or 1",
        })?;
        Ok((
            dtype,
            Shape::new("matmul", &[&batches[..], &[m, n]].concat())?,
        ))
    }
}

fn too_flat(shape: &Shape) -> Error {
    Error::BadShape {
        op: "matmul",
        shape: *shape,
        reason: "a matrix has two axes; multiply by a scalar with `mul`".to_owned(),
    }
}

impl Tensor {
    /// The product of two matrices, or of two batches of matrices: `y[…, i, j] = Σ a[…, i, k] * b[…, k, j]`.
    ///
    /// The last two axes are the matrices; the axes before them broadcast. As in NumPy, a first operand of rank 1 is a
    /// row and a second one a column, and that axis is removed from the result. Transposed and sliced views are not
    /// copied. Types are promoted; `f16`, `bf16` and `f32` accumulate in `f32`, `f64` in `f64`, integers wrap. An empty
    /// sum is 0.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let a = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
    /// let b = Tensor::from_slice(&[5.0_f32, 6.0, 7.0, 8.0], [2, 2]);
    /// assert_eq!(a.matmul(&b).to_vec::<f32>()?, [19.0, 22.0, 43.0, 50.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn matmul(&self, other: &Self) -> Self {
        let dtype = self.dtype().promote(other.dtype());
        let (mut a, mut b) = (self.cast(dtype), other.cast(dtype));
        let (row, column) = (a.rank() == 1, b.rank() == 1);
        if row {
            a = a.expand_dims(0);
        }
        if column {
            b = b.expand_dims(1);
        }
        let plain = Matmul {
            alpha: Scalar::Int(1),
            beta: Scalar::Int(0),
            epilogue: EpilogueSteps::NONE,
        };
        let mut y = Self::apply(plain, &[&a, &b]);
        if column {
            y = y.squeeze(-1);
        }
        if row {
            y = y.squeeze(if column { -1 } else { -2 });
        }
        y
    }

    /// `alpha * a·b + beta * c`, rounded once; `c` is broadcast to the product. For integers `alpha` and
    /// `beta` must be integers.
    pub fn gemm(a: &Self, b: &Self, c: &Self, alpha: f64, beta: f64) -> Self {
        let dtype = a.dtype().promote(b.dtype()).promote(c.dtype());
        Self::attempt(|| {
            let factor = |x: f64| {
                if dtype.is_float() {
                    return Ok(Scalar::Float(x));
                }
                if x != x.trunc() {
                    return Err(Error::Invalid {
                        op: "gemm",
                        reason: format!(
                            "{x} is not an integer, but the matrices are {dtype}; cast them to a float type"
                        ),
                    });
                }
                let whole = Scalar::Int(x as i128);
                whole.fit("gemm", dtype).map(|()| whole)
            };
            let op = Matmul {
                alpha: factor(alpha)?,
                beta: factor(beta)?,
                epilogue: EpilogueSteps::NONE,
            };
            let (a, b) = (a.cast(dtype), b.cast(dtype));
            for t in [&a, &b, c] {
                t.check()?;
            }
            let (_, shape) = op.infer(&[&a, &b])?;
            let c = c.cast(dtype).broadcast_to(shape);
            Ok(Self::apply(op, &[&a, &b, &c]))
        })
    }
}
