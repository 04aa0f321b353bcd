//! Reductions: `sum`, `prod`, `mean`, `min`, `max`, `any`, `all`. [`super::var`], [`super::norm`] and
//! [`super::logsumexp`] use the same op.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::{Axes, DType, Error, Kind, Result, Tensor};

/// The function of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fold {
    /// `x0 + x1 + …`
    Sum,
    /// `x0 * x1 * …`
    Prod,
    /// The arithmetic mean.
    Mean,
    /// The minimum; NaN if any element is NaN.
    Min,
    /// The maximum; NaN if any element is NaN.
    Max,
    /// `true` if any element is nonzero.
    Any,
    /// `true` if all elements are nonzero.
    All,
    /// The variance, with divisor `n - ddof`.
    Var {
        /// Delta degrees of freedom.
        ddof: usize,
    },
    /// The standard deviation, with divisor `n - ddof`.
    Std {
        /// Delta degrees of freedom.
        ddof: usize,
    },
    /// `log(exp(x0) + exp(x1) + …)`
    LogSumExp,
    /// The sum of magnitudes.
    SumAbs,
    /// The square root of the sum of squares.
    RootSumSquare,
    /// The maximum magnitude.
    MaxAbs,
    /// The minimum magnitude.
    MinAbs,
    /// The number of nonzero elements.
    CountNonzero,
}

/// `y = fold of x over axes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reduce {
    pub(crate) fold: Fold,
    pub(crate) axes: Axes,
    pub(crate) keepdims: bool,
}

impl Rule for Reduce {
    fn name(&self) -> &'static str {
        match self.fold {
            Fold::Sum => "sum",
            Fold::Prod => "prod",
            Fold::Mean => "mean",
            Fold::Min => "min",
            Fold::Max => "max",
            Fold::Any => "any",
            Fold::All => "all",
            Fold::Var { .. } => "var",
            Fold::Std { .. } => "std",
            Fold::LogSumExp => "logsumexp",
            Fold::SumAbs
            | Fold::RootSumSquare
            | Fold::MaxAbs
            | Fold::MinAbs
            | Fold::CountNonzero => "norm",
        }
    }

    fn measured_as(&self) -> Option<OpClass> {
        Some(OpClass::Reduction)
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let (shape, x) = (inputs[0].shape(), inputs[0].dtype());
        let needs_elements = matches!(
            self.fold,
            Fold::Min | Fold::Max | Fold::MaxAbs | Fold::MinAbs
        );
        if needs_elements && self.axes.iter().any(|a| shape[a] == 0) {
            return Err(Error::BadShape {
                op: self.name(),
                shape: *shape,
                reason: "an empty axis has no minimum or maximum".to_owned(),
            });
        }
        let dtype = match self.fold {
            Fold::Sum | Fold::Prod => x.to_sum(),
            Fold::Min | Fold::Max => x,
            Fold::Any | Fold::All => DType::Bool,
            _ if x.kind() == Kind::Float => x,
            _ => DType::F64,
        };
        Ok((dtype, shape.reduced(self.axes, self.keepdims)))
    }
}

impl Tensor {
    /// A reduction over these axes, or over all if `axes` is empty.
    pub(crate) fn reduce(&self, fold: Fold, axes: &[isize], keepdims: bool) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let mut op = Reduce {
                fold,
                axes: Axes::all(self.rank()),
                keepdims,
            };
            if !axes.is_empty() {
                op.axes = self.shape().axes(op.name(), axes)?;
            }
            Ok(Self::apply(op, &[self]))
        })
    }

    /// The sum over `axes`, or over all elements if `axes` is empty.
    ///
    /// The axes are removed from the shape, or have length 1 with `keepdims`. Floats keep their
    /// type: `f16`, `bf16` and `f32` are added up in `f32`, in blocks whose sums are added up in `f64`,
    /// and rounded once; `f64` in `f64`, in blocks. Integers and booleans give `i64`, unsigned
    /// ones `u64`, and wrap there. One NaN makes the sum NaN. The sum of no elements is 0.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
    /// assert_eq!(x.sum(&[], false).item::<f32>()?, 10.0);
    /// assert_eq!(x.sum(&[-1], false).to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn sum(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Sum, axes, keepdims)
    }

    /// The product over `axes`, or of all elements if `axes` is empty.
    ///
    /// Shape and type: as [`Tensor::sum`]; floats are multiplied in `f64` and rounded once,
    /// integers wrap in 64 bits. One NaN makes the product NaN. The product of no elements is 1.
    pub fn prod(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Prod, axes, keepdims)
    }

    /// The mean over `axes`, or of all elements if `axes` is empty.
    ///
    /// Floats keep their type, are added up as in [`Tensor::sum`] and rounded once, so that the sum may exceed the
    /// largest `f16`; integers and booleans give `f64`. One NaN makes the mean NaN. The mean of no elements is NaN.
    pub fn mean(&self, axes: &[isize], keepdims: bool) -> Self {
        // A sum of 64-bit integers may wrap, which a mean must not.
        match self.dtype() {
            DType::I64 | DType::U64 => self.cast(DType::F64).reduce(Fold::Mean, axes, keepdims),
            _ => self.reduce(Fold::Mean, axes, keepdims),
        }
    }

    /// The minimum over `axes`, or of all elements if `axes` is empty, in the tensor's type. NaN if any element is NaN.
    /// An empty axis is an error.
    pub fn min(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Min, axes, keepdims)
    }

    /// The maximum over `axes`, or of all elements if `axes` is empty, in the tensor's type. NaN if any element is NaN.
    /// An empty axis is an error.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1.0_f32, f32::NAN, 3.0, 4.0], [2, 2]);
    /// let y = x.max(&[1], false).to_vec::<f32>()?;
    /// assert!(y[0].is_nan() && y[1] == 4.0);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn max(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Max, axes, keepdims)
    }

    /// `true` where any element over `axes`, or of all if `axes` is empty, is nonzero (NaN is). `false` for no
    /// elements. The result is `bool`.
    pub fn any(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Any, axes, keepdims)
    }

    /// `true` where every element over `axes`, or of all if `axes` is empty, is nonzero (NaN is). `true` for no
    /// elements. The result is `bool`.
    pub fn all(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::All, axes, keepdims)
    }
}
