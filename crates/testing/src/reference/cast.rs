//! Conversion of element types.

use bessemer::DType;

use crate::Array;
use crate::subnormal::operand;

/// Converts to another dtype: floats round to nearest even, integers wrap, floats to integers are truncated and
/// saturate (NaN is 0), and all nonzero values are true.
pub fn cast(x: &Array, dtype: DType) -> Array {
    x.map(dtype, |v| {
        if dtype.is_float() {
            v.cast(dtype)
        } else {
            operand(x.dtype, v).cast(dtype)
        }
    })
}
