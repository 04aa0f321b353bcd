//! Conversion of element types.

use bessemer::DType;

use crate::Array;
use crate::subnormal::operand;

/// The numbers as elements of another type: floats round to nearest even, integers wrap, floats that
/// become integers are cut and saturate (NaN is 0), and all but zero is true.
pub fn cast(x: &Array, dtype: DType) -> Array {
    x.map(dtype, |v| {
        if dtype.is_float() {
            v.cast(dtype)
        } else {
            operand(x.dtype, v).cast(dtype)
        }
    })
}
