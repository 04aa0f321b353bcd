//! Reductions: `sum`, `prod`, `mean`, `min`, `max`, `any`, `all`. The variance is in [`super::var`], norms
//! in [`super::norm`], `logsumexp` in [`super::logsumexp`]: all of them are one op.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::{Axes, DType, Error, Kind, Result, Tensor};

/// What a reduction makes of the elements it takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fold {
    /// `x0 + x1 + …`
    Sum,
    /// `x0 * x1 * …`
    Prod,
    /// The sum over the number of elements.
    Mean,
    /// The least; NaN if one is.
    Min,
    /// The greatest; NaN if one is.
    Max,
    /// Whether one is not 0.
    Any,
    /// Whether all are not 0.
    All,
    /// The mean square distance from the mean, with `n - ddof` for `n`.
    Var {
        /// Degrees of freedom that were used up.
        ddof: usize,
    },
    /// The root of the variance.
    Std {
        /// Degrees of freedom that were used up.
        ddof: usize,
    },
    /// `log(exp(x0) + exp(x1) + …)`
    LogSumExp,
    /// The sum of magnitudes.
    SumAbs,
    /// The root of the sum of squares.
    RootSumSquare,
    /// The greatest magnitude.
    MaxAbs,
    /// The least magnitude.
    MinAbs,
    /// How many are not 0.
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
        let needs_one = matches!(
            self.fold,
            Fold::Min | Fold::Max | Fold::MaxAbs | Fold::MinAbs
        );
        if needs_one && self.axes.iter().any(|a| shape[a] == 0) {
            return Err(Error::BadShape {
                op: self.name(),
                shape: *shape,
                reason: "an empty axis has no least or greatest element".to_owned(),
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
    /// A reduction over these axes; over all where none are named.
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

    /// The sum over `axes`, or over all elements where `axes` is empty.
    ///
    /// The axes are gone from the shape, or have length 1 where `keepdims`. Floats answer in their own
    /// type: `f16`, `bf16` and `f32` are added up in `f32`, in blocks whose sums are added up in `f64`,
    /// and rounded once; `f64` in `f64`, in blocks. Integers and truth values answer in `i64`, unsigned
    /// ones in `u64`, and wrap there. One NaN makes the sum NaN. The sum of nothing is 0.
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

    /// The product over `axes`, or of all elements where `axes` is empty.
    ///
    /// Shapes and types are those of [`Tensor::sum`]; floats are multiplied in `f64` and rounded once,
    /// integers wrap in 64 bits. One NaN makes the product NaN. The product of nothing is 1.
    pub fn prod(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Prod, axes, keepdims)
    }

    /// The mean over `axes`, or of all elements where `axes` is empty: the sum over the number of
    /// elements.
    ///
    /// Floats answer in their own type, added up as in [`Tensor::sum`] and rounded once, so that a sum
    /// past the largest `f16` does not matter; integers and truth values answer in `f64`. One NaN makes
    /// the mean NaN. The mean of nothing is NaN.
    pub fn mean(&self, axes: &[isize], keepdims: bool) -> Self {
        // A sum of 64-bit integers may wrap, which a mean must not.
        match self.dtype() {
            DType::I64 | DType::U64 => self.cast(DType::F64).reduce(Fold::Mean, axes, keepdims),
            _ => self.reduce(Fold::Mean, axes, keepdims),
        }
    }

    /// The least element over `axes`, or of all where `axes` is empty, in the tensor's type. NaN where
    /// one is NaN. An error where one of the axes is empty.
    pub fn min(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Min, axes, keepdims)
    }

    /// The greatest element over `axes`, or of all where `axes` is empty, in the tensor's type. NaN where
    /// one is NaN. An error where one of the axes is empty.
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

    /// Whether an element over `axes`, or any where `axes` is empty, is not 0 (NaN is not). `false` for
    /// nothing. The answer is `bool`.
    pub fn any(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::Any, axes, keepdims)
    }

    /// Whether every element over `axes`, or every one where `axes` is empty, is not 0 (NaN is not).
    /// `true` for nothing. The answer is `bool`.
    pub fn all(&self, axes: &[isize], keepdims: bool) -> Self {
        self.reduce(Fold::All, axes, keepdims)
    }
}
