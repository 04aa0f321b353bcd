//! `arange`, `linspace`: evenly spaced values.

use super::{Meta, Rule};
use crate::{DType, Error, Result, Scalar, Shape, Tensor};

/// `start + i * step` for `i` below `len`, computed in `f64` for floats and in integers for integers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arange {
    pub(crate) start: Scalar,
    pub(crate) step: Scalar,
    pub(crate) len: usize,
    /// The last value, if it must be exact in spite of rounding.
    pub(crate) last: Option<Scalar>,
    pub(crate) dtype: DType,
}

impl Rule for Arange {
    fn name(&self) -> &'static str {
        "arange"
    }

    fn infer(&self, _: &[&Tensor]) -> Result<Meta> {
        Ok((self.dtype, Shape::new("arange", &[self.len])?))
    }
}

impl Tensor {
    /// The values `start`, `start + step`, … before `stop`, as in NumPy. The arithmetic is exact if all three are
    /// integers.
    ///
    /// ```
    /// # use bessemer::{DType, Tensor};
    /// let x = Tensor::arange(1, 8, 3, DType::I32);
    /// assert_eq!(x.to_vec::<i32>()?, [1, 4, 7]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn arange(
        start: impl Into<Scalar>,
        stop: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Self {
        let (start, stop, step) = (start.into(), stop.into(), step.into());
        Self::attempt(|| {
            let invalid = |reason: &str| Error::Invalid {
                op: "arange",
                reason: reason.to_owned(),
            };
            if dtype == DType::Bool {
                return Err(Error::BadDType {
                    op: "arange",
                    dtype,
                    expected: "a number type",
                });
            }
            let float = [start, stop, step]
                .iter()
                .any(|s| matches!(s, Scalar::Float(_)));
            let len = if float {
                let (a, b, s) = (start.to_f64(), stop.to_f64(), step.to_f64());
                let len = ((b - a) / s).ceil();
                if !len.is_finite() || s == 0.0 {
                    return Err(invalid(
                        "start, stop and step must be finite, and step not 0",
                    ));
                }
                if len > isize::MAX as f64 {
                    return Err(invalid("the result is larger than the address space"));
                }
                len.max(0.0) as usize
            } else {
                let (a, b, s) = (start.to_i128(), stop.to_i128(), step.to_i128());
                if s == 0 {
                    return Err(invalid("step must not be 0"));
                }
                let len = if s > 0 {
                    (b - a + s - 1).div_euclid(s)
                } else {
                    (a - b - s - 1).div_euclid(-s)
                };
                usize::try_from(len.max(0))
                    .map_err(|_| invalid("the result is larger than the address space"))?
            };
            if len > 0 && !float {
                start.fit("arange", dtype)?;
                let last = start.to_i128() + (len as i128 - 1) * step.to_i128();
                Scalar::Int(last).fit("arange", dtype)?;
            }
            Ok(Self::apply(
                Arange {
                    start,
                    step,
                    len,
                    last: None,
                    dtype,
                },
                &[],
            ))
        })
    }

    /// `n` evenly spaced values from `start` to `stop`, both included, as in NumPy.
    pub fn linspace(start: f64, stop: f64, n: usize, dtype: DType) -> Self {
        Self::attempt(|| {
            if dtype == DType::Bool {
                return Err(Error::BadDType {
                    op: "linspace",
                    dtype,
                    expected: "a number type",
                });
            }
            if n == 0 {
                return Ok(Self::zeros([0], dtype));
            }
            if n == 1 {
                return Ok(Self::full([1], start, dtype));
            }
            Ok(Self::apply(
                Arange {
                    start: Scalar::Float(start),
                    step: Scalar::Float((stop - start) / (n - 1) as f64),
                    len: n,
                    last: Some(Scalar::Float(stop)),
                    dtype,
                },
                &[],
            ))
        })
    }
}
