//! `cast`: conversion to another type.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::{DType, Result, Tensor};

/// `y = x as dtype`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cast {
    pub(crate) dtype: DType,
}

impl Rule for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        Ok((self.dtype, *inputs[0].shape()))
    }

    fn measured_as(&self) -> Option<OpClass> {
        Some(OpClass::Elementwise)
    }
}

impl Tensor {
    /// This tensor with elements of another type, converted as Rust's `as` does it: floats to integers
    /// saturate and NaN becomes 0, integers to narrower integers keep their low bits, to floats they are
    /// rounded to nearest. To `bool` is `x != 0`.
    ///
    /// ```
    /// # use bessemer::{DType, Tensor};
    /// let x = Tensor::from_slice(&[-1.5_f32, 300.0, f32::NAN], [3]);
    /// assert_eq!(x.cast(DType::U8).to_vec::<u8>()?, [0, 255, 0]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn cast(&self, dtype: DType) -> Self {
        if self.dtype() == dtype {
            return self.clone();
        }
        Self::apply(Cast { dtype }, &[self])
    }
}
