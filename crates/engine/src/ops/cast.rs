//! `cast`: conversion to another dtype.

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
    /// Converts the elements to another type, as Rust's `as` does: floats to integers saturate and NaN becomes 0,
    /// integers keep their low bits in narrower integers and are rounded to nearest in floats. To `bool` it is
    /// `x != 0`.
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
