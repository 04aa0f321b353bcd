//! `cumsum`, `cumprod`, `cummax`: scans along an axis.

use super::{Meta, Rule};
use crate::{Result, Tensor};

/// The function of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Running {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The maximum; NaN from the first NaN on.
    Max,
}

/// `y[i] = running of x[0..=i]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scan {
    pub(crate) running: Running,
    pub(crate) axis: usize,
}

impl Rule for Scan {
    fn name(&self) -> &'static str {
        match self.running {
            Running::Sum => "cumsum",
            Running::Prod => "cumprod",
            Running::Max => "cummax",
        }
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let x = inputs[0].dtype();
        let dtype = match self.running {
            Running::Max => x,
            _ => x.to_sum(),
        };
        Ok((dtype, *inputs[0].shape()))
    }
}

impl Tensor {
    fn scan(&self, running: Running, axis: isize) -> Self {
        if self.check().is_err() {
            return self.clone();
        }
        Self::attempt(|| {
            let mut op = Scan { running, axis: 0 };
            op.axis = self.shape().axis(op.name(), axis)?;
            Ok(Self::apply(op, &[self]))
        })
    }

    /// The inclusive cumulative sum along `axis`; the shape is unchanged.
    ///
    /// Floats keep their type and are added up in `f32` for a few elements and in `f64` beyond, integers and booleans
    /// give `i64`, unsigned ones `u64`, and wrap. From the first NaN on all are NaN. An empty axis stays empty.
    ///
    /// ```
    /// # use bessemer::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4], [4]);
    /// assert_eq!(x.cumsum(0).to_vec::<i64>()?, [1, 3, 6, 10]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn cumsum(&self, axis: isize) -> Self {
        self.scan(Running::Sum, axis)
    }

    /// The inclusive cumulative product along `axis`. Shape, type and NaN: as [`Tensor::cumsum`]; floats are multiplied
    /// in `f64`.
    pub fn cumprod(&self, axis: isize) -> Self {
        self.scan(Running::Prod, axis)
    }

    /// The inclusive cumulative maximum along `axis`, in the tensor's type; the shape is unchanged. From the first NaN
    /// on all are NaN. An empty axis stays empty.
    pub fn cummax(&self, axis: isize) -> Self {
        self.scan(Running::Max, axis)
    }
}
